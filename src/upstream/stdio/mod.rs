//! Servers that speak on standard input and output, behind the interface of servers that speak HTTP.
//!
//! [`Bridge`] answers as a good Streamable HTTP server does. A legacy session has a process of its own, from
//! `initialize` to `DELETE`, so that nothing of it can reach another. The stateless revisions have no
//! sessions: there each caller has a process, or all share one where the configuration says so, and callers
//! are told apart by the numbers that [`message`] puts in place of their ids.
//!
//! A request is answered by one document where the answer comes first and soon, so that an error can still
//! have its HTTP status; and by a stream of events where something comes before it, or where it takes longer.
//!
//! What a process is made of, and how it ends, is in [`process`].

mod answer;
mod backoff;
mod calls;
mod connection;
mod environment;
mod lines;
mod message;
mod outbox;
mod process;
mod table;

use std::{ffi::OsString, fmt, sync::Arc, time::Duration};

use bytes::Bytes;
use data_encoding::HEXLOWER;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use ring::rand::{SecureRandom, SystemRandom};
use tokio::time::{sleep, timeout};

use self::{
    answer::Answer,
    calls::Listening,
    connection::{Connection, End, Manner, Over},
    outbox::{Inbox, Part},
    process::Process,
    table::{Key, Running, Table},
};
use super::{
    Error, SetupError,
    settings::{Command, Processes},
};
use crate::protocol::{Call, Era, Id, Kind};

pub(super) use answer::Body;
pub use table::Census;

/// How long an answer may take to be sent as one document; later it is a stream.
const HOLD: Duration = Duration::from_secs(1);

const NO_SESSION: &str = r#"{"code":-32000,"message":"Mcp-Session-Id is missing"}"#;
const UNKNOWN_SESSION: &str = r#"{"code":-32001,"message":"Session not found"}"#;
const STREAM_TAKEN: &str = r#"{"code":-32000,"message":"Only one stream is allowed per session"}"#;
const CANCELLED: &str = r#"{"code":-32800,"message":"Request cancelled"}"#;
const NO_METHOD: &str = r#"{"code":-32000,"message":"Method not allowed"}"#;
const STATELESS_ONLY: &str = r#"{"code":-32022,"message":"Unsupported protocol version","data":{"supported":["2026-07-28"]}}"#;

/// One command, and the processes that run it.
pub(super) struct Bridge {
    server: Arc<str>,
    command: Command,
    /// Holds secrets.
    environment: Vec<(OsString, OsString)>,
    table: Table,
}

impl Bridge {
    /// Starts nothing yet.
    pub(super) fn new(server: &str, command: Command) -> Result<Arc<Self>, SetupError> {
        let environment = environment::read(&command.environment)?;
        let table = Table::new(command.max_processes, command.max_processes_per_caller);
        Ok(Arc::new(Self { server: server.into(), command, environment, table }))
    }

    /// Sends a message of `owner`; `call` is what `body` was decoded to.
    pub(super) async fn send(
        self: &Arc<Self>,
        owner: &str,
        call: &Call,
        headers: &HeaderMap,
        body: Bytes,
    ) -> Result<Answer, Error> {
        match (call.era, &call.session) {
            (Era::Modern, _) => self.stateless(owner, call, headers, body).await,
            (Era::Legacy, Some(session)) => {
                match self.table.find(&Key::Session(session.expose().into())) {
                    Some(connection) => self.in_session(&connection, call, headers, body).await,
                    None => Ok(answer::fault(StatusCode::NOT_FOUND, call.id(), UNKNOWN_SESSION)),
                }
            }
            (Era::Legacy, None) => match &call.kind {
                Kind::Request(id) if call.opens_session() => {
                    self.open_session(owner, call, id, headers, body).await
                }
                Kind::Request(_)
                | Kind::Notification
                | Kind::Response(_)
                | Kind::Stream
                | Kind::End
                | Kind::Operation => {
                    Ok(answer::fault(StatusCode::BAD_REQUEST, call.id(), NO_SESSION))
                }
            },
            // Processes speak MCP.
            (Era::V03 | Era::V10 | Era::Http, _) => {
                Ok(answer::fault(StatusCode::METHOD_NOT_ALLOWED, call.id(), NO_METHOD))
            }
        }
    }

