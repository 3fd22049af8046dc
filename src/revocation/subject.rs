//! [`Subject`]: what can be revoked.

use std::borrow::Cow;

use data_encoding::{BASE64URL_NOPAD, HEXLOWER};
use sha2::{Digest, Sha256};
use uuid::Uuid;

use crate::identity::{SpiffeId, SpiffeIdError};

/// What stands before the digest of a session.
const DIGEST: &str = "sha256:";

/// Longest name of a user, tool, tenant or session, in bytes.
const LONGEST_NAME: usize = 512;

/// What is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    /// A workload: as a caller, as anybody in a chain of delegation, and as an upstream.
    Spiffe(Box<str>),
    /// All workloads whose IDs begin like this; ends with `/`.
    SpiffeBelow(Box<str>),
    /// A user, as chains of delegation name them (`usr`).
    User(Box<str>),
    /// A session of a server, by the digest of its id: the id is a secret.
    Session([u8; 32]),
    /// A hop of a chain by its `jti`, or every chain of a run. Either is 128 bits that occur once.
    Delegation(Uuid),
    /// A tool of a server.
    Tool {
        /// The upstream's name.
        server: Box<str>,
        /// The tool's name.
        tool: Box<str>,
    },
    /// All workloads of a tenant, as the path template of the policies has it.
    Tenant(Box<str>),
}

/// The kinds of [`Subject`], as they are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum What {
    /// `spiffe`
    Spiffe,
    /// `user`
    User,
    /// `session`
    Session,
    /// `delegation`
    Delegation,
    /// `tool`
    Tool,
    /// `tenant`
    Tenant,
}

/// Why a text names nothing that can be revoked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SubjectError {
    /// No such kind.
    #[error(
        "`{0}` can't be revoked; `spiffe`, `user`, `session`, `delegation`, `tool` and `tenant` can"
    )]
    Kind(Box<str>),
    /// No SPIFFE ID, nor a prefix of some.
    #[error("`{0}` is neither a SPIFFE ID nor a prefix of IDs that ends in `/*`: {1}")]
    Spiffe(Box<str>, SpiffeIdError),
    /// Not `server/tool`.
    #[error("`{0}` is no tool: write the upstream's name, `/`, and the tool's name")]
    Tool(Box<str>),
    /// Neither the id of a hop nor of a run.
    #[error("`{0}` is neither a run or call id (a UUID) nor the `jti` of a hop (22 characters)")]
    Delegation(Box<str>),
    /// Empty, too long, or with control characters.
    #[error("a {0} has 1 to {LONGEST_NAME} bytes and no control characters")]
    Name(&'static str),
}

impl What {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::Spiffe, Self::User, Self::Session, Self::Delegation, Self::Tool, Self::Tenant];

    /// The name in commands, ledger and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Spiffe => "spiffe",
            Self::User => "user",
            Self::Session => "session",
            Self::Delegation => "delegation",
            Self::Tool => "tool",
            Self::Tenant => "tenant",
        }
    }

    /// What the caller is told was revoked.
    pub fn told(self) -> &'static str {
        match self {
            Self::Spiffe => "this identity, one that it acts for, or the server's",
            Self::User => "this user",
            Self::Session => "this session",
            Self::Delegation => "this delegation",
            Self::Tool => "this tool",
            Self::Tenant => "this tenant",
        }
    }
}

impl Subject {
    /// What an operator names: a kind, and which.
    ///
    /// # Errors
    /// If there is no such thing; whether it exists is not looked at.
    pub fn parse(kind: &str, value: &str) -> Result<Self, SubjectError> {
        match Self::what_of(kind)? {
            What::Session => Ok(Self::Session(digest(named("session id", value)?))),
            what => Self::plain(what, value),
        }
    }

