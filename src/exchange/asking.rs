//! One request of a server to a caller: what is known of it, and its closing entry.
//!
//! INVARIANT: as for an exchange, every request that was decoded has exactly one closing ledger entry, written
//! by [`Asking`]'s `Drop`; it names the exchange whose answer brought it as its cause.

use std::{sync::Arc, time::Instant};

use uuid::Uuid;

use super::{End, Record, micros};
use crate::{
    denial::Denial,
    governance::{Permit, Refusal},
    ledger::{Decision, Entry, Event, Mode},
    policy,
    protocol::{Era, Method},
    telemetry::metrics::Verdict,
};

/// In which exchange a server asks.
#[derive(Clone, Debug)]
pub struct Occasion {
    /// Where it is written down.
    pub record: Arc<Record>,
    /// Name of the listener that the call came in on.
    pub listener: Arc<str>,
    /// Which way the server's requests go.
    pub direction: &'static str,
    /// The exchange's id.
    pub cause: Uuid,
    /// SPIFFE ID of the caller, who is asked.
    pub caller: Arc<str>,
    /// Name of the upstream, which asks.
    pub server: Arc<str>,
    /// Era of the call.
    pub era: Era,
    /// Whether refusals are only recorded.
    pub shadow: bool,
}

/// One request of a server; see the module's documentation.
#[derive(Debug)]
pub struct Asking {
    occasion: Occasion,
    started: Instant,
    /// Unique; the decision id that the server is told.
    pub id: Uuid,
    /// `None` where it could not be read.
    method: Option<Method>,
    digest: [u8; 32],
    policy_version: Option<Arc<str>>,
    permit: Option<Permit>,
    refused_decisions: Vec<policy::Decision>,
    stage: Option<&'static str>,
    end: Option<End>,
    http_status: Option<u16>,
    complete: bool,
}

impl Asking {
    /// A request whose message has this digest; from here on it will be closed in the ledger.
    pub fn begin(occasion: Occasion, method: Option<Method>, digest: [u8; 32]) -> Self {
        Self {
            started: occasion.record.clock.instant(),
            occasion,
            id: Uuid::now_v7(),
            method,
            digest,
            policy_version: None,
            permit: None,
            refused_decisions: Vec::new(),
            stage: None,
            end: None,
            http_status: None,
            complete: false,
        }
    }

    /// Takes note of what the chain said under policies of a version.
    pub fn judged(
        &mut self,
        policy_version: &Arc<str>,
        verdict: Result<Permit, Refusal>,
    ) -> Result<(), Denial> {
        self.policy_version = Some(Arc::clone(policy_version));
        match verdict {
            Ok(permit) => {
                self.permit = Some(permit);
                Ok(())
            }
            Err(refusal) => {
                self.stage = Some(refusal.stage);
                self.refused_decisions = refusal.decisions;
                Err(refusal.denial)
            }
        }
    }

    /// It doesn't go on, for this reason. The first counts.
    pub fn refuse(&mut self, denial: &Denial) {
        self.end.get_or_insert(End::Refused(denial.row(self.occasion.era)));
    }

    /// The server was told that it didn't go on, and took that with an HTTP status.
    pub fn told(&mut self, status: u16) {
        self.http_status = Some(status);
        self.complete = (200..300).contains(&status);
    }

    /// It went on, or was lost on its last way.
    pub fn close(mut self, end: End) {
        self.complete = end == End::Answered;
        self.end = Some(end);
    }

    /// Whether its intent has to be durable before it goes on.
    pub fn may_change_state(&self) -> bool {
        self.permit.as_ref().is_none_or(|permit| permit.class().may_change_state())
    }

    /// The method as it stands on the wire; empty where it could not be read.
    pub fn method(&self) -> &str {
        self.method.as_ref().map_or("", Method::name)
    }

    /// The ledger entry as far as the request is known.
    pub fn entry(&self, event: Event) -> Entry {
        let Occasion { listener, direction, caller, server, era, shadow, .. } = &self.occasion;
        let mut entry = Entry::new(event, self.id, Arc::clone(caller), Arc::clone(listener));
        entry.cause = Some(self.occasion.cause);
        entry.direction = direction;
        entry.server = Some(Arc::clone(server));
        entry.method = self.method.as_ref().map(|method| method.name().into());
        entry.era = Some(era.as_str());
        let decisions = match &self.permit {
            Some(permit) => permit.decisions(),
            None => &self.refused_decisions,
        };
        let class = decisions.iter().map(|decision| decision.class).max();
        entry.class = class.map(|class| class.as_str());
        entry.policies =
            decisions.iter().flat_map(|decision| decision.policies.iter()).cloned().collect();
        entry.policy_version.clone_from(&self.policy_version);
        entry.mode = if *shadow { Mode::Shadow } else { Mode::Enforce };
        entry.decision = match (&self.permit, self.stage) {
            (Some(_), _) => Decision::Permit,
            (None, Some(_)) => Decision::Deny,
            (None, None) => Decision::None,
        };
        entry.stage = self.stage;
        entry.would_deny = self.would_deny();
        entry.req_sha256 = Some(self.digest);
        if event == Event::Intent {
            return entry;
        }
        entry.status = Some(self.status());
        entry.http_status = self.http_status;
        let now = self.occasion.record.clock.instant();
        entry.latency_us = Some(micros(now.saturating_duration_since(self.started)));
        entry.complete = Some(self.complete);
        entry
    }

    fn status(&self) -> &'static str {
        self.end.map_or("abandoned", End::as_str)
    }

    fn would_deny(&self) -> Option<&'static str> {
        let (_, denial) = self.permit.as_ref()?.would_deny()?;
        Some(denial.row(self.occasion.era).kind)
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        let event = if self.permit.is_some() { Event::Outcome } else { Event::Denied };
        let entry = self.entry(event);
        let verdict = match (&self.permit, entry.would_deny) {
            (Some(_), Some(_)) => Verdict::Shadow,
            (Some(_), None) => Verdict::Permit,
            (None, _) => Verdict::Deny,
        };
        let Record { metrics, ledger, .. } = &*self.occasion.record;
        let server = &self.occasion.server;
        let method = self.method.as_ref().and_then(Method::rule).map(|rule| rule.name);
        metrics.server_request(server, method, verdict, self.status());
        if let Some(kind) = entry.would_deny {
            metrics.shadow_denial(server, kind);
        }
        ledger.record(entry);
    }
}
