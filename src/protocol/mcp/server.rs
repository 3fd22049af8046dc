//! What a server sends to its client: one message of a stream or document → one
//! [`ServerMessage`].
//!
//! A server can ask: for a completion of the client's model, for input of its user, for its roots.
//! Up to 2025-11-25 it sends requests on a stream; in 2026-07-28 it answers a call with what it
//! wants to know (`inputRequests`), or lets a task wait for it; and an error −32042 (2025-11-25)
//! asks the user to visit an address. All of these come out here as [`Asked`], to be judged alike.
//!
//! Refused beside what [`super::super::json`] and [`super::super::json_rpc`] refuse: a request on a
//! stream of a revision that has none there, a governed name in another spelling, parameters that
//! don't say what is asked, an address that two readers could take for two hosts, an unknown kind
//! of result, and a result that asks and makes a task at once. Unknown methods come out as
//! [`Method::Vendor`]; policy knows those that an operator declared.
//!
//! INVARIANT: a message of which [`may_ask`] says no asks for nothing and makes no task, whoever
//! reads it as JSON. That all readers of a stream read the same text is for
//! [`sse`](crate::protocol::sse::Event::clear) to see to.
//!
//! Sources: MCP 2025-11-25 `client/{sampling,elicitation,roots}`, `basic/utilities/tasks`;
//! 2026-07-28 `basic/patterns/mrtr`; the tasks extension.

use std::{borrow::Cow, cell::Cell};

use super::target;
use crate::protocol::{
    Era, Id, Method, ProgressToken,
    json::{self, Kind, Member, Value},
    json_rpc::{Answer, Message},
    spelling,
};
pub use asks::{Asks, Elicitation, Sampling};

mod asks;

#[cfg(test)]
mod tests;

/// Each request in a result costs a policy decision, so one result can't hold any number of them.
const MAX_REQUESTS: usize = 64;

/// One message of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerMessage {
    /// A request to the client, which answers it with this id.
    Request {
        /// The id, the server's own.
        id: Id,
        /// What it asks.
        asked: Asked,
    },
    /// A notification.
    Notification(Notice),
    /// The answer to a request of the client.
    Answer {
        /// The request's id; an error may lack it.
        id: Option<Id>,
        /// What the answer amounts to.
        outcome: Outcome,
    },
}

/// What a server asks of its client, on a stream or within a result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    /// The method, of the server's side.
    pub method: Method,
    /// The parameters, as far as policies look at them.
    pub asks: Asks,
}

/// A notification of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// The method, of the server's side.
    pub method: Method,
    /// Whose progress it tells, if it is progress (`notifications/progress`).
    pub progress_token: Option<ProgressToken>,
    /// The task that it tells about (`notifications/tasks`, `notifications/tasks/status`).
    pub task: Option<Box<str>>,
    /// What has to be judged before it goes on, by key: what that task waits for; and under an
    /// empty key, a notification itself that MCP doesn't define: nobody knows what it makes clients do.
    pub requests: Vec<(Box<str>, Asked)>,
}

/// What an answer amounts to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// A result that asks for nothing.
    Complete,
    /// The client has to supply something before it gets on: a result `input_required`, a task that
    /// waits for input, or an error that names addresses to visit.
    InputRequired {
        /// What is asked, by key (for an error, by position); may be empty.
        requests: Vec<(Box<str>, Asked)>,
        /// `requestState`, which the client sends back with its next try.
        state: Option<Box<str>>,
    },
    /// The work goes on as a task, which the client asks for by this id.
    Task {
        /// The server's own name for it; it may be a bearer secret.
        id: Box<str>,
    },
    /// An error that asks for nothing.
    Error,
}

/// Why a message can't be judged, and so can't be passed on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{detail}")]
pub struct Undecodable {
    /// Who waits for an answer.
    pub waits: Waits,
    /// What was wrong; never quotes the message's content.
    pub detail: Cow<'static, str>,
}

/// Who waits for an answer to a message that can't be judged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Waits {
    /// The server: it was a request with this id.
    Server(Id),
    /// The client: it was the answer to its request with this id.
    Client(Id),
    /// Nobody, or nobody that could be told.
    Nobody,
}

/// What a refusal at this level consists of.
type Detail = &'static str;

/// What a look at the keys of a message shows, which costs little.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Glance {
    /// It could ask for something, create a task, or tell anything but a result or an error; [`decode`]
    /// knows. Where it doesn't say so, [`decode`] has nothing to find.
    Asks,
    /// A result or an error.
    Answers,
    /// None of these.
    Nothing,
}

