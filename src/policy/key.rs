//! What a remembered answer is found by.
//!
//! INVARIANT: equality is that of every field, byte for byte; nothing is hashed away or shortened, so one
//! question can't find the answer to another.

use std::hash::{Hash, Hasher};

use quick_cache::Equivalent;

use super::{Delegation, Question};
use crate::{
    identity::SpiffeId,
    protocol::{Era, Target, a2a, web},
};

/// Longest method, target and texts of A2A or plain HTTP, in bytes, that are worth a place in a cache; a caller chooses them.
const LONGEST_KEPT: usize = 1_024;

/// Everything that a decision depends on, but the arguments.
#[derive(Clone, Debug)]
pub(super) struct Key {
    principal: SpiffeId,
    server: Box<str>,
    listener: Box<str>,
    method: Box<str>,
    target: Target,
    era: Era,
    a2a: Option<a2a::Traits>,
    web: Option<web::Traits>,
    delegation: Option<Place>,
}

/// What a [`Delegation`] says.
#[derive(Clone, Debug)]
struct Place {
    depth: usize,
    hop: usize,
    mode: &'static str,
    root: SpiffeId,
    user: Option<Box<str>>,
    tenant: Option<Box<str>>,
}

/// A key as it stands in a question, so that a look-up copies nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct KeyRef<'a> {
    principal: &'a SpiffeId,
    server: &'a str,
    listener: &'a str,
    method: &'a str,
    target: &'a Target,
    era: Era,
    a2a: Option<&'a a2a::Traits>,
    web: Option<&'a web::Traits>,
    delegation: Option<Delegation<'a>>,
}

impl<'a> KeyRef<'a> {
    pub(super) fn of(question: &Question<'a>) -> Self {
        Self {
            principal: &question.principal.id,
            server: question.server,
            listener: question.listener,
            method: question.method.name(),
            target: question.target,
            era: question.era,
            a2a: question.a2a,
            web: question.web,
            delegation: question.delegation,
        }
    }

    /// Nothing is kept of what a server asks: it isn't in the key.
    pub(super) fn worth_keeping(&self) -> bool {
        !matches!(self.target, Target::Caller)
            && self.method.len()
                + self.target.name().map_or(0, str::len)
                + self.a2a.map_or(0, length)
                + self.web.map_or(0, length_of_web)
                <= LONGEST_KEPT
    }

    pub(super) fn to_owned(self) -> Key {
        Key {
            principal: self.principal.clone(),
            server: self.server.into(),
            listener: self.listener.into(),
            method: self.method.into(),
            target: self.target.clone(),
            era: self.era,
            a2a: self.a2a.cloned(),
            web: self.web.cloned(),
            delegation: self.delegation.map(|at| Place {
                depth: at.depth,
                hop: at.hop,
                mode: at.mode,
                root: at.root.clone(),
                user: at.user.map(Into::into),
                tenant: at.tenant.map(Into::into),
            }),
        }
    }
}

/// Bytes in the texts that a caller chose.
fn length(traits: &a2a::Traits) -> usize {
    let sets = [&traits.parts, &traits.extensions, &traits.push_hosts];
    let texts = sets.into_iter().flatten().chain(&traits.tenant).chain(&traits.form);
    texts.map(|text| text.len()).sum()
}

/// The same for plain HTTP. The names are in the query, too.
fn length_of_web(traits: &web::Traits) -> usize {
    let query = traits.query.iter().map(|text| text.len()).sum::<usize>();
    traits.path.len() + query + traits.content_type.as_ref().map_or(0, |it| it.len())
}

impl Key {
    fn borrowed(&self) -> KeyRef<'_> {
        KeyRef {
            principal: &self.principal,
            server: &self.server,
            listener: &self.listener,
            method: &self.method,
            target: &self.target,
            era: self.era,
            a2a: self.a2a.as_ref(),
            web: self.web.as_ref(),
            delegation: self.delegation.as_ref().map(|at| Delegation {
                depth: at.depth,
                hop: at.hop,
                mode: at.mode,
                root: &at.root,
                user: at.user.as_deref(),
                tenant: at.tenant.as_deref(),
            }),
        }
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        self.borrowed() == other.borrowed()
    }
}

impl Eq for Key {}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.borrowed().hash(state);
    }
}

impl Equivalent<Key> for KeyRef<'_> {
    fn equivalent(&self, key: &Key) -> bool {
        *self == key.borrowed()
    }
}
