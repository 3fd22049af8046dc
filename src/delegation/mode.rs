//! [`Mode`]: the coarse limit that a hop sets for those after it.

use crate::protocol::Class;

/// How far a delegated call may reach; the order is from narrow to wide.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Mode {
    /// What changes nothing: classes up to `read`.
    ReadOnly,
    /// What changes something in a bounded way, too: classes up to `write`.
    ReadWrite,
    /// Everything that the caller itself may do.
    Full,
}

impl Mode {
    /// All of them, from narrow to wide.
    pub const ALL: [Self; 3] = [Self::ReadOnly, Self::ReadWrite, Self::Full];

    /// The name in tokens, policies and the configuration.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ReadOnly => "readonly",
            Self::ReadWrite => "readwrite",
            Self::Full => "full",
        }
    }

    /// Looks up a name, byte for byte.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|mode| mode.as_str() == name)
    }

    /// Whether calls of this class are within it. The class has to be that of our own tables and
    /// configuration, never what a server says of itself.
    pub fn permits(self, class: Class) -> bool {
        match self {
            Self::ReadOnly => class <= Class::Read,
            Self::ReadWrite => class <= Class::Write,
            Self::Full => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_permit_by_class() {
        use Class::{Control, Execute, List, Read, Write};
        let permitted = |mode: Mode| {
            [Control, List, Read, Write, Execute]
                .into_iter()
                .filter(move |&class| mode.permits(class))
        };
        assert!(permitted(Mode::ReadOnly).eq([Control, List, Read]));
        assert!(permitted(Mode::ReadWrite).eq([Control, List, Read, Write]));
        assert!(permitted(Mode::Full).eq([Control, List, Read, Write, Execute]));
        for mode in Mode::ALL {
            assert_eq!(Mode::parse(mode.as_str()), Some(mode));
        }
        for other in ["", "Full", "read-only", "readonly ", "write"] {
            assert_eq!(Mode::parse(other), None, "{other}");
        }
    }
}
