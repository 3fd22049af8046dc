//! What was revoked: identities, users, sessions, delegations, tools and tenants that are refused from now on,
//! whatever policies say, until the revocation is lifted or its time is over.
//!
//! Policies say what may be done; a revocation is the emergency brake beside them. It is one call of an operator
//! away, needs no deployment, names who pulled it and why, and takes effect on warm connections and open streams
//! on every replica within a second. So it is no policy: [`Revocations`] is a snapshot that every request is held
//! against first, [`Register`] is what keeps it current.
//!
//! INVARIANT: nothing here lets a call through. A snapshot that was never read refuses everything, and one that
//! can't be read again stays in force.
//! INVARIANT: a revocation is in force before anything is waited for, and is lifted only after that is on record.

mod register;
mod snapshot;
mod subject;

pub use self::{
    register::{ChangeError, OpenError, Register, Revoked},
    snapshot::Revocations,
    subject::{Subject, SubjectError, What},
};

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// Longest reason, and longest name of who gives it, in bytes.
pub const LONGEST_TEXT: usize = 256;

/// One revocation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Revocation {
    /// By this it is lifted; unique and sortable by time (UUIDv7).
    pub id: Uuid,
    /// What is refused.
    pub subject: Subject,
    /// Why, for operators; callers aren't told.
    pub reason: Box<str>,
    /// Who did it, as they said.
    pub by: Box<str>,
    /// When, Unix seconds.
    pub at: u64,
    /// Until when, Unix seconds; `None`: until it is lifted.
    pub until: Option<u64>,
}

/// As it is kept and shared; a replica that doesn't know a member of it doesn't know what is refused.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Written<'a> {
    kind: &'a str,
    value: std::borrow::Cow<'a, str>,
    reason: std::borrow::Cow<'a, str>,
    by: std::borrow::Cow<'a, str>,
    at: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    until: Option<u64>,
}

/// A text that was kept and says nothing that is known here.
#[derive(Debug, thiserror::Error)]
#[error("the record `{id}` is no revocation that is known here")]
pub struct Unreadable {
    /// Its id.
    pub id: Uuid,
}

impl Revocation {
    /// Whether its time is over.
    pub fn is_over(&self, now: u64) -> bool {
        self.until.is_some_and(|until| until <= now)
    }

    fn to_text(&self) -> String {
        let written = Written {
            kind: self.subject.what().as_str(),
            value: self.subject.value(),
            reason: (&*self.reason).into(),
            by: (&*self.by).into(),
            at: self.at,
            until: self.until,
        };
        // Plain strings and numbers into memory: that can't fail.
        serde_json::to_string(&written).unwrap_or_default()
    }

    fn from_text(id: Uuid, text: &str) -> Result<Self, Unreadable> {
        let read = || {
            let written: Written<'_> = serde_json::from_str(text).ok()?;
            let subject = Subject::from_kept(written.kind, &written.value).ok()?;
            let Written { reason, by, at, until, .. } = written;
            Some(Self { id, subject, reason: reason.into(), by: by.into(), at, until })
        };
        read().ok_or(Unreadable { id })
    }
}

#[cfg(test)]
mod tests;
