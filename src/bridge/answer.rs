//! One request and its answer: in a document, or on a stream that may have to be resumed.

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, StatusCode, header::CONTENT_TYPE};
use tokio::time::timeout;

use super::{
    GOODBYE, LONGEST,
    failure::{self, Failure},
    link::Link,
    message::{Id, Look, Outgoing},
    stream::Cursor,
};
use crate::upstream::Body;

/// Longest part of an error page that a client is told, in characters.
const EXCERPT: usize = 200;

/// An answer that is waited for.
#[derive(Clone, Copy)]
pub(super) struct Awaited<'a> {
    pub(super) id: &'a Id,
    /// Whether it opens the session.
    pub(super) opens: bool,
    /// Whether it lists tools, for a client whose calls have headers.
    pub(super) lists: bool,
}

impl Link {
    /// Posts a request and passes on what comes of it, up to its answer.
    pub(super) async fn request(
        &self,
        message: &Outgoing,
        id: &Id,
        line: Bytes,
    ) -> Result<(), Failure> {
        let (head, body) = self.post(message, line).await?.into_parts();
        let awaited = Awaited {
            id,
            opens: message.is("initialize"),
            lists: message.version.is_some() && message.is("tools/list"),
        };
        if !head.status.is_success() {
            return self.refused(awaited, head.status, body).await;
        }
        if awaited.opens {
            self.begin_session(&head.headers);
        }
        if !is(&head.headers, "text/event-stream") {
            return self.document(awaited, head.status, body).await;
        }
        let mut cursor = Cursor::default();
        let ended = match self.events(body, &mut cursor, Some(awaited)).await {
            Ok(true) => return Ok(()),
            Ok(false) => Failure::Ended,
            Err(failure) => failure,
        };
        // Streams can be resumed up to 2025-11-25, where the server has numbered its events.
        if message.version.is_some() || cursor.last.is_none() {
            return Err(ended);
        }
        self.resume(cursor, awaited).await
    }

    async fn document(
        &self,
        awaited: Awaited<'_>,
        status: StatusCode,
        body: Body,
    ) -> Result<(), Failure> {
        let whole = collect(body).await?;
        if whole.is_empty() {
            return Err(Failure::Status(status, ", without an answer".to_owned()));
        }
        if Look::read(&whole).is_some_and(|look| look.answers(awaited.id)) {
            self.deliver(&whole, Some(awaited)).await;
            return Ok(());
        }
        let line = failure::adopted(&whole, awaited.id).ok_or(Failure::Unreadable)?;
        self.output.line(&line).await;
        Ok(())
    }

    /// A bad status: with a JSON-RPC error, that is the answer.
    async fn refused(
        &self,
        awaited: Awaited<'_>,
        status: StatusCode,
        body: Body,
    ) -> Result<(), Failure> {
        let whole = collect(body).await.unwrap_or_default();
        if let Some(line) = failure::adopted(&whole, awaited.id) {
            self.output.line(&line).await;
            return Ok(());
        }
        let said = match status {
            StatusCode::UNAUTHORIZED => ": it doesn't believe who is calling".to_owned(),
            StatusCode::NOT_FOUND if self.has_session() => {
                ": the session has ended; start anew".to_owned()
            }
            _ => excerpt(&whole),
        };
        Err(Failure::Status(status, said))
    }

    /// Passes a message of the server on; whether it is the answer that is waited for. What is no JSON-RPC
    /// would break the client, and stays here.
    pub(super) async fn deliver(&self, message: &[u8], awaited: Option<Awaited<'_>>) -> bool {
        let Some(look) = Look::read(message) else {
            tracing::warn!("the server sent what is no JSON-RPC message");
            return false;
        };
        let own = awaited.filter(|awaited| look.answers(awaited.id));
        if own.is_some_and(|own| self.has_answer(own.id)) {
            // It came on another stream, and clients take a second one for a fault.
            return true;
        }
        match (own, look.answered()) {
            (Some(Awaited { opens: true, .. }), _) => self.negotiate(look.negotiated()),
            (Some(Awaited { lists: true, .. }), _) => {
                look.result.into_iter().for_each(|result| self.mirrors.learn(result));
            }
            (Some(_), _) | (None, None) => {}
            (None, Some(other)) => self.settle(&other),
        }
        self.output.line(message).await;
        own.is_some()
    }
}

/// A whole body.
async fn collect(mut body: Body) -> Result<Bytes, Failure> {
    let mut whole = BytesMut::new();
    while let Some(part) = body.frame().await {
        let part = part?;
        if whole.len() + part.len() > LONGEST {
            return Err(Failure::Unreadable);
        }
        whole.extend_from_slice(&part);
    }
    Ok(whole.freeze())
}

/// Reads what is left of a body whose end is near, so that its connection can be used again.
pub(super) async fn finish(mut body: Body) {
    let rest = async { while let Some(Ok(_)) = body.frame().await {} };
    // Otherwise it is closed.
    let _ = timeout(GOODBYE, rest).await;
}

/// Whether a body is of this media type.
pub(super) fn is(headers: &HeaderMap, essence: &str) -> bool {
    let value = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let named = value.and_then(|value| value.split(';').next()).map(str::trim);
    named.is_some_and(|named| named.eq_ignore_ascii_case(essence))
}

fn excerpt(page: &[u8]) -> String {
    let text = String::from_utf8_lossy(page);
    let words: Vec<&str> = text.split_whitespace().collect();
    match words.join(" ") {
        text if text.is_empty() => String::new(),
        text => format!(": {}", text.chars().take(EXCERPT).collect::<String>()),
    }
}
