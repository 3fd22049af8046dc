//! The methods of MCP that a client may send, those that a server may send to its client, those of
//! A2A that an agent may send to another, and those of plain HTTP, each with its class and what it
//! touches.
//!
//! One table a side serves the decoder (where is the target?), the policy schema (which actions
//! exist?) and the ledger (does the call need an intent?). The sides don't share a table: a client
//! that sends `sampling/createMessage` sends an unknown method, and so does a server that sends
//! `tools/call`; `tasks/get` is another method on an A2A endpoint. Sources: `schema.ts` of each
//! revision of MCP, 2024-11-05 to 2026-07-28, and the tasks extension; A2A 0.3 §7 and 1.0
//! `a2a.proto`.

use super::{Era, Protocol};

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
    /// `params.message` of A2A: the tasks that it goes on with or refers to, or a new one of the
    /// agent.
    Message,
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
    /// name. Both spellings of an operation of A2A have the later one. Of plain HTTP it is what is
    /// no operation that policies have a name for.
    pub action: &'static str,
    /// How far it can reach. For `tools/call` this is the worst case; policy knows the tool's own
    /// class.
    pub class: Class,
    /// What it touches.
    pub governs: Governs,
    /// The list in its answer.
    pub list: Option<ListOf>,
    /// Where it exists by this name. In the modern era a request of a server exists only within a
    /// result (`inputRequests`). In A2A it is JSON-RPC that tells two names apart: over REST the
    /// calls of both eras have the later row.
    pub eras: &'static [Era],
    /// Is a notification (has no id).
    pub notification: bool,
}

impl Rule {
    /// Whether messages of an era can have this name.
    pub fn exists_in(&self, era: Era) -> bool {
        self.eras.contains(&era)
    }

    /// The protocol that it is a method of.
    pub fn protocol(&self) -> Protocol {
        self.eras.first().map_or(Protocol::Mcp, |era| era.protocol())
    }
}

const fn request(name: &'static str, class: Class, governs: Governs, eras: &'static [Era]) -> Rule {
    Rule { name, action: name, class, governs, list: None, eras, notification: false }
}

const fn list(name: &'static str, of: ListOf) -> Rule {
    Rule { list: Some(of), ..request(name, Class::List, Governs::Server, BOTH) }
}

const fn notification(name: &'static str, eras: &'static [Era]) -> Rule {
    Rule { notification: true, ..request(name, Class::Control, Governs::Server, eras) }
}

const fn ask(name: &'static str, action: &'static str, class: Class, eras: &'static [Era]) -> Rule {
    Rule { action, ..request(name, class, Governs::Caller, eras) }
}

const fn notice(name: &'static str, eras: &'static [Era]) -> Rule {
    Rule { governs: Governs::Caller, ..notification(name, eras) }
}

/// An operation by the name that A2A 0.3 has for it.
const fn earlier(name: &'static str, later: Rule) -> Rule {
    Rule { action: later.action, ..request(name, later.class, later.governs, V03) }
}

/// A method of plain HTTP, on what no fragment of the schema declares.
const fn web(name: &'static str, action: &'static str, class: Class) -> Rule {
    Rule { action, ..request(name, class, Governs::Server, HTTP) }
}

const LEGACY: &[Era] = &[Era::Legacy];
const MODERN: &[Era] = &[Era::Modern];
const BOTH: &[Era] = &[Era::Legacy, Era::Modern];
const V03: &[Era] = &[Era::V03];
const V10: &[Era] = &[Era::V10];
const HTTP: &[Era] = &[Era::Http];

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

/// The operations of A2A, by the names that version 1.0 has for them.
pub mod operation {
    use super::{Class, Governs, Rule, V10, request};