    /// What runs, and what has crashed so far.
    pub(super) fn census(&self) -> Census {
        self.table.census()
    }

    /// Ends all processes, and waits for that. None is started any more.
    pub(super) async fn close(&self) {
        self.table.close().await;
    }

    /// A new session, with a process that outlives this call only if it opens one.
    async fn open_session(
        self: &Arc<Self>,
        owner: &str,
        call: &Call,
        id: &Id,
        headers: &HeaderMap,
        body: Bytes,
    ) -> Result<Answer, Error> {
        match self.command.processes {
            Processes::PerSession => {}
            Processes::Shared => {
                return Ok(answer::fault(StatusCode::BAD_REQUEST, Some(id), STATELESS_ONLY));
            }
        }
        let session = session_id()?;
        let connection =
            self.start(Key::Session(session.as_str().into()), owner, Manner::Session).await?;
        let opening = Opening(Some(Arc::clone(&connection)));
        let Asked { mut answer, error } = self
            .ask(&connection, call, id, headers, &body, Listening::Answer)
            .await
            .map_err(failed)?;
        if error.is_none() {
            let session = HeaderValue::from_str(&session).map_err(|it| Error::Failed(it.into()))?;
            answer.headers_mut().insert("mcp-session-id", session);
            opening.done();
        }
        Ok(answer)
    }

    async fn in_session(
        &self,
        connection: &Arc<Connection>,
        call: &Call,
        headers: &HeaderMap,
        body: Bytes,
    ) -> Result<Answer, Error> {
        let done = match &call.kind {
            Kind::Request(id) => {
                let listening = Listening::Everything;
                self.ask(connection, call, id, headers, &body, listening)
                    .await
                    .map(|asked| asked.answer)
            }
            Kind::Notification if call.method.name() == "notifications/cancelled" => {
                connection.cancel(&body).await.map(accepted).map_err(Into::into)
            }
            Kind::Notification | Kind::Response(_) => {
                connection.notify(&body).await.map(accepted).map_err(Into::into)
            }
            Kind::Stream => Ok(match connection.stream() {
                Ok(inbox) => answer::events(None, inbox, None),
                Err(connection::Taken) => answer::fault(StatusCode::CONFLICT, None, STREAM_TAKEN),
            }),
            Kind::End => {
                connection.end(End::Asked);
                Ok(answer::bare(StatusCode::NO_CONTENT))
            }
            Kind::Operation => Ok(answer::fault(StatusCode::METHOD_NOT_ALLOWED, None, NO_METHOD)),
        };
        match done {
            Err(Fault::Over(Over)) => {
                Ok(answer::fault(StatusCode::NOT_FOUND, call.id(), UNKNOWN_SESSION))
            }
            done => done.map_err(failed),
        }
    }

    async fn stateless(
        self: &Arc<Self>,
        owner: &str,
        call: &Call,
        headers: &HeaderMap,
        body: Bytes,
    ) -> Result<Answer, Error> {
        let (key, manner) = match self.command.processes {
            Processes::PerSession => (Key::Caller(owner.into()), Manner::Caller),
            Processes::Shared => (Key::Everybody, Manner::Everybody),
        };
        let Kind::Request(id) = &call.kind else {
            // Cancellation is disconnection here, and what else a caller may have to say is for its own
            // process, if there is one.
            let own = self.table.find(&key).filter(|_| manner == Manner::Caller);
            return match (&call.kind, own) {
                (Kind::Notification, Some(own))
                    if call.method.name() != "notifications/cancelled" =>
                {
                    let _ = own.notify(&body).await;
                    Ok(accepted(()))
                }
                (Kind::Notification, _) => Ok(accepted(())),
                (
                    Kind::Request(_)
                    | Kind::Response(_)
                    | Kind::Stream
                    | Kind::End
                    | Kind::Operation,
                    _,
                ) => Ok(answer::fault(StatusCode::METHOD_NOT_ALLOWED, None, NO_METHOD)),
            };
        };
        let listening = if call.method.name() == "subscriptions/listen" {
            Listening::Own
        } else {
            Listening::Everything
        };
        let ask = async || {
            let connection = self.start(key.clone(), owner, manner).await?;
            self.ask(&connection, call, id, headers, &body, listening).await
        };
        let asked = match ask().await {
            // It went before it got the call; the next one is new.
            Err(Fault::Over(Over)) => ask().await,
            asked => asked,
        };
        asked.map(|asked| asked.answer).map_err(failed)
    }

