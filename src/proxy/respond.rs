//! Answers of Lictor's own, refusals and preflights, and how every answer is written.
//!
//! A caller has a time for each part of an answer, not for all of it: whoever goes on reading, however slowly, gets
//! everything, and whoever stops is cut.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use pingora::{http::ResponseHeader, protocols::http::ServerSession};
use tokio::time::timeout;

use super::{
    Halt, Proxy, Served,
    drain::Phase,
    head, origin,
    refusal::{self, Binding},
    route::Way,
    settings::Refusals,
};
use crate::{
    denial::Denial,
    exchange::{Delivered, End, Exchange},
    protocol::Protocol,
};

/// How long the rest of a refused body is read and thrown away, so that the answer isn't lost to a reset.
const DRAIN: Duration = Duration::from_millis(500);

/// What of an answer's body its caller has a time of its own for, in bytes. What is usual is one write.
const PART: usize = 64 << 10;

impl Proxy {
    /// Tells the caller no, in the words of the table in [`crate::denial`].
    pub(super) async fn refuse(
        &self,
        session: &mut ServerSession,
        exchange: &mut Exchange,
        way: Option<Way>,
        denial: &Denial,
    ) {
        exchange.revocation = denial.revocation();
        if let Some(call) = &mut exchange.call {
            // Its share of the budget is free again, while the caller may take its time to read.
            call.body = Bytes::new();
        }
        // Reading may have failed before it came to the route.
        let find = |target| self.inside.load().find(&target);
        let way = way.or_else(|| head::check(session).and_then(find).ok());
        if self.refuse_on_stream(session, exchange, way.as_ref(), denial).await {
            return;
        }
        let refusals = way.as_ref().map_or(Refusals::default(), |way| way.served.route.refusals);
        let binding = way.as_ref().map(binding).unwrap_or_default();
        let only = way.as_ref().and_then(|way| way.served.only(&way.path));
        let origin =
            self.inside.load().doorplate.allowed_origin(&session.req_header().headers).cloned();
        // pingora leaves the body out by itself with HTTP/1 only.
        let head_only = session.req_header().method == Method::HEAD;
        let looks = Looks { binding, refusals, head_only };
        self.send_refusal(session, exchange, denial, looks, only, origin).await;
        session.set_total_drain_timeout(Some(DRAIN));
        let _ = session.drain_request_body().await;
    }

    /// Tells somebody no whose request could not even be parsed; the connection ends with it.
    pub(super) async fn refuse_unparsed(
        &self,
        session: &mut ServerSession,
        exchange: &mut Exchange,
        denial: &Denial,
    ) {
        self.send_refusal(session, exchange, denial, Looks::default(), None, None).await;
    }

    async fn send_refusal(
        &self,
        session: &mut ServerSession,
        exchange: &mut Exchange,
        denial: &Denial,
        looks: Looks,
        only: Option<Method>,
        origin: Option<HeaderValue>,
    ) {
        let rendered = refusal::render(
            denial,
            exchange.call.as_ref(),
            looks.binding,
            looks.refusals,
            exchange.id,
        );
        let mut headers = rendered.headers;
        if let (Some(only), true) = (only, headers.contains_key(header::ALLOW))
            && let Ok(only) = HeaderValue::from_str(only.as_str())
        {
            headers.insert(header::ALLOW, only);
        }
        if let Some(origin) = origin {
            origin::expose(&mut headers, &origin);
        }
        if rendered.row.close {
            session.set_keepalive(None);
        }
        exchange.end = Some(End::Refused(rendered.row));
        tracing::info!(
            decision = %exchange.id,
            kind = rendered.row.kind,
            peer = exchange.peer(),
            "refused"
        );
        let status = StatusCode::from_u16(rendered.status).unwrap_or(StatusCode::FORBIDDEN);
        // A refusal that nobody waits for is still a refusal, and is on record as one.
        let _ = if looks.head_only {
            headers.insert(header::CONTENT_LENGTH, rendered.body.len().into());
            self.send_head(session, exchange, status, headers).await
        } else {
            self.send(session, exchange, status, headers, rendered.body).await
        };
    }

    /// Answers `OPTIONS`: a preflight from an allowed origin needs no credentials and learns nothing else.
    pub(super) async fn preflight(
        &self,
        session: &mut ServerSession,
        exchange: &mut Exchange,
    ) -> Result<(), Halt> {
        head::check(session)?;
        self.check_names(session)?;
        let bodiless = session.is_body_empty();
        let request = &session.req_header().headers;
        let inside = self.inside.load();
        let origin = inside.doorplate.allowed_origin(request).ok_or(Denial::HttpMethod)?;
        if !bodiless {
            return Err(Denial::Framing("a preflight has no body").into());
        }
        let mut headers = HeaderMap::new();
        origin::preflight(&mut headers, request, origin, inside.webs().next().is_some());
        drop(inside);
        self.send(session, exchange, StatusCode::NO_CONTENT, headers, Bytes::new()).await?;
        exchange.end = Some(End::Answered);
        Ok(())
    }

