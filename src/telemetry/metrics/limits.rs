//! Series of limits, which come and go with configurations and grants.

use std::collections::{HashMap, HashSet};

use prometheus::core::{Collector, MetricVec, MetricVecBuilder};

/// Takes out what is told of limits that aren't among the `names`. A call that was under way with an older
/// configuration may bring a series back, until the next time.
pub(super) fn retain<T: MetricVecBuilder>(family: &MetricVec<T>, names: &HashSet<&str>) {
    for metric in family.collect().iter().flat_map(|told| told.get_metric()) {
        let labels = metric.get_label();
        let labels: HashMap<&str, &str> =
            labels.iter().map(|label| (label.name(), label.value())).collect();
        if labels.get("limit").is_some_and(|name| !names.contains(name)) {
            // What isn't there any more needn't be removed.
            let _ = family.remove(&labels);
        }
    }
}