    /// Sends a request and waits for the head of its answer.
    async fn ask(
        &self,
        connection: &Arc<Connection>,
        call: &Call,
        id: &Id,
        headers: &HeaderMap,
        body: &Bytes,
        listening: Listening,
    ) -> Result<Asked, Fault> {
        let takes_events = listening != Listening::Answer && accepts(headers, "text/event-stream");
        let takes_documents = !takes_events || accepts(headers, "application/json");
        let listening = if takes_events { listening } else { Listening::Answer };
        // What a server is asked for first can't be cancelled (MCP 2026-07-28 `basic/patterns/cancellation`).
        let cancels = connection.is_stateless() && call.method.name() != "server/discover";
        let (ticket, mut inbox) = connection.request(id.clone(), body, listening, cancels).await?;
        let first = self.first(connection, &mut inbox, takes_events).await?;
        Ok(match first {
            Some(Part::Unreadable) => return Err(answer::unreadable().into()),
            Some(Part::End) => {
                Asked { answer: answer::fault(StatusCode::OK, Some(id), CANCELLED), error: None }
            }
            Some(Part::Answer(message, error)) if takes_documents => {
                Asked { answer: answer::document(answer::status(call, error), message), error }
            }
            first => Asked { answer: answer::events(first, inbox, Some(ticket)), error: None },
        })
    }

    /// What comes first; `None` if nothing comes for so long that the answer has to begin without.
    async fn first(
        &self,
        connection: &Connection,
        inbox: &mut Inbox,
        takes_events: bool,
    ) -> Result<Option<Part>, Error> {
        let ended = || Error::Failed(Over.into());
        if !connection.is_up() {
            tokio::select! {
                part = inbox.take() => return part.map(Some).ok_or_else(ended),
                () = connection.up() => {}
                () = sleep(self.command.start_timeout) => {
                    connection.end(End::Broken);
                    return Err(Error::Silent);
                }
            }
        }
        let part = if takes_events {
            let Ok(part) = timeout(HOLD, inbox.take()).await else { return Ok(None) };
            part
        } else {
            inbox.take().await
        };
        part.map(Some).ok_or_else(ended)
    }

    /// A process that takes calls: one that runs, or a new one, for which another may have to go.
    async fn start(
        self: &Arc<Self>,
        key: Key,
        owner: &str,
        manner: Manner,
    ) -> Result<Arc<Connection>, Error> {
        match self.try_start(key.clone(), owner, manner) {
            Err(Error::Full) if self.table.make_room().await => self.try_start(key, owner, manner),
            done => done,
        }
    }

    fn try_start(
        self: &Arc<Self>,
        key: Key,
        owner: &str,
        manner: Manner,
    ) -> Result<Arc<Connection>, Error> {
        let start = || {
            let (connection, unread) = Connection::new(manner);
            let (server, command) = (&self.server, &self.command);
            let process = Process::start(server, command, &self.environment, &connection, unread)?;
            Ok((connection, process))
        };
        let bridge = Arc::clone(self);
        self.table.start(key, owner, start, |running, process| {
            tokio::spawn(async move { bridge.follow(&running, process).await });
        })
    }

