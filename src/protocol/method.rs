//! The methods of MCP that a client may send, each with its class and what it touches.
//!
//! One table serves the decoder (where is the target?), the policy schema (which actions exist?)
//! and the ledger (does the call need an intent?). Sources: `schema.ts` of each revision,
//! 2024-11-05 to 2026-07-28, and the tasks extension.

/// How far a call can reach; the order is from harmless to dangerous.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// Life of the connection: `initialize`, `ping`, `server/discover`, notifications.
    Control,
    /// Lists of what a server offers; answers are filtered.
    List,
    /// Reads data, changes nothing.
    Read,
    /// Changes something in a bounded, repairable way.
    Write,
    /// May do anything; what nobody has classed is here.
    Execute,
}

impl Class {
    /// The name used in policies, metrics and the ledger.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Control => "control",
            Self::List => "list",
            Self::Read => "read",
            Self::Write => "write",
            Self::Execute => "execute",
        }
    }

    /// Whether the ledger must hold a durable intent before such a call is forwarded.
    pub fn may_change_state(self) -> bool {
        self >= Self::Write
    }
}

/// Where a method's governed object is found in `params`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Governs {
    /// Nothing but the server.
    Server,
    /// `params.name` is a tool, `params.arguments` its arguments.
    Tool,
    /// `params.name` is a prompt, `params.arguments` its arguments.
    Prompt,
    /// `params.uri`.
    Resource,
    /// `params.taskId`.
    Task,
    /// `params.ref` is a prompt or a resource.
    Reference,
    /// `params.notifications.resourceSubscriptions[]` and `.taskIds[]`.
    Subscriptions,
}

/// A list that has to be filtered on its way back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListOf {
    /// `result.tools[].name`
    Tools,
    /// `result.prompts[].name`
    Prompts,
    /// `result.resources[].uri`
    Resources,
    /// `result.resourceTemplates[].uriTemplate`
    Templates,
}

/// One row of the method table.
#[derive(Debug, PartialEq, Eq)]
pub struct Rule {
    /// The method as it stands on the wire, or a name of ours for messages without one.
    pub name: &'static str,
    /// How far it can reach. For `tools/call` this is the worst case; policy knows the tool's own
    /// class.
    pub class: Class,
    /// What it touches.
    pub governs: Governs,
    /// The list in its answer.
    pub list: Option<ListOf>,
    /// Exists in revisions up to 2025-11-25.
    pub legacy: bool,
    /// Exists in revision 2026-07-28 or its extensions.
    pub modern: bool,
    /// Is a notification (has no id).
    pub notification: bool,
}

const fn request(name: &'static str, class: Class, governs: Governs, eras: (bool, bool)) -> Rule {
    Rule { name, class, governs, list: None, legacy: eras.0, modern: eras.1, notification: false }
}

const fn list(name: &'static str, of: ListOf) -> Rule {
    Rule { list: Some(of), ..request(name, Class::List, Governs::Server, BOTH) }
}

const fn notification(name: &'static str, eras: (bool, bool)) -> Rule {
    Rule { notification: true, ..request(name, Class::Control, Governs::Server, eras) }
}

const LEGACY: (bool, bool) = (true, false);
const MODERN: (bool, bool) = (false, true);
const BOTH: (bool, bool) = (true, true);

/// `GET` on the endpoint: the session's stream.
pub static SESSION_STREAM: Rule =
    request("session/stream", Class::Control, Governs::Server, LEGACY);
/// `DELETE` on the endpoint: the end of the session.
pub static SESSION_END: Rule = request("session/end", Class::Control, Governs::Server, LEGACY);
/// A posted answer to a request of the server.
pub static CLIENT_RESPONSE: Rule =
    request("client/response", Class::Control, Governs::Server, LEGACY);

/// Every method that a client may send, sorted by name.
pub static METHODS: &[Rule] = &[
    request("completion/complete", Class::Read, Governs::Reference, BOTH),
    request("initialize", Class::Control, Governs::Server, LEGACY),
    request("logging/setLevel", Class::Control, Governs::Server, LEGACY),
    notification("notifications/cancelled", BOTH),
    notification("notifications/initialized", LEGACY),
    notification("notifications/progress", BOTH),
    notification("notifications/roots/list_changed", LEGACY),
    notification("notifications/tasks/status", LEGACY),
    request("ping", Class::Control, Governs::Server, LEGACY),
    request("prompts/get", Class::Read, Governs::Prompt, BOTH),
    list("prompts/list", ListOf::Prompts),
    list("resources/list", ListOf::Resources),
    request("resources/read", Class::Read, Governs::Resource, BOTH),
    request("resources/subscribe", Class::Read, Governs::Resource, LEGACY),
    list("resources/templates/list", ListOf::Templates),
    request("resources/unsubscribe", Class::Read, Governs::Resource, LEGACY),
    request("server/discover", Class::Control, Governs::Server, MODERN),
    request("subscriptions/listen", Class::Read, Governs::Subscriptions, MODERN),
    request("tasks/cancel", Class::Write, Governs::Task, BOTH),
    request("tasks/get", Class::Read, Governs::Task, BOTH),
    request("tasks/list", Class::List, Governs::Server, LEGACY),
    request("tasks/result", Class::Read, Governs::Task, LEGACY),
    request("tasks/update", Class::Write, Governs::Task, MODERN),
    request("tools/call", Class::Execute, Governs::Tool, BOTH),
    list("tools/list", ListOf::Tools),
];

/// A method name, resolved against the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Method {
    /// A row of [`METHODS`] or one of the three messages without a method.
    Known(&'static Rule),
    /// Anything else; refused unless the policy schema names it.
    Vendor(Box<str>),
}

impl Method {
    /// Looks a name up, byte for byte.
    pub fn parse(name: &str) -> Self {
        match METHODS.binary_search_by(|rule| rule.name.cmp(name)) {
            Ok(index) => match METHODS.get(index) {
                Some(rule) => Self::Known(rule),
                None => Self::Vendor(name.into()),
            },
            Err(_) => Self::Vendor(name.into()),
        }
    }

    /// Looks up a name as [`Method::name`] tells it, ours for messages without one included.
    pub fn named(name: &str) -> Self {
        let ours = [&SESSION_STREAM, &SESSION_END, &CLIENT_RESPONSE];
        match ours.into_iter().find(|rule| rule.name == name) {
            Some(rule) => Self::Known(rule),
            None => Self::parse(name),
        }
    }

    /// The name on the wire (ours for `GET`, `DELETE` and posted responses).
    pub fn name(&self) -> &str {
        match self {
            Self::Known(rule) => rule.name,
            Self::Vendor(name) => name,
        }
    }

    /// The table row, if the method is one that MCP defines.
    pub fn rule(&self) -> Option<&'static Rule> {
        match self {
            Self::Known(rule) => Some(rule),
            Self::Vendor(_) => None,
        }
    }

    /// The list that an answer to this method holds.
    pub fn list(&self) -> Option<ListOf> {
        self.rule().and_then(|rule| rule.list)
    }
}