    /// Writes a whole answer of known length, and counts it as delivered.
    pub(super) async fn send(
        &self,
        session: &mut ServerSession,
        exchange: &mut Exchange,
        status: StatusCode,
        headers: HeaderMap,
        body: Bytes,
    ) -> Result<(), Halt> {
        self.begin(session, exchange, status, headers, body.len()).await?;
        let stall = self.settings.stall_timeout;
        Ok(write_body(session, &mut exchange.delivered, body, true, stall).await?)
    }

    /// The same for an upstream's document. A long one may take its caller a while; it is cut as soon as something
    /// that it has to do with is revoked.
    pub(super) async fn deliver(
        &self,
        session: &mut ServerSession,
        exchange: &mut Exchange,
        served: &Served,
        (status, headers): (StatusCode, HeaderMap),
        body: Bytes,
    ) -> Result<(), Halt> {
        if body.len() <= PART {
            return self.send(session, exchange, status, headers, body).await;
        }
        self.begin(session, exchange, status, headers, body.len()).await?;
        let (Some(call), Some(principal)) = (&exchange.call, &exchange.principal) else {
            return Err(Denial::NoRoute.into());
        };
        let mut recall = self.recall((call, principal, &exchange.behalf), served);
        let stall = self.settings.stall_timeout;
        tokio::select! { biased;
            denial = recall.recalled() => {
                exchange.revocation = denial.revocation();
                Err(End::Broken(denial.row(call.era)).into())
            }
            written = write_body(session, &mut exchange.delivered, body, true, stall) => {
                Ok(written?)
            }
        }
    }

    /// Writes the head of an answer of so many bytes.
    async fn begin(
        &self,
        session: &mut ServerSession,
        exchange: &mut Exchange,
        status: StatusCode,
        mut headers: HeaderMap,
        length: usize,
    ) -> Result<(), End> {
        // Not even a length of zero on the first (RFC 9110 §8.6).
        match status {
            StatusCode::NO_CONTENT => headers.remove(header::CONTENT_LENGTH),
            _ => headers.insert(header::CONTENT_LENGTH, length.into()),
        };
        let head = response_head(status, headers);
        self.announce_end(session);
        exchange.status = Some(status.as_u16());
        write_head(session, head, self.settings.stall_timeout).await
    }

    /// Tells the caller with the answer that its connection won't serve another message.
    pub(super) fn announce_end(&self, session: &mut ServerSession) {
        if self.shared.drain.phase() > Phase::Running {
            session.set_keepalive(None);
        }
    }
}

/// How a refusal has to look.
#[derive(Clone, Copy, Default)]
struct Looks {
    binding: Binding,
    refusals: Refusals,
    /// Nobody reads its body.
    head_only: bool,
}

/// How a caller on this way reads an error.
fn binding(way: &Way) -> Binding {
    match (way.served.route.protocol, way.below.is_empty()) {
        (Protocol::Mcp, _) => Binding::Mcp,
        (Protocol::A2a, true) => Binding::Agent,
        (Protocol::A2a, false) => Binding::AgentRest,
        (Protocol::Http, _) => Binding::Web,
    }
}

/// Writes the head of an answer. Its caller has this time to take it.
pub(super) async fn write_head(
    session: &mut ServerSession,
    head: ResponseHeader,
    stall: Duration,
) -> Result<(), End> {
    in_time(stall, session.write_response_header(Box::new(head))).await
}

/// Writes more of an answer's body, and with the `last` of it its end. Its caller has this time for each part.
pub(super) async fn write_body(
    session: &mut ServerSession,
    delivered: &mut Delivered,
    mut bytes: Bytes,
    last: bool,
    stall: Duration,
) -> Result<(), End> {
    loop {
        let part = bytes.split_to(bytes.len().min(PART));
        delivered.add(&part);
        let ends = last && bytes.is_empty();
        in_time(stall, session.write_response_body(part, ends)).await?;
        if bytes.is_empty() {
            break;
        }
    }
    if last {
        delivered.finish();
    }
    Ok(())
}

async fn in_time(
    stall: Duration,
    writing: impl Future<Output = pingora::Result<()>>,
) -> Result<(), End> {
    match timeout(stall, writing).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(_)) => Err(End::CallerGone),
        Err(_) => Err(End::CallerStalled),
    }
}

/// A response head for pingora.
pub(super) fn response_head(status: StatusCode, headers: HeaderMap) -> ResponseHeader {
    let mut parts = http::Response::new(()).into_parts().0;
    parts.status = status;
    parts.headers = headers;
    parts.into()
}
