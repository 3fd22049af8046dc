//! What a site allows chains of delegation to be.

use std::time::Duration;

use super::Mode;
use crate::identity::SpiffeId;

/// The rules that an operator sets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Who may begin a chain, and how far it may reach then. Whoever isn't here works for others only.
    pub origins: Vec<Origin>,
    /// Most hops of a chain that is taken, 1 to [`Settings::DEEPEST`].
    pub max_depth: usize,
    /// How long a chain that begins here lasts.
    pub lifetime: Duration,
    /// `(from, to)`: `from` may call `to` although `to` is in the chain already.
    pub revisits: Vec<(SpiffeId, SpiffeId)>,
    /// Whether a workload's call that says nothing of its cause may be made for all callers that are live at once, by
    /// what is permitted to all of them. Otherwise such a call has to say for whom it is.
    pub ambient: bool,
    /// The tenant that chains which begin here are for, 1 to 64 bytes.
    pub tenant: Option<Box<str>>,
    /// `(from, to)`: trust domains between which a hop may go.
    pub domains: Vec<(Box<str>, Box<str>)>,
}

/// Somebody who may begin a chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    /// Whose IDs these are.
    pub who: Who,
    /// The widest mode of its chains.
    pub mode: Mode,
}

/// One SPIFFE ID, or all below a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Who {
    /// This one.
    One(SpiffeId),
    /// All whose ID begins with this text, which ends with a slash.
    Below(Box<str>),
}

impl Settings {
    /// More hops than this are never taken.
    pub const DEEPEST: usize = 10;

    /// Most hops of a chain that is taken.
    pub fn deepest(&self) -> usize {
        self.max_depth.min(Self::DEEPEST)
    }

    /// How far a chain that `id` begins may reach; `None` if it may not begin one. Of several entries
    /// that name it, the longest counts.
    pub fn origin(&self, id: &SpiffeId) -> Option<Mode> {
        let named = self.origins.iter().filter(|origin| origin.who.includes(id));
        named.max_by_key(|origin| origin.who.len()).map(|origin| origin.mode)
    }
}

impl Default for Settings {
    /// Nobody may begin a chain; five hops, a quarter of an hour, no way back and no other domain.
    fn default() -> Self {
        Self {
            origins: Vec::new(),
            max_depth: 5,
            lifetime: Duration::from_secs(15 * 60),
            revisits: Vec::new(),
            ambient: true,
            tenant: None,
            domains: Vec::new(),
        }
    }
}

impl Who {
    /// Parses a SPIFFE ID, or one with `/*` at its end, which may follow the trust domain as well.
    pub fn parse(text: &str) -> Option<Self> {
        let Some(above) = text.strip_suffix("/*") else {
            return SpiffeId::parse(text).ok().map(Self::One);
        };
        // Something below it has to be an ID.
        SpiffeId::parse(&format!("{above}/w")).ok()?;
        Some(Self::Below(format!("{above}/").into()))
    }

    /// Whether an ID is meant.
    pub fn includes(&self, id: &SpiffeId) -> bool {
        match self {
            Self::One(one) => one == id,
            Self::Below(beginning) => id.as_str().starts_with(&**beginning),
        }
    }

    fn len(&self) -> usize {
        match self {
            Self::One(_) => usize::MAX,
            Self::Below(beginning) => beginning.len(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(text: &str) -> SpiffeId {
        SpiffeId::parse(text).expect("ID")
    }

    #[test]
    fn the_closest_entry_says_how_far() {
        let origins = [
            ("spiffe://td/*", Mode::ReadOnly),
            ("spiffe://td/team/*", Mode::ReadWrite),
            ("spiffe://td/team/lead", Mode::Full),
        ];
        let origins =
            origins.map(|(who, mode)| Origin { who: Who::parse(who).expect("who"), mode });
        for origins in [origins.to_vec(), origins.into_iter().rev().collect()] {
            let settings = Settings { origins, ..Settings::default() };
            for (who, mode) in [
                ("spiffe://td/a", Some(Mode::ReadOnly)),
                ("spiffe://td/team", Some(Mode::ReadOnly)),
                ("spiffe://td/teams/a", Some(Mode::ReadOnly)),
                ("spiffe://td/team/a", Some(Mode::ReadWrite)),
                ("spiffe://td/team/lead", Some(Mode::Full)),
                ("spiffe://td/team/lead/b", Some(Mode::ReadWrite)),
                ("spiffe://td.evil/a", None),
                ("spiffe://t/a", None),
            ] {
                assert_eq!(settings.origin(&id(who)), mode, "{who}");
            }
        }
        assert_eq!(Settings::default().origin(&id("spiffe://td/a")), None);
    }

    #[test]
    fn who_is_an_id_or_all_below_a_path() {
        for text in [
            "",
            "*",
            "/*",
            "spiffe://td",
            "spiffe:///*",
            "spiffe://td*",
            "spiffe://td/a*",
            "spiffe://td//*",
            "spiffe://td/a/*/b",
            "spiffe://td/../*",
            "https://td/*",
        ] {
            assert_eq!(Who::parse(text), None, "{text}");
        }
        assert_eq!(Who::parse("spiffe://td/a"), Some(Who::One(id("spiffe://td/a"))));
        assert_eq!(Who::parse("spiffe://td/*"), Some(Who::Below("spiffe://td/".into())));
    }
}
