//! Lictor's own identity.

use std::collections::BTreeMap;

use super::{Reader, names, shape};
use crate::{config::fault::Place, identity};

impl Reader<'_> {
    pub(super) fn identity(
        &mut self,
        it: shape::Identity,
        place: &Place,
    ) -> Option<identity::Settings> {
        let place = place.key("spiffe");
        let spiffe = self.required(it.spiffe, &place)?;
        match (spiffe.workload_api, spiffe.files) {
            (Some(endpoint), None) => {
                self.check(names::check_endpoint(&endpoint), &place.key("workloadApi"))?;
                Some(identity::Settings::WorkloadApi { endpoint })
            }
            (None, Some(files)) => self.identity_files(files, &place.key("files")),
            (Some(_), Some(_)) => {
                self.faults.push(&place, "has both `workloadApi` and `files`; keep one");
                None
            }
            (None, None) => {
                self.faults.missing(&place.key("workloadApi"));
                None
            }
        }
    }

    fn identity_files(&mut self, it: shape::Files, place: &Place) -> Option<identity::Settings> {
        let certificate = self.file(it.certificate, &place.key("certificate"));
        let key = self.file(it.key, &place.key("key"));
        let at = place.key("bundles");
        let mut bundles = BTreeMap::new();
        for (domain, path) in self.required(it.bundles, &at)? {
            let at = at.key(&domain);
            if let Err(error) = names::check_trust_domain(&domain) {
                self.faults.push(&at, error.to_string());
            }
            if let Some(path) = self.file(Some(path), &at) {
                bundles.insert(domain, path);
            }
        }
        let (certificate, key) = (certificate?, key?);
        Some(identity::Settings::Files(identity::Files { certificate, key, bundles }))
    }
}