/// Looks at the keys of a message.
pub fn glance(data: &[u8]) -> Glance {
    const TELLING: &[&str] =
        &["elicitations", "inputRequests", "method", "requestState", "resultType", "task"];
    const ANSWERING: [&str; 2] = ["error", "result"];
    let answers = Cell::new(false);
    let asks = json::has_key(data, |key| {
        if key.iter().all(|byte| byte.is_ascii_graphic() && *byte != b'\\') {
            answers.set(answers.get() || ANSWERING.iter().any(|name| name.as_bytes() == key));
            TELLING.iter().any(|name| name.as_bytes().eq_ignore_ascii_case(key))
        } else {
            let key = &*json::decoded(key);
            answers.set(answers.get() || ANSWERING.contains(&key));
            TELLING.contains(&key) || spelling::is_variant(key, TELLING)
        }
    });
    match (asks, answers.get()) {
        (true, _) => Glance::Asks,
        (false, true) => Glance::Answers,
        (false, false) => Glance::Nothing,
    }
}

/// Whether a message could ask for something; see [`Glance::Asks`].
pub fn may_ask(data: &[u8]) -> bool {
    glance(data) == Glance::Asks
}

/// Decodes one message of a server, sent in a stream or document of the given era.
///
/// # Errors
/// Everything that isn't exactly one message that can be judged; see the module.
pub fn decode(data: &[u8], era: Era) -> Result<ServerMessage, Undecodable> {
    let document = json::scan(data, json::Limits::default())
        .map_err(|error| Undecodable { waits: Waits::Nobody, detail: error.to_string().into() })?;
    let message = Message::read(&document).map_err(|refused| {
        let is_call = document.root().member("method").is_some();
        let waits = match refused.id {
            Some(id) if is_call => Waits::Server(id),
            Some(id) => Waits::Client(id),
            None => Waits::Nobody,
        };
        Undecodable { waits, detail: refused.detail.into() }
    })?;
    let refuse = |waits| move |detail: Detail| Undecodable { waits, detail: detail.into() };
    match message {
        Message::Request { id, method, params } => {
            let asked = request(&method, params, era).map_err(refuse(Waits::Server(id.clone())))?;
            Ok(ServerMessage::Request { id, asked })
        }
        Message::Notification { method, params } => {
            notice(&method, params).map(ServerMessage::Notification).map_err(refuse(Waits::Nobody))
        }
        Message::Response { id, answer } => {
            let outcome = match answer {
                Answer::Result(result) => outcome(result, era),
                Answer::Error(error) => failure(error),
            };
            let waits = id.clone().map_or(Waits::Nobody, Waits::Client);
            Ok(ServerMessage::Answer { id, outcome: outcome.map_err(refuse(waits))? })
        }
    }
}

/// A request on a stream, which only legacy revisions have.
fn request(name: &str, params: Option<Value<'_>>, era: Era) -> Result<Asked, Detail> {
    match era {
        Era::Modern | Era::V03 | Era::V10 | Era::Http => {
            Err("servers send no requests in this protocol revision")
        }
        Era::Legacy => {
            let method = Method::of_server(name);
            if method.rule().is_some_and(|rule| rule.notification) {
                return Err("a notification with an id");
            }
            Ok(Asked { asks: Asks::read(&method, params)?, method })
        }
    }
}

fn notice(name: &str, params: Option<Value<'_>>) -> Result<Notice, Detail> {
    let method = Method::of_server(name);
    if method.rule().is_some_and(|rule| !rule.notification) {
        return Err("a request without an id");
    }
    let (mut progress_token, mut task, mut requests) = (None, None, vec![]);
    if method.name() == "notifications/progress" {
        let token = params.and_then(|params| params.member("progressToken"));
        progress_token = token.and_then(ProgressToken::from_value);
    }
    if matches!(method.name(), "notifications/tasks" | "notifications/tasks/status") {
        let told = Members::read(params)?;
        task = Some(told.task_id.ok_or("`taskId` is not a string")?);
        requests = told.requests;
    }
    if let Method::Vendor(_) = method {
        requests.push(("".into(), Asked { method: method.clone(), asks: Asks::Plain }));
    }
    Ok(Notice { method, progress_token, task, requests })
}

/// What a result amounts to. Whatever says that it asks is taken to ask.
fn outcome(result: Value<'_>, era: Era) -> Result<Outcome, Detail> {
    let read = Members::read(Some(result))?;
    let asks = read.asks || read.state.is_some() || read.kind.as_deref() == Some("input_required");
    let task = match (read.kind.as_deref(), era) {
        (Some("task"), _) => Some(read.task_id.ok_or("`taskId` is not a string")?),
        (Some("complete" | "input_required") | None, Era::Modern) => None,
        (Some(_), Era::Modern) | (_, Era::V03 | Era::V10 | Era::Http) => {
            return Err("an unknown `resultType`");
        }
        (_, Era::Legacy) => read.legacy_task,
    };
    match (task, asks) {
        (Some(_), true) => Err("a result that asks for input and makes a task"),
        (Some(id), false) => Ok(Outcome::Task { id }),
        (None, true) => Ok(Outcome::InputRequired { requests: read.requests, state: read.state }),
        (None, false) => Ok(Outcome::Complete),
    }
}

/// The governed members of a result, or of a notification that tells about a task.
#[derive(Default)]
struct Members {
    kind: Option<Box<str>>,
    asks: bool,
    requests: Vec<(Box<str>, Asked)>,
    state: Option<Box<str>>,
    task_id: Option<Box<str>>,
    /// `task.taskId`, the shape that legacy revisions have.
    legacy_task: Option<Box<str>>,
}