    /// Sends a message and waits for what comes of it.
    pub const SEND: Rule = request("SendMessage", Class::Execute, Governs::Message, V10);
    /// Sends a message and follows what comes of it.
    pub const STREAM: Rule = request("SendStreamingMessage", Class::Execute, Governs::Message, V10);
    /// Reads a task.
    pub const GET: Rule = request("GetTask", Class::Read, Governs::Task, V10);
    /// Lists tasks.
    pub const LIST: Rule = request("ListTasks", Class::List, Governs::Server, V10);
    /// Cancels a task.
    pub const CANCEL: Rule = request("CancelTask", Class::Write, Governs::Task, V10);
    /// Follows a task.
    pub const SUBSCRIBE: Rule = request("SubscribeToTask", Class::Read, Governs::Task, V10);
    /// Has the agent tell an address what becomes of a task.
    pub const PUSH_CREATE: Rule =
        request("CreateTaskPushNotificationConfig", Class::Write, Governs::Task, V10);
    /// Reads one such address.
    pub const PUSH_GET: Rule =
        request("GetTaskPushNotificationConfig", Class::Read, Governs::Task, V10);
    /// Reads all such addresses of a task.
    pub const PUSH_LIST: Rule =
        request("ListTaskPushNotificationConfigs", Class::Read, Governs::Task, V10);
    /// Takes such an address away.
    pub const PUSH_DELETE: Rule =
        request("DeleteTaskPushNotificationConfig", Class::Write, Governs::Task, V10);
    /// The card for callers that are known.
    pub const EXTENDED_CARD: Rule =
        request("GetExtendedAgentCard", Class::Control, Governs::Server, V10);
    /// The public card, a plain `GET`; the name is ours.
    pub const CARD: Rule = request("GetAgentCard", Class::Control, Governs::Server, V10);
}

/// Every method that an agent may send to another over JSON-RPC, sorted by name.
pub static AGENT_METHODS: &[Rule] = &[
    operation::CANCEL,
    operation::PUSH_CREATE,
    operation::PUSH_DELETE,
    operation::EXTENDED_CARD,
    operation::GET,
    operation::PUSH_GET,
    operation::PUSH_LIST,
    operation::LIST,
    operation::SEND,
    operation::STREAM,
    operation::SUBSCRIBE,
    earlier("agent/getAuthenticatedExtendedCard", operation::EXTENDED_CARD),
    earlier("message/send", operation::SEND),
    earlier("message/stream", operation::STREAM),
    earlier("tasks/cancel", operation::CANCEL),
    earlier("tasks/get", operation::GET),
    earlier("tasks/pushNotificationConfig/delete", operation::PUSH_DELETE),
    earlier("tasks/pushNotificationConfig/get", operation::PUSH_GET),
    earlier("tasks/pushNotificationConfig/list", operation::PUSH_LIST),
    earlier("tasks/pushNotificationConfig/set", operation::PUSH_CREATE),
    earlier("tasks/resubscribe", operation::SUBSCRIBE),
];

/// Every method of HTTP that is served on routes of plain HTTP, sorted by name. What is safe (RFC 9110
/// §9.2.1) reads, everything else writes: what a web API makes of a `POST` is for policies to say.
pub static WEB_METHODS: &[Rule] = &[
    web("DELETE", "DELETE.other", Class::Write),
    web("GET", "GET.other", Class::Read),
    web("HEAD", "HEAD.other", Class::Read),
    web("PATCH", "PATCH.other", Class::Write),
    web("POST", "POST.other", Class::Write),
    web("PUT", "PUT.other", Class::Write),
];

/// A method name, resolved against the table of the side that sent it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Method {
    /// A row of [`METHODS`], [`SERVER_METHODS`], [`AGENT_METHODS`] or [`WEB_METHODS`], or one of the
    /// messages without a method.
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

    /// Looks up what an agent sent to another over JSON-RPC, byte for byte.
    pub fn of_agent(name: &str) -> Self {
        Self::look_up(AGENT_METHODS, name)
    }

    /// Looks up a method of plain HTTP, byte for byte.
    pub fn of_web(name: &str) -> Self {
        Self::look_up(WEB_METHODS, name)
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
        let ours = [&SESSION_STREAM, &SESSION_END, &CLIENT_RESPONSE, &operation::CARD];
        let others = ours.into_iter().chain(SERVER_METHODS).chain(AGENT_METHODS);
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

    /// Whether it only makes two sides known to each other: handshakes and what keeps a connection, cards of agents,
    /// and lists of what there is, by name. It reaches nothing that a call would be needed for.
    pub fn introduces(&self) -> bool {
        self.rule().is_some_and(|rule| rule.class == Class::Control || rule.list.is_some())
    }

    /// The table row, if the method is one that the protocol defines.
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
