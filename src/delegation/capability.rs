//! [`Capabilities`]: the fine limit that a hop sets for those after it.
//!
//! A capability is written `server|method|name`. Each part is a text, or the beginning of one with `*` at its
//! end; nowhere else can a `*` stand, so that telling whether one capability lies within another needs no
//! search. The name is what the method touches: a tool, a prompt, a resource's URI, a task; it is empty for
//! what touches the server only.
//!
//! INVARIANT: [`Capabilities::covers`] says yes only where everything that the others permit is permitted.

use crate::protocol::Class;

/// What a hop restricts calls to; nothing, if it says nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Capabilities(Option<Box<[Capability]>>);

/// One of the things that calls are restricted to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Capability {
    server: Glob,
    method: Glob,
    name: Glob,
}

/// Why a text is no list of capabilities.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CapabilityError {
    /// None, which some would read as no limit, or too many.
    #[error("{0} capabilities; there can be 1 to {max}", max = Capabilities::MOST)]
    Count(usize),
    /// Longer than any name, or with control characters.
    #[error("a capability is at most {max} bytes without control characters", max = Capability::LONGEST)]
    Text,
    /// Not three parts of which the first two aren't empty.
    #[error("a capability is `server|method|name`")]
    Parts,
    /// A `*` that isn't the last character of its part.
    #[error("`*` can only be the last character of a part")]
    Star,
}

impl Capabilities {
    /// The most that a hop can name.
    pub const MOST: usize = 32;

    /// No further limit.
    pub const UNLIMITED: Self = Self(None);

    /// Parses what a hop names.
    pub fn parse<T: AsRef<str>>(texts: &[T]) -> Result<Self, CapabilityError> {
        if !(1..=Self::MOST).contains(&texts.len()) {
            return Err(CapabilityError::Count(texts.len()));
        }
        let parsed: Result<_, _> =
            texts.iter().map(|text| Capability::parse(text.as_ref())).collect();
        parsed.map(|capabilities| Self(Some(capabilities)))
    }

    /// As they stand in a token; `None` if there is no limit.
    pub fn to_texts(&self) -> Option<Vec<String>> {
        self.0.as_ref().map(|capabilities| capabilities.iter().map(Capability::to_text).collect())
    }

    /// Whether they say anything at all.
    pub fn limit(&self) -> bool {
        self.0.is_some()
    }

    /// Whether a call is within them. Whoever may do something on a server may also keep up the
    /// connection to it and see its lists, since nothing can be called without.
    pub fn permit(&self, class: Class, server: &str, method: &str, name: &str) -> bool {
        let Some(capabilities) = &self.0 else { return true };
        capabilities.iter().any(|capability| {
            let Capability { server: servers, method: methods, name: names } = capability;
            let beside = class <= Class::List;
            servers.takes(server) && (beside || (methods.takes(method) && names.takes(name)))
        })
    }

    /// Whether all that `others` permit is within these: each of theirs lies within one of ours.
    pub fn covers(&self, others: &Self) -> bool {
        match (&self.0, &others.0) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(ours), Some(theirs)) => {
                theirs.iter().all(|theirs| ours.iter().any(|ours| ours.covers(theirs)))
            }
        }
    }
}

impl Capability {
    /// Longest one, in bytes.
    const LONGEST: usize = 512;

    fn parse(text: &str) -> Result<Self, CapabilityError> {
        if text.len() > Self::LONGEST || text.chars().any(char::is_control) {
            return Err(CapabilityError::Text);
        }
        let mut parts = text.splitn(3, '|');
        let (Some(server), Some(method), Some(name)) = (parts.next(), parts.next(), parts.next())
        else {
            return Err(CapabilityError::Parts);
        };
        if server.is_empty() || method.is_empty() {
            return Err(CapabilityError::Parts);
        }
        Ok(Self {
            server: Glob::parse(server)?,
            method: Glob::parse(method)?,
            name: Glob::parse(name)?,
        })
    }

    fn covers(&self, other: &Self) -> bool {
        self.server.covers(&other.server)
            && self.method.covers(&other.method)
            && self.name.covers(&other.name)
    }

    fn to_text(&self) -> String {
        let Self { server, method, name } = self;
        format!("{}|{}|{}", server.to_text(), method.to_text(), name.to_text())
    }
}

/// A text, or all that begin with it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Glob {
    text: Box<str>,
    open: bool,
}

impl Glob {
    fn parse(text: &str) -> Result<Self, CapabilityError> {
        let (text, open) = match text.strip_suffix('*') {
            Some(beginning) => (beginning, true),
            None => (text, false),
        };
        if text.contains('*') {
            return Err(CapabilityError::Star);
        }
        Ok(Self { text: text.into(), open })
    }

