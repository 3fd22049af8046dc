//! Answers in one document.
//!
//! Nobody can act on a document that isn't whole, so holding one back costs its caller nothing but memory
//! and the overlap of two ways. Short ones are held and read before anything of them goes on, and so an
//! answer that must not pass is refused like a call. Longer ones pass as they come, under a [`Look`], and
//! are cut. A list is always held: it has to be edited.

use bytes::Bytes;
use http::response::Parts;
use pingora::protocols::http::ServerSession;

use super::{
    Halt, Proxy, Read,
    answer::{self, Coming, Passing, essence_is},
    collect::Collected,
};
use crate::{
    denial::Denial,
    exchange::{Asking, End, Exchange},
    protocol::{Call, Era, mcp::server, method::Governs},
    response::{self, ListFilter, Look, OwnTasks},
};

/// Bytes of a document that are held in any case.
const HELD: usize = 64 << 10;

impl Proxy {
    /// Passes a document on.
    pub(super) async fn document(
        &self,
        session: &mut ServerSession,
        exchange: &mut Exchange,
        read: &Read,
        mut coming: Coming,
    ) -> Result<(), Halt> {
        let (Some(call), Some(principal)) = (&exchange.call, &exchange.principal) else {
            return Err(Denial::NoRoute.into());
        };
        let served = &read.served;
        let shadow = served.route.shadow;
        let is_list = answer::lists(call) && !shadow;
        let limit = if is_list || may_ask(call) { served.terms.limits.answer } else { HELD };
        let parties = (call, principal, &exchange.behalf);
        let mut whole = match self.collect(session, parties, read, &mut coming, limit).await? {
            Collected::Whole(whole) => whole,
            Collected::Begun(denial) if is_list => return Err(denial.into()),
            Collected::Begun(_) => {
                let mut look = (!shadow).then(Look::default);
                if let Some(look) = &mut look {
                    look.at(&coming.begun).map_err(|_| Denial::UpstreamUnreadable)?;
                }
                return self.pass(session, exchange, read, coming, Passing::Document(look)).await;
            }
        };
        let (askings, own) = match self.judge_document(exchange, read, &coming.head, &whole).await {
            Ok(judged) => judged,
            // An error page says enough by its status.
            Err(Denial::UpstreamUnreadable) if !coming.head.status.is_success() => {
                whole = Bytes::new();
                (Vec::new(), OwnTasks::new())
            }
            Err(denial) => return Err(denial.into()),
        };
        let seen = match is_list {
            true => {
                let visibility = self.visibility(call, principal, &exchange.behalf, served);
                let listed_before = &self.shared.listed;
                listed(
                    &ListFilter { visibility, listed: listed_before },
                    &coming.head,
                    whole,
                    &own,
                )?
            }
            false => whole,
        };
        let headers = self.headers_for_caller(session, call, &coming.head, is_list);
        let head = (coming.head.status, headers);
        let sent = self.deliver(session, exchange, served, head, seen).await;
        exchange.end = Some(End::Answered);
        for asking in askings {
            asking.close(match &sent {
                Err(Halt::Caller(end)) => *end,
                Ok(()) | Err(Halt::Refuse(_)) => End::Answered,
            });
        }
        sent
    }

    /// Judges what a document asks of its caller, and looks up which of the tasks in it are theirs. It can
    /// be nothing but the answer to the call.
    async fn judge_document(
        &self,
        exchange: &Exchange,
        read: &Read,
        head: &Parts,
        whole: &[u8],
    ) -> Result<(Vec<Asking>, OwnTasks), Denial> {
        if response::may_be_wide(whole) {
            return Err(Denial::UpstreamUnreadable);
        }
        let (Some(call), Some(principal), Some(permit)) =
            (&exchange.call, &exchange.principal, &exchange.permit)
        else {
            return Err(Denial::NoRoute);
        };
        let asks = server::may_ask(whole) && !response::is_foreign(whole);
        if !asks && !answer::lists(call) {
            return Ok((Vec::new(), OwnTasks::new()));
        }
        let back = self.back(
            (call, principal, &exchange.behalf, permit),
            exchange.id,
            read,
            &head.headers,
        );
        let back = back.ok_or(Denial::NoRoute)?;
        let askings = match asks {
            true => back.judge_document(whole).await?,
            false => Vec::new(),
        };
        let own = match answer::lists(call) {
            true => back.own_tasks(whole).await,
            false => OwnTasks::new(),
        };
        Ok((askings, own))
    }
}

/// Whether the answer can ask for something, or make a task, and be long (MCP 2026-07-28
/// `basic/patterns/mrtr`, the tasks extension).
fn may_ask(call: &Call) -> bool {
    match (call.era, call.method.rule().map(|rule| rule.governs)) {
        (
            Era::Modern,
            Some(Governs::Tool | Governs::Prompt | Governs::Resource | Governs::Task),
        ) => true,
        (
            Era::Modern,
            Some(
                Governs::Server
                | Governs::Reference
                | Governs::Subscriptions
                | Governs::Caller
                | Governs::Message,
            )
            | None,
        ) => false,
        (Era::Legacy | Era::V03 | Era::V10 | Era::Http, _) => false,
    }
}

/// A list as the caller may see it. An error page is no list, but can't be read to make sure.
fn listed(
    filter: &ListFilter<'_>,
    head: &Parts,
    whole: Bytes,
    own: &OwnTasks,
) -> Result<Bytes, Denial> {
    let json = essence_is(&head.headers, "application/json");
    if whole.is_empty() || (!json && !head.status.is_success()) {
        return Ok(Bytes::new());
    }
    filter.document(whole, own).map_err(|_| Denial::UpstreamUnreadable)
}