impl Members {
    fn read(object: Option<Value<'_>>) -> Result<Self, Detail> {
        const NAMES: &[&str] =
            &["error", "inputRequests", "requestState", "result", "resultType", "task", "taskId"];
        let mut read = Self::default();
        let (mut result, mut error) = (None, None);
        for Member { name, value, .. } in object.into_iter().flat_map(present) {
            match &*name {
                "resultType" => {
                    read.kind = Some(text(value, "`resultType` is not a string")?);
                }
                "inputRequests" => {
                    read.asks = true;
                    read.requests = requests(value)?;
                }
                "requestState" => {
                    read.state = Some(text(value, "`requestState` is not a string")?);
                }
                "taskId" => read.task_id = value.as_str().map(Into::into),
                "task" => read.legacy_task = task_of(value)?,
                "result" => result = Some(value),
                "error" => error = Some(value),
                other => check(other, NAMES)?,
            }
        }
        let asks_again = match (result, error) {
            _ if read.task_id.is_none() => false,
            (Some(result), _) if result_asks(result) => true,
            (_, Some(error)) => failure(error)? != Outcome::Error,
            (_, None) => false,
        };
        if asks_again {
            return Err("the outcome of a task asks for input or makes a task");
        }
        Ok(read)
    }
}

/// Whether the result of a completed task has members that a final result doesn't have.
fn result_asks(result: Value<'_>) -> bool {
    const NAMES: &[&str] = &["inputRequests", "requestState", "resultType"];
    present(result).any(|Member { name, value, .. }| match &*name {
        "resultType" => value.as_str().as_deref() != Some("complete"),
        "inputRequests" | "requestState" => true,
        other => spelling::is_variant(other, NAMES),
    })
}

/// `task.taskId`; a member `task` of any other shape is a tool's own.
fn task_of(task: Value<'_>) -> Result<Option<Box<str>>, Detail> {
    let mut id = None;
    for Member { name, value, .. } in task.members() {
        match &*name {
            "taskId" => id = value.as_str().map(Into::into),
            other => check(other, &["taskId"])?,
        }
    }
    Ok(id)
}

/// `inputRequests`: requests by key, without an envelope.
fn requests(object: Value<'_>) -> Result<Vec<(Box<str>, Asked)>, Detail> {
    if object.kind() != Kind::Object {
        return Err("`inputRequests` is not an object");
    }
    let mut requests = vec![];
    for Member { name: key, value, .. } in object.members() {
        let (mut method, mut params) = (None, None);
        for Member { name, value, .. } in value.members() {
            match &*name {
                "method" => method = value.as_str(),
                "params" if value.kind() == Kind::Object => params = Some(value),
                "params" => return Err("`params` is not an object"),
                other => check(other, &["method", "params"])?,
            }
        }
        let method = Method::of_server(&method.ok_or("an input request without a method")?);
        if method.rule().is_some_and(|rule| rule.notification || !rule.exists_in(Era::Modern)) {
            return Err("a method that can't be asked for within a result");
        }
        requests.push((key.into(), Asked { asks: Asks::read(&method, params)?, method }));
        if requests.len() > MAX_REQUESTS {
            return Err("more than 64 input requests in one result");
        }
    }
    Ok(requests)
}

/// An error; `data.elicitations[]` holds what the user is asked for (−32042, MCP 2025-11-25).
fn failure(error: Value<'_>) -> Result<Outcome, Detail> {
    let mut data = None;
    for Member { name, value, .. } in error.members() {
        match &*name {
            "data" => data = Some(value),
            other => check(other, &["code", "data"])?,
        }
    }
    let mut elicitations = None;
    for Member { name, value, .. } in data.into_iter().flat_map(present) {
        match &*name {
            "elicitations" => elicitations = Some(value),
            other => check(other, &["elicitations"])?,
        }
    }
    let Some(elicitations) = elicitations else { return Ok(Outcome::Error) };
    if elicitations.kind() != Kind::Array {
        return Err("`elicitations` is not an array");
    }
    let mut requests = vec![];
    for (position, params) in elicitations.elements().enumerate() {
        let method = Method::of_server("elicitation/create");
        let asked = Asked { asks: Asks::read(&method, Some(params))?, method };
        requests.push((position.to_string().into(), asked));
        if requests.len() > MAX_REQUESTS {
            return Err("more than 64 elicitations in one error");
        }
    }
    Ok(Outcome::InputRequired { requests, state: None })
}

/// The members of an object that aren't `null`: some servers write down what they leave out.
fn present(object: Value<'_>) -> impl Iterator<Item = Member<'_>> {
    object.members().filter(|member| member.value.kind() != Kind::Null)
}

fn text(value: Value<'_>, detail: Detail) -> Result<Box<str>, Detail> {
    value.as_str().map(Into::into).ok_or(detail)
}

fn check(key: &str, names: &[&str]) -> Result<(), Detail> {
    target::check_spelling(key, names).map_err(|(_, detail)| detail)
}