    fn takes(&self, text: &str) -> bool {
        if self.open { text.starts_with(&*self.text) } else { *text == *self.text }
    }

    fn covers(&self, other: &Self) -> bool {
        if self.open { other.text.starts_with(&*self.text) } else { self == other }
    }

    fn to_text(&self) -> String {
        format!("{}{}", self.text, if self.open { "*" } else { "" })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parse(texts: &[&str]) -> Capabilities {
        Capabilities::parse(texts).expect("capabilities")
    }

    #[test]
    fn only_what_is_named_is_permitted() {
        let all = parse(&["files|tools/call|read_*", "mail|resources/read|mbox:a|b"]);
        for (class, server, method, name, permitted) in [
            (Class::Execute, "files", "tools/call", "read_file", true),
            (Class::Execute, "files", "tools/call", "read_", true),
            (Class::Execute, "files", "tools/call", "write_file", false),
            (Class::Execute, "files", "tools/call", "", false),
            (Class::Read, "files", "resources/read", "read_file", false),
            (Class::Read, "mail", "resources/read", "mbox:a|b", true),
            (Class::Read, "mail", "resources/read", "mbox:a", false),
            (Class::Read, "mai", "resources/read", "mbox:a|b", false),
            (Class::Read, "mails", "resources/read", "mbox:a|b", false),
            (Class::Control, "files", "initialize", "", true),
            (Class::List, "mail", "tools/list", "", true),
            (Class::List, "other", "tools/list", "", false),
            (Class::Control, "other", "initialize", "", false),
        ] {
            assert_eq!(
                all.permit(class, server, method, name),
                permitted,
                "{server} {method} {name}"
            );
            assert!(Capabilities::UNLIMITED.permit(class, server, method, name));
            assert!(parse(&["*|*|*"]).permit(class, server, method, name));
        }
    }

    #[test]
    fn texts_that_could_be_read_in_two_ways_are_refused() {
        use CapabilityError::{Count, Parts, Star, Text};
        let long = format!("a|b|{}", "c".repeat(509));
        for (texts, error) in [
            (vec![], Count(0)),
            (vec!["a|b|c"; 33], Count(33)),
            (vec![""], Parts),
            (vec!["a|b"], Parts),
            (vec!["|b|c"], Parts),
            (vec!["a||c"], Parts),
            (vec!["a|b|c", "a|*b|c"], Star),
            (vec!["a|b|**"], Star),
            (vec!["a|b|c*d"], Star),
            (vec!["a|b|c\n"], Text),
            (vec![&long], Text),
        ] {
            assert_eq!(Capabilities::parse(&texts), Err(error), "{texts:?}");
        }
        assert!(Capabilities::parse(&[long.strip_suffix('c').expect("a c")]).is_ok());
        assert!(Capabilities::parse(&vec!["a|b|"; 32]).is_ok());
    }

    fn glob() -> impl Strategy<Value = String> {
        ("[ab]{0,2}", any::<bool>()).prop_map(|(text, open)| match (text.as_str(), open) {
            ("", false) => "*".to_owned(),
            (text, true) => format!("{text}*"),
            (text, false) => text.to_owned(),
        })
    }

    fn some() -> impl Strategy<Value = Vec<String>> {
        let one = (glob(), glob(), glob()).prop_map(|(a, b, c)| format!("{a}|{b}|{c}"));
        prop::collection::vec(one, 1..4)
    }

    proptest! {
        #[test]
        fn what_is_covered_permits_no_more(
            ours in some(),
            theirs in some(),
            call in ("[ab]{0,2}", "[ab]{0,2}", "[ab]{0,2}"),
        ) {
            let (ours, theirs) = (Capabilities::parse(&ours), Capabilities::parse(&theirs));
            let (ours, theirs) = (ours.expect("parses"), theirs.expect("parses"));
            prop_assert!(ours.covers(&ours));
            prop_assert!(Capabilities::UNLIMITED.covers(&ours));
            prop_assert!(!ours.covers(&Capabilities::UNLIMITED));
            for class in [Class::List, Class::Execute] {
                let permit = |all: &Capabilities| all.permit(class, &call.0, &call.1, &call.2);
                if ours.covers(&theirs) && permit(&theirs) {
                    prop_assert!(permit(&ours));
                }
            }
        }

        #[test]
        fn they_are_written_as_they_were_read(texts in some()) {
            let parsed = Capabilities::parse(&texts).expect("parses");
            prop_assert_eq!(parsed.to_texts(), Some(texts));
        }
    }
}
