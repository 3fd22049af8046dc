//! Other people's checkers of agents find the same through Lictor as without.

use std::ffi::OsStr;

use crate::{
    programs::{Output, interpreter, run, tests_path},
    site::{PERMIT, Place, Site},
};

const SCRIPT: &str = "a2a_checks.py";

#[tokio::test]
async fn checkers_find_the_same_through_lictor() {
    let site = Site::start(PERMIT).await;
    let [direct, plain] = [site.direct(), site.plain()];
    let (direct, plain) = tokio::join!(findings(&direct), findings(&plain));
    assert_eq!(direct.len(), 22, "{direct:#?}");
    let bad = |finding: &String| finding.contains("error") || finding.contains("failed [");
    assert!(!direct.iter().any(bad), "{direct:#?}");
    assert_eq!(plain, direct);
    site.stop().await;
}

async fn findings(place: &Place) -> Vec<String> {
    let script = tests_path("clients").join(SCRIPT);
    let arguments = [script.as_ref(), OsStr::new(&place.url)];
    let Output { succeeded, stdout, stderr } = run(interpreter(SCRIPT), &arguments).await;
    assert!(succeeded, "{}: {stderr}", place.url);
    stdout.lines().map(str::to_owned).collect()
}
