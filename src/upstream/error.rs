//! What can go wrong on the way out.

use crate::tls;

/// Why an upstream can't be set up.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    /// The URL lacks a host, has a user, or its scheme doesn't fit the verification.
    #[error("the URL of an upstream at `{0}` doesn't fit")]
    Url(String),
    /// The configured `Host` is no authority.
    #[error("`{0}` is no host")]
    Host(String),
    /// SPIFFE verification without an identity source.
    #[error("an upstream with a SPIFFE ID needs an identity of our own")]
    NoSource,
    /// Hosts can't be checked.
    #[error(transparent)]
    Tls(#[from] tls::SetupError),
    /// There is no client secret for a token service where it should be.
    #[error("the client secret for the token service can't be read")]
    ClientSecret(#[source] std::io::Error),
    /// A file with a value for the environment of a command can't be used.
    #[error("`{path}` can't be put into the environment of a command")]
    Environment {
        /// The file.
        path: String,
        /// What the system says.
        #[source]
        source: std::io::Error,
    },
}

/// Why a call was not answered.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// We have no valid SVID. Nothing was sent.
    #[error("no valid SVID of our own to connect with")]
    NoIdentity,
    /// No connection to the upstream came about, or no process. Nothing was sent.
    #[error("the upstream can't be reached")]
    Unreachable(#[source] BoxError),
    /// The endpoint that the call's session is at isn't there any more. Nothing was sent.
    #[error("the endpoint that the session was opened at is gone")]
    SessionGone,
    /// As many processes run as may run, in all or for this caller. Nothing was sent.
    #[error("too many processes of this upstream run already")]
    Full,
    /// A process that was started said nothing in the time that it has for that.
    #[error("the upstream's process says nothing")]
    Silent,
    /// The head of the answer didn't come in time. The call may have run.
    #[error("the upstream didn't answer in time")]
    Late,
    /// The upstream broke off, or what it sent can't be read. The call may have run.
    #[error("the upstream broke off")]
    Failed(#[source] BoxError),
}

type BoxError = Box<dyn std::error::Error + Send + Sync>;
