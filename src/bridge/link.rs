//! [`Link`]: what the bridge keeps of its client's session, and the messages that are under way.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use http::{
    HeaderMap, HeaderName, HeaderValue, Method,
    header::{ACCEPT, CONTENT_TYPE, USER_AGENT},
};
use tokio::{
    sync::watch,
    task::{AbortHandle, JoinSet},
    time::timeout,
};

use super::{
    failure::Failure,
    message::{Id, Outgoing},
    mirrors::Mirrors,
    output::Output,
};
use crate::upstream::{self, Answer, Unjudged};

const METHOD: HeaderName = HeaderName::from_static("mcp-method");
const NAME: HeaderName = HeaderName::from_static("mcp-name");
const SESSION: HeaderName = HeaderName::from_static("mcp-session-id");
const VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
const LAST_EVENT: HeaderName = HeaderName::from_static("last-event-id");

/// How long later messages wait for one that opens the session: clients that don't wait for it themselves
/// would be told that they have none.
const OPENING: Duration = Duration::from_secs(30);

/// The client's side of one server.
pub(super) struct Link {
    pub(super) server: Unjudged,
    pub(super) output: Output,
    pub(super) mirrors: Mirrors,
    session: Mutex<Session>,
    under_way: Mutex<HashMap<Id, UnderWay>>,
    /// Messages under way that open the session.
    opening: watch::Sender<usize>,
}

#[derive(Default)]
struct Session {
    /// What the server calls it.
    id: Option<HeaderValue>,
    /// The revision that was negotiated.
    negotiated: Option<HeaderValue>,
    /// The revision that the latest modern request named.
    modern: Option<HeaderValue>,
    /// Reads the session's own stream.
    listener: Option<AbortHandle>,
}

/// A request without an answer yet.
#[derive(Default)]
struct UnderWay {
    task: Option<AbortHandle>,
    modern: bool,
    /// The client has cancelled it, or listens only: nobody waits for its answer at the end.
    released: bool,
    /// It came on another stream than its own.
    answered: bool,
}

impl Link {
    pub(super) fn new(server: Unjudged, output: Output) -> Self {
        Self {
            server,
            output,
            mirrors: Mirrors::default(),
            session: Mutex::default(),
            under_way: Mutex::default(),
            opening: watch::Sender::new(0),
        }
    }

    /// Sends a line of the client on its way.
    pub(super) async fn take(self: &Arc<Self>, line: Vec<u8>, tasks: &mut JoinSet<()>) {
        let Some(message) = Outgoing::read(&line) else {
            tracing::warn!("a line that is no single JSON-RPC message");
            return self.output.line(&Failure::NoMessage.answer(None)).await;
        };
        if message.cancels.as_ref().is_some_and(|id| self.cancel(id)) {
            return;
        }
        let opening = Opening::of(self, &message);
        let link = Arc::clone(self);
        let line = Bytes::from(line);
        let Some(id) = message.id.clone() else {
            let listens = message.is("notifications/initialized");
            let task = tasks.spawn(async move {
                let accepted = link.notify(&message, line).await;
                drop(opening);
                if accepted && listens {
                    link.listen().await;
                }
            });
            if listens {
                self.session().listener = Some(task);
            }
            return;
        };
        if let Some(version) = &message.version {
            self.session().modern = Some(version.clone());
        }
        if message.is("initialize") {
            self.forget_session();
        }
        let under_way = UnderWay {
            modern: message.version.is_some(),
            released: message.is("subscriptions/listen"),
            ..UnderWay::default()
        };
        self.under_way().insert(id.clone(), under_way);
        let guard = Guard { link, id: id.clone() };
        let task = tasks.spawn(async move {
            let (link, id) = (&guard.link, &guard.id);
            let outcome = link.request(&message, id, line).await;
            drop(opening);
            if let Err(failure) = outcome
                && !link.has_answer(id)
            {
                tracing::warn!(%failure, method = message.method.as_deref(), "no answer");
                link.output.line(&failure.answer(Some(id))).await;
            }
        });
        if let Some(under_way) = self.under_way().get_mut(&id) {
            under_way.task = Some(task);
        }
    }

    /// Posts a message that has no answer; whether the server took it.
    async fn notify(&self, message: &Outgoing, line: Bytes) -> bool {
        let method = message.method.as_deref();
        match self.post(message, line).await {
            Ok(answer) if answer.status().is_success() => return true,
            Ok(answer) => tracing::warn!(method, status = %answer.status(), "not accepted"),
            Err(error) => tracing::warn!(method, error = %Failure::from(error), "not sent"),
        }
        false
    }

    /// Posts a message, and waits for the head of the answer.
    pub(super) async fn post(
        &self,
        message: &Outgoing,
        line: Bytes,
    ) -> Result<Answer, upstream::Error> {
        let mut headers = self.headers(message.version.as_ref());
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(ACCEPT, HeaderValue::from_static("application/json, text/event-stream"));
        let modern = message.version.is_some() || self.is_modern();
        let method = message.method.as_deref().filter(|_| modern);
        if let Some(method) = method.and_then(|method| HeaderValue::from_str(method).ok()) {
            headers.insert(METHOD, method);
        }
        if let Some(name) = message.name.clone().filter(|_| modern) {
            headers.insert(NAME, name);
        }
        if message.version.is_some() && message.is("tools/call") {
            self.mirrors.add(&mut headers, &line);
        }
        self.send(Method::POST, headers, line).await
    }

