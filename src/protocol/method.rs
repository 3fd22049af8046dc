//! The methods of MCP that a client may send, and those that a server may send to its client, each
//! with its class and what it touches.
//!
//! One table a side serves the decoder (where is the target?), the policy schema (which actions
//! exist?) and the ledger (does the call need an intent?). The sides don't share a table: a client
//! that sends `sampling/createMessage` sends an unknown method, and so does a server that sends
//! `tools/call`. Sources: `schema.ts` of each revision, 2024-11-05 to 2026-07-28, and the tasks
//! extension.

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
    /// The caller: it is a method of the server's side, and what is asked is in
    /// [`super::mcp::server::Asks`].
    Caller,
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
    /// The action that policies know it by: the name, unless the other side has a method of that
    /// name.
    pub action: &'static str,
    /// How far it can reach. For `tools/call` this is the worst case; policy knows the tool's own
    /// class.
    pub class: Class,
    /// What it touches.
    pub governs: Governs,
    /// The list in its answer.
    pub list: Option<ListOf>,
    /// Exists in revisions up to 2025-11-25.
    pub legacy: bool,
    /// Exists in revision 2026-07-28 or its extensions; a request of a server exists there only
    /// within a result (`inputRequests`).
    pub modern: bool,
    /// Is a notification (has no id).
    pub notification: bool,
}

const fn request(name: &'static str, class: Class, governs: Governs, eras: (bool, bool)) -> Rule {
    Rule {
        name,
        action: name,
        class,
        governs,
        list: None,
        legacy: eras.0,
        modern: eras.1,
        notification: false,
    }
}

const fn list(name: &'static str, of: ListOf) -> Rule {
    Rule { list: Some(of), ..request(name, Class::List, Governs::Server, BOTH) }
}

const fn notification(name: &'static str, eras: (bool, bool)) -> Rule {
    Rule { notification: true, ..request(name, Class::Control, Governs::Server, eras) }
}

const fn ask(name: &'static str, action: &'static str, class: Class, eras: (bool, bool)) -> Rule {
    Rule { action, ..request(name, class, Governs::Caller, eras) }
}

const fn notice(name: &'static str, eras: (bool, bool)) -> Rule {
    Rule { governs: Governs::Caller, ..notification(name, eras) }
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

/// Every method that a server may send to its client, sorted by name. Policies have an action for
/// each request; notifications belong to the stream that was permitted.
pub static SERVER_METHODS: &[Rule] = &[
    ask("elicitation/create", "elicitation/create", Class::Write, BOTH),
    notice("notifications/cancelled", BOTH),
    notice("notifications/elicitation/complete", LEGACY),
    notice("notifications/message", BOTH),
    notice("notifications/progress", BOTH),
    notice("notifications/prompts/list_changed", BOTH),
    notice("notifications/resources/list_changed", BOTH),
    notice("notifications/resources/updated", BOTH),
    notice("notifications/subscriptions/acknowledged", MODERN),
    notice("notifications/tasks", MODERN),
    notice("notifications/tasks/status", LEGACY),
    notice("notifications/tools/list_changed", BOTH),
    ask("ping", "client/ping", Class::Control, LEGACY),
    ask("roots/list", "roots/list", Class::Read, BOTH),
    ask("sampling/createMessage", "sampling/createMessage", Class::Execute, BOTH),
    ask("tasks/cancel", "client/tasks/cancel", Class::Write, LEGACY),
    ask("tasks/get", "client/tasks/get", Class::Read, LEGACY),
    ask("tasks/list", "client/tasks/list", Class::Read, LEGACY),
    ask("tasks/result", "client/tasks/result", Class::Read, LEGACY),
];

/// A method name, resolved against the table of the side that sent it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Method {
    /// A row of [`METHODS`] or [`SERVER_METHODS`], or one of the three messages without a method.
    Known(&'static Rule),
    /// Anything else; refused unless the policy schema names it.
    Vendor(Box<str>),
}

impl Method {
    /// Looks up what a client sent, byte for byte.
    pub fn parse(name: &str) -> Self {
        Self::look_up(METHODS, name)
    }

    /// Looks up what a server sent, byte for byte.
    pub fn of_server(name: &str) -> Self {
        Self::look_up(SERVER_METHODS, name)
    }

    fn look_up(table: &'static [Rule], name: &str) -> Self {
        let found = table.binary_search_by(|rule| rule.name.cmp(name)).ok();
        match found.and_then(|index| table.get(index)) {
            Some(rule) => Self::Known(rule),
            None => Self::Vendor(name.into()),
        }
    }

    /// Looks up a name as [`Method::action`] tells it, whichever side's, ours for messages without
    /// one included.
    pub fn named(name: &str) -> Self {
        let ours = [&SESSION_STREAM, &SESSION_END, &CLIENT_RESPONSE];
        let others = ours.into_iter().chain(SERVER_METHODS);
        match Self::parse(name) {
            Self::Known(rule) => Self::Known(rule),
            Self::Vendor(name) => match others.into_iter().find(|rule| rule.action == &*name) {
                Some(rule) => Self::Known(rule),
                None => Self::Vendor(name),
            },
        }
    }

    /// The name in policies and on record: as on the wire, unless the other side has a method of
    /// that name (`client/ping` is the `ping` of a server). So it tells the side, too.
    pub fn action(&self) -> &str {
        match self {
            Self::Known(rule) => rule.action,
            Self::Vendor(name) => name,
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
