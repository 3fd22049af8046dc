//! What a call of A2A tells beside method and targets.

use std::collections::BTreeSet;

use crate::protocol::Rest;

/// What a call of A2A tells beside what every [`Call`](crate::protocol::Call) tells.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// What policies can tell such calls apart by.
    pub traits: Traits,
    /// The contexts (conversations) that it names: `contextId`.
    pub contexts: BTreeSet<Box<str>>,
    /// The addresses that the agent is asked to tell what becomes of a task, as they were sent:
    /// those within a message's configuration, and those of a configuration of their own. Each is
    /// a plain http or https address of which every reader finds the same host.
    pub push_urls: BTreeSet<Box<str>>,
    /// Whether `metadata.spawned` is there and neither `true` nor `false`, so that agents could differ about it.
    pub spawned_is_odd: bool,
    /// What data parts call themselves: `type`, where it is a text.
    pub data_types: BTreeSet<Box<str>>,
    /// Where the request goes; `None` for the address of the agent itself, as JSON-RPC has it.
    pub rest: Option<Rest>,
}

/// What policies can tell calls of A2A apart by.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Traits {
    /// The tenant that it names, in the body, path or query.
    pub tenant: Option<Box<str>>,
    /// The kinds of the message's parts: `text`, `raw`, `url` and `data`, as version 1.0 has them.
    /// A file of version 0.3 is `raw` or `url`.
    pub parts: BTreeSet<Box<str>>,
    /// URIs of the extensions that it asks for (headers) or makes use of (message).
    pub extensions: BTreeSet<Box<str>>,
    /// The hosts of [`Facts::push_urls`], in lower case, without port.
    pub push_hosts: BTreeSet<Box<str>>,
    /// `metadata.form` of the message, or of the request.
    pub form: Option<Box<str>>,
    /// Whether `metadata.spawned` of the message, or of the request, says that a helper was made for the task: it
    /// is there and neither `false` nor `null`. Whatever an agent could take for a yes is one.
    pub spawned: bool,
    /// Whether the answer is a stream of events.
    pub streaming: bool,
}