    /// Opens the session's own stream, after the event `last` if there is one.
    pub(super) async fn get(&self, last: Option<&HeaderValue>) -> Result<Answer, upstream::Error> {
        let mut headers = self.headers(None);
        headers.insert(ACCEPT, HeaderValue::from_static("text/event-stream"));
        if let Some(last) = last {
            headers.insert(LAST_EVENT, last.clone());
        }
        self.send(Method::GET, headers, Bytes::new()).await
    }

    /// Ends the session, if there is one.
    pub(super) async fn end(&self) {
        let headers = self.headers(None);
        if !headers.contains_key(SESSION) {
            return;
        }
        match self.send(Method::DELETE, headers, Bytes::new()).await {
            Ok(answer) => tracing::debug!(status = %answer.status(), "the session was ended"),
            Err(error) => {
                tracing::warn!(error = %Failure::from(error), "the session was not ended")
            }
        }
    }

    async fn send(
        &self,
        method: Method,
        headers: HeaderMap,
        body: Bytes,
    ) -> Result<Answer, upstream::Error> {
        let mut parts = http::Request::new(()).into_parts().0;
        parts.method = method;
        parts.headers = headers;
        self.server.send(parts, body).await
    }

    /// What every request has: the revision, and the session of a legacy one.
    fn headers(&self, version: Option<&HeaderValue>) -> HeaderMap {
        let mut headers = HeaderMap::with_capacity(8);
        let agent = HeaderValue::from_static(concat!("lictor/", env!("CARGO_PKG_VERSION")));
        headers.insert(USER_AGENT, agent);
        let session = self.session();
        let modern = session.modern.as_ref().filter(|_| session.negotiated.is_none());
        if let Some(version) = version {
            headers.insert(VERSION, version.clone());
            return headers;
        }
        if let Some(version) = session.negotiated.as_ref().or(modern) {
            headers.insert(VERSION, version.clone());
        }
        if let Some(id) = &session.id {
            headers.insert(SESSION, id.clone());
        }
        headers
    }

    /// Whether messages that name no revision belong to a modern one.
    fn is_modern(&self) -> bool {
        let session = self.session();
        session.modern.is_some() && session.negotiated.is_none()
    }

    /// Takes note of what the head of the answer to `initialize` says.
    pub(super) fn begin_session(&self, headers: &HeaderMap) {
        self.session().id = headers.get(SESSION).cloned();
    }

    /// Takes note of what its body says.
    pub(super) fn negotiate(&self, version: Option<HeaderValue>) {
        self.session().negotiated = version;
    }

    fn forget_session(&self) {
        let mut session = self.session();
        if let Some(listener) = session.listener.take() {
            listener.abort();
        }
        *session = Session::default();
    }

    /// Whether there is a session by that the server knows this client.
    pub(super) fn has_session(&self) -> bool {
        self.session().id.is_some()
    }

    /// Gives up on a request that the client has cancelled; whether that told the server, as closing the
    /// stream of a modern request does (MCP 2026-07-28 `basic/patterns/cancellation`).
    fn cancel(&self, id: &Id) -> bool {
        let mut all = self.under_way();
        let Some(under_way) = all.get_mut(id) else { return false };
        under_way.released = true;
        let task = under_way.task.as_ref().filter(|_| under_way.modern);
        task.map(AbortHandle::abort).is_some()
    }

    /// Takes note of an answer that came on another stream than its own.
    pub(super) fn settle(&self, id: &Id) {
        if let Some(under_way) = self.under_way().get_mut(id) {
            under_way.answered = true;
        }
    }

    /// Whether the answer to a request came on another stream than its own.
    pub(super) fn has_answer(&self, id: &Id) -> bool {
        self.under_way().get(id).is_some_and(|under_way| under_way.answered)
    }

    /// Whether the client still waits for something.
    pub(super) fn awaits(&self) -> bool {
        self.opening.borrow().gt(&0)
            || self.under_way().values().any(|it| !it.released && !it.answered)
    }

    /// Done when no message is under way that opens the session, or it has taken too long.
    pub(super) async fn opened(&self) {
        let mut opening = self.opening.subscribe();
        // The sender lives in this value, so the wait fails by time only.
        let _ = timeout(OPENING, opening.wait_for(|opening| *opening == 0)).await;
    }

    /// Done when nobody reads any more.
    pub(super) async fn unheard(&self) {
        self.output.closed().await;
    }

    fn session(&self) -> MutexGuard<'_, Session> {
        self.session.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn under_way(&self) -> MutexGuard<'_, HashMap<Id, UnderWay>> {
        self.under_way.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Ends a request's entry with its task, however that ends.
struct Guard {
    link: Arc<Link>,
    id: Id,
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.link.under_way().remove(&self.id);
    }
}

/// Holds later messages back.
struct Opening(Arc<Link>);

impl Opening {
    fn of(link: &Arc<Link>, message: &Outgoing) -> Option<Self> {
        if !message.is("initialize") && !message.is("notifications/initialized") {
            return None;
        }
        link.opening.send_modify(|opening| *opening += 1);
        Some(Self(Arc::clone(link)))
    }
}

impl Drop for Opening {
    fn drop(&mut self) {
        self.0.opening.send_modify(|opening| *opening = opening.saturating_sub(1));
    }
}
