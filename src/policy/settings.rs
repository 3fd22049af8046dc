//! What the policies are loaded from, and what the configuration tells about servers and callers.

use std::{collections::BTreeMap, path::PathBuf};

use super::entities::PathTemplate;
use crate::protocol::Class;

/// Everything a policy snapshot is built from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// Holds `*.cedar` policies, `*.cedarschema` fragments and `*.grants.yaml` documents; read recursively, sorted by path.
    pub directory: PathBuf,
    /// Group name → members: SPIFFE IDs, or prefixes of IDs that end in `/*`.
    pub groups: BTreeMap<String, Vec<String>>,
    /// Template of the SPIFFE path that tells the tenant, such as `/tenant/{tenant}/agent/{agent}`;
    /// segments in braces match one segment each.
    pub path_template: Option<String>,
    /// Whether calls tell the run that they belong to: chains of delegation are configured.
    pub runs: bool,
    /// Upstream name → what is known of it.
    pub servers: BTreeMap<String, Server>,
}

impl Settings {
    /// Names in the path template; none where the template is missing or wrong.
    pub(crate) fn path_names(&self) -> Vec<String> {
        let template =
            self.path_template.as_deref().and_then(|text| PathTemplate::parse(text).ok());
        template.iter().flat_map(PathTemplate::names).map(str::to_owned).collect()
    }

    /// The class that the configuration gives a tool, if it does.
    pub(crate) fn tool_class(&self, server: &str, tool: &str) -> Option<Class> {
        self.servers.get(server)?.tools.get(tool).map(|tool| tool.class)
    }
}

/// What the configuration tells about one upstream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Server {
    /// The SPIFFE ID that the upstream has to prove, if it does.
    pub agent: Option<String>,
    /// Free tags, for policies such as `resource in Server::"files" && resource.tags.contains("pii")`.
    pub tags: Vec<String>,
    /// Tool name → class and tags. A tool that isn't named here is of class `execute`.
    pub tools: BTreeMap<String, Tool>,
}

/// What the configuration tells about one tool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tool {
    /// How far it can reach; told by the operator, never by the server's own annotations.
    pub class: Class,
    /// Free tags.
    pub tags: Vec<String>,
}
