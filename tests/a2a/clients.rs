//! The client SDKs, and what they see.

use std::{
    collections::BTreeMap,
    ffi::{OsStr, OsString},
};

use serde::Deserialize;
use serde_json::Value;

use crate::{
    programs::{Output, interpreter, pinned, run, tests_path},
    site::Place,
};

/// An SDK, by its driver in `tests/clients`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sdk {
    name: &'static str,
    package: &'static str,
    driver: &'static str,
}

pub(crate) const PYTHON: Sdk = Sdk { name: "Python", package: "a2a-sdk", driver: "a2a_python.py" };
pub(crate) const JAVASCRIPT: Sdk =
    Sdk { name: "JavaScript", package: "@a2a-js/sdk", driver: "a2a_js.mjs" };

impl Sdk {
    /// Whether its driver can be told to speak HTTP/2.
    pub(crate) fn speaks_http2(self) -> bool {
        self.driver == JAVASCRIPT.driver
    }
}

pub(crate) const JSON_RPC: &str = "JSONRPC";
pub(crate) const REST: &str = "HTTP+JSON";

/// An SDK that speaks one binding of one version of the protocol.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Client {
    pub(crate) sdk: Sdk,
    pub(crate) binding: &'static str,
    pub(crate) version: &'static str,
}

/// What a client saw of one step, or the error that it raised.
#[derive(Debug, Deserialize, PartialEq)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Sight {
    Seen(Value),
    Error(Value),
}

#[derive(Deserialize)]
struct Line {
    step: String,
    #[serde(flatten)]
    sight: Sight,
}

/// By step.
pub(crate) type Report = BTreeMap<String, Sight>;

impl Client {
    /// Goes through the steps at a place; `more` are further options of the driver.
    pub(crate) async fn report(self, place: &Place, more: &[&str]) -> Report {
        let Self { sdk: Sdk { driver, .. }, binding, version } = self;
        let script = tests_path("clients").join(driver);
        let mut arguments: Vec<&OsStr> = vec![script.as_ref(), place.url.as_ref()];
        arguments.extend(["--binding", binding, "--version", version].map(OsStr::new));
        arguments.extend(place.credential.iter().map(OsString::as_os_str));
        arguments.extend(more.iter().map(OsStr::new));
        let Output { succeeded, stdout, stderr } = run(interpreter(driver), &arguments).await;
        assert!(succeeded, "{self:?} at {}: {stderr}", place.url);
        let lines = stdout.lines().map(|line| {
            let Line { step, sight } =
                serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
            (step, sight)
        });
        lines.collect()
    }

    /// Its name, with the version that is pinned and the protocol's.
    pub(crate) fn title(self) -> String {
        let Self { sdk: Sdk { name, package, driver }, version, .. } = self;
        format!("{name} {}, A2A {version}", pinned(driver, package))
    }
}