    /// What was kept: the same, but for sessions, of which only the digest is.
    pub(super) fn from_kept(kind: &str, value: &str) -> Result<Self, SubjectError> {
        match Self::what_of(kind)? {
            What::Session => {
                let digest = value.strip_prefix(DIGEST).map(str::as_bytes);
                let digest = digest.and_then(|hex| HEXLOWER.decode(hex).ok());
                let digest = digest.and_then(|bytes| bytes.try_into().ok());
                digest.map(Self::Session).ok_or(SubjectError::Name("session id"))
            }
            what => Self::plain(what, value),
        }
    }

    fn what_of(kind: &str) -> Result<What, SubjectError> {
        let known = What::ALL.into_iter().find(|what| what.as_str() == kind);
        known.ok_or_else(|| SubjectError::Kind(kind.into()))
    }

    fn plain(what: What, value: &str) -> Result<Self, SubjectError> {
        match what {
            What::Spiffe => spiffe(value),
            What::User => Ok(Self::User(named("user", value)?.into())),
            What::Session => Ok(Self::Session(digest(value))),
            What::Delegation => {
                let id = delegation(value);
                id.map(Self::Delegation).ok_or_else(|| SubjectError::Delegation(value.into()))
            }
            What::Tool => {
                let fault = || SubjectError::Tool(value.into());
                let (server, tool) = value.split_once('/').ok_or_else(fault)?;
                let server = named("server", server).map_err(|_| fault())?;
                Ok(Self::Tool { server: server.into(), tool: named("tool", tool)?.into() })
            }
            What::Tenant => Ok(Self::Tenant(named("tenant", value)?.into())),
        }
    }

    /// Of which kind it is.
    pub fn what(&self) -> What {
        match self {
            Self::Spiffe(_) | Self::SpiffeBelow(_) => What::Spiffe,
            Self::User(_) => What::User,
            Self::Session(_) => What::Session,
            Self::Delegation(_) => What::Delegation,
            Self::Tool { .. } => What::Tool,
            Self::Tenant(_) => What::Tenant,
        }
    }

    /// Which one, as it was named; of a session, the digest.
    pub fn value(&self) -> Cow<'_, str> {
        match self {
            Self::Spiffe(text) | Self::User(text) | Self::Tenant(text) => (&**text).into(),
            Self::SpiffeBelow(prefix) => format!("{prefix}*").into(),
            Self::Session(digest) => format!("{DIGEST}{}", HEXLOWER.encode(digest)).into(),
            Self::Delegation(id) => id.to_string().into(),
            Self::Tool { server, tool } => format!("{server}/{tool}").into(),
        }
    }
}

/// What a session is known by.
pub(super) fn digest(session: &str) -> [u8; 32] {
    Sha256::new().chain_update("session\0").chain_update(session).finalize().into()
}

fn spiffe(value: &str) -> Result<Subject, SubjectError> {
    let fault = |error| SubjectError::Spiffe(value.into(), error);
    match value.strip_suffix('*') {
        Some(below) => {
            SpiffeId::parse(&format!("{below}any")).map_err(fault)?;
            // `spiffe://td/a*` begins names, not paths.
            if below.ends_with('/') {
                Ok(Subject::SpiffeBelow(below.into()))
            } else {
                Err(fault(SpiffeIdError::Path))
            }
        }
        None => {
            SpiffeId::parse(value).map_err(fault)?;
            Ok(Subject::Spiffe(value.into()))
        }
    }
}

/// A `jti` is 16 bytes in base64url (22 characters); everything else that occurs in a ledger is a UUID.
fn delegation(value: &str) -> Option<Uuid> {
    match value.len() {
        22 => Uuid::from_slice(&BASE64URL_NOPAD.decode(value.as_bytes()).ok()?).ok(),
        36 => Uuid::try_parse(value).ok(),
        _ => None,
    }
}

fn named<'a>(what: &'static str, value: &'a str) -> Result<&'a str, SubjectError> {
    let fine = (1..=LONGEST_NAME).contains(&value.len()) && !value.chars().any(char::is_control);
    if fine { Ok(value) } else { Err(SubjectError::Name(what)) }
}