    /// Sees a process to its end.
    async fn follow(&self, running: &Running, process: Process) {
        let ended = process.run(running.connection(), self.command.unused_timeout).await;
        let status = ended.status.map(|status| status.to_string()).unwrap_or_default();
        if ended.crashed {
            tracing::warn!(upstream = &*self.server, status, "process ended by itself");
        } else {
            tracing::info!(upstream = &*self.server, status, "process ended");
        }
        self.table.forget(running, &ended);
    }
}

impl fmt::Debug for Bridge {
    /// Without the environment.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bridge").field("command", &self.command).finish_non_exhaustive()
    }
}

/// A request whose answer has begun.
struct Asked {
    answer: Answer,
    /// The code, if it is an error that came as a document.
    error: Option<i64>,
}

/// Ends a process when it is dropped, unless its session has been opened.
struct Opening(Option<Arc<Connection>>);

impl Opening {
    fn done(mut self) {
        self.0 = None;
    }
}

impl Drop for Opening {
    fn drop(&mut self) {
        if let Some(connection) = &self.0 {
            connection.end(End::Asked);
        }
    }
}

/// Why a request was not answered.
#[derive(Debug, thiserror::Error)]
enum Fault {
    /// The process had ended before it got the request.
    #[error(transparent)]
    Over(#[from] Over),
    #[error(transparent)]
    Other(#[from] Error),
}

impl From<connection::Error> for Fault {
    fn from(error: connection::Error) -> Self {
        match error {
            connection::Error::Over(over) => over.into(),
            connection::Error::Unreadable(error) => Error::Failed(error.into()).into(),
        }
    }
}

fn failed(fault: Fault) -> Error {
    match fault {
        Fault::Over(over) => Error::Failed(over.into()),
        Fault::Other(error) => error,
    }
}

fn accepted((): ()) -> Answer {
    answer::bare(StatusCode::ACCEPTED)
}

/// Whether the caller takes an answer of this media type. One who doesn't say takes anything.
fn accepts(headers: &HeaderMap, media: &str) -> bool {
    let mut ranges = headers.get_all(header::ACCEPT).iter().peekable();
    if ranges.peek().is_none() {
        return true;
    }
    let ranges = ranges.filter_map(|value| value.to_str().ok()).flat_map(|it| it.split(','));
    let names = ranges.filter_map(|range| range.split(';').next()).map(str::trim);
    let (group, _) = media.split_once('/').unwrap_or((media, ""));
    names.into_iter().any(|name| {
        let whole_group = name.split_once('/').is_some_and(|(of, any)| of == group && any == "*");
        name.eq_ignore_ascii_case(media) || name == "*/*" || whole_group
    })
}

/// 128 random bits: whoever knows the id of a session is taken for its client.
fn session_id() -> Result<String, Error> {
    let mut bits = [0; 16];
    let unavailable = |_| Error::Unreachable("the system gives no random numbers".into());
    SystemRandom::new().fill(&mut bits).map_err(unavailable)?;
    Ok(HEXLOWER.encode(&bits))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_caller_takes_is_read_from_its_accept() {
        for (accept, events, json) in [
            (&[][..], true, true),
            (&["*/*"], true, true),
            (&["application/json, text/event-stream"], true, true),
            (&["application/json", "text/event-stream"], true, true),
            (&["text/event-stream;q=0.5"], true, false),
            (&["Application/JSON"], false, true),
            (&["text/*"], true, false),
            (&["application/*, image/png"], false, true),
            (&["text/html"], false, false),
        ] {
            let mut headers = HeaderMap::new();
            for value in accept {
                headers.append(header::ACCEPT, HeaderValue::from_static(value));
            }
            let takes = |media| accepts(&headers, media);
            assert_eq!(takes("text/event-stream"), events, "{accept:?}");
            assert_eq!(takes("application/json"), json, "{accept:?}");
        }
    }

    #[test]
    fn session_ids_are_new_and_legal() {
        let (one, two) = (session_id().expect("an id"), session_id().expect("an id"));
        assert!(one != two && one.len() == 32);
        assert!(crate::protocol::SessionId::parse(&one).is_some());
    }
}
