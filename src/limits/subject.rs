//! [`Subject`] and [`When`]: what a call is counted by, and which calls a limit is about.

use std::collections::BTreeSet;

use uuid::Uuid;

use super::{
    key::Key,
    settings::{Count, Dimension},
};
use crate::{
    identity::{SpiffeId, SpiffeIdError},
    protocol::{Class, Method},
};

/// What a call is counted by. Everything in it was verified or judged, or is from the configuration.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'a> {
    /// The caller.
    pub principal: &'a SpiffeId,
    /// Its tenant, where its ID tells one.
    pub tenant: Option<&'a str>,
    /// The runs that the call belongs to.
    pub runs: &'a [Uuid],
    /// The method.
    pub method: &'a Method,
    /// Name of the upstream.
    pub upstream: &'a str,
    /// Name of the listener.
    pub listener: &'a str,
    /// What it touches; each is counted.
    pub targets: &'a [Touched<'a>],
}

/// One thing that a call touches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Touched<'a> {
    /// How far that can reach.
    pub class: Class,
    /// The tool's name, if it is one.
    pub tool: Option<&'a str>,
}

/// The calls that a limit is about. An empty set of names stands for any.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct When {
    /// Callers.
    pub principals: Vec<Callers>,
    /// Tools.
    pub tools: Vec<ToolName>,
    /// Upstreams, by name.
    pub upstreams: BTreeSet<Box<str>>,
    /// Methods, by the name that policies know them by.
    pub methods: BTreeSet<Box<str>>,
    /// How far a call can reach; never empty. What holds a connection together
    /// ([`Class::Control`]) is never counted.
    pub classes: Vec<Class>,
}

impl Default for When {
    /// All calls that do something; lists are no such calls.
    fn default() -> Self {
        Self {
            principals: Vec::new(),
            tools: Vec::new(),
            upstreams: BTreeSet::new(),
            methods: BTreeSet::new(),
            classes: vec![Class::Read, Class::Write, Class::Execute],
        }
    }
}

/// Callers that a limit is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Callers {
    /// One.
    One(SpiffeId),
    /// All whose IDs begin so; it ends in a slash.
    Below(Box<str>),
}

/// How tools are named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ToolName {
    /// Byte for byte.
    Exact(Box<str>),
    /// All that start so.
    Starting(Box<str>),
}

impl ToolName {
    /// A name, with `*` at its end for any rest; `None` if there is nothing or another `*`.
    pub fn parse(text: &str) -> Option<Self> {
        let name = match text.strip_suffix('*') {
            Some(start) => Self::Starting(start.into()),
            None => Self::Exact(text.into()),
        };
        let (Self::Exact(written) | Self::Starting(written)) = &name;
        (!text.is_empty() && !written.contains('*')).then_some(name)
    }

    fn fits(&self, tool: &str) -> bool {
        match self {
            Self::Exact(name) => **name == *tool,
            Self::Starting(start) => tool.starts_with(&**start),
        }
    }
}

impl Callers {
    /// A SPIFFE ID, or a prefix of IDs that ends in `/*`.
    ///
    /// # Errors
    /// If it is neither.
    pub fn parse(text: &str) -> Result<Self, SpiffeIdError> {
        match text.strip_suffix('*') {
            Some(prefix) if prefix.ends_with('/') => {
                SpiffeId::parse(&format!("{prefix}any")).map(|_| Self::Below(prefix.into()))
            }
            Some(_) | None => SpiffeId::parse(text).map(Self::One),
        }
    }

    /// Whether it is one of them.
    pub fn include(&self, id: &SpiffeId) -> bool {
        match self {
            Self::One(one) => one == id,
            Self::Below(prefix) => id.as_str().starts_with(&**prefix),
        }
    }
}

impl When {
    /// Whether the limit is about this.
    pub(super) fn meets(&self, subject: &Subject<'_>, touched: &Touched<'_>) -> bool {
        let Self { principals, tools, upstreams, methods, classes } = self;
        let any = |names: &BTreeSet<Box<str>>, name: &str| names.is_empty() || names.contains(name);
        let caller = principals.is_empty()
            || principals.iter().any(|callers| callers.include(subject.principal));
        let named = |tool| tools.iter().any(|name| name.fits(tool));
        let tool = tools.is_empty() || touched.tool.is_some_and(named);
        caller
            && tool
            && touched.class != Class::Control
            && classes.contains(&touched.class)
            && any(upstreams, subject.upstream)
            && any(methods, subject.method.action())
    }
}

impl Count {
    /// What it takes of which key to touch this; the run is one of the subject's.
    pub(super) fn charge(
        &self,
        subject: &Subject<'_>,
        touched: &Touched<'_>,
        run: Option<&Uuid>,
    ) -> (Key, u32) {
        let run = run.map(Uuid::to_string).unwrap_or_default();
        let values = self.per.iter().flat_map(|dimension| match dimension {
            Dimension::Principal => [subject.principal.as_str(), ""],
            // Tenants of two trust domains are strangers.
            Dimension::Tenant => {
                [subject.principal.trust_domain(), subject.tenant.unwrap_or_default()]
            }
            Dimension::Tool => [touched.tool.unwrap_or_default(), ""],
            Dimension::Upstream => [subject.upstream, ""],
            Dimension::Class => [touched.class.as_str(), ""],
            Dimension::Method => [subject.method.action(), ""],
            Dimension::Listener => [subject.listener, ""],
            Dimension::Run => [&run, ""],
        });
        let cost = touched.tool.and_then(|tool| self.cost.get(tool)).copied();
        (Key::of(values), cost.unwrap_or(1))
    }
}
