//! What can be wrong with a configuration, told so that its author can put it right.

use std::fmt;

/// Where in the file, such as `listeners[0].routes[1].upstream`; empty means the whole file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Place(String);

impl Place {
    /// A key of this object. Keys that aren't plain words are quoted.
    pub(super) fn key(&self, key: &str) -> Self {
        let plain = !key.is_empty()
            && key.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'));
        Self(match (plain, self.0.is_empty()) {
            (true, true) => key.to_owned(),
            (true, false) => format!("{self}.{key}"),
            (false, _) => format!("{self}[{key:?}]"),
        })
    }

    /// An element of this list.
    pub(super) fn index(&self, index: usize) -> Self {
        Self(format!("{self}[{index}]"))
    }

    /// Whether `inner` is this place or lies within it.
    fn holds(&self, inner: &Self) -> bool {
        match inner.0.strip_prefix(&self.0) {
            Some(rest) => self.0.is_empty() || rest.is_empty() || rest.starts_with(['.', '[']),
            None => false,
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Where.
    pub place: Place,
    /// What; lower-case, without a period.
    pub problem: String,
    /// What to do about it.
    pub hint: Option<String>,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.place.0.is_empty() {
            write!(f, "{}: ", self.place)?;
        }
        f.write_str(&self.problem)?;
        match &self.hint {
            Some(hint) => write!(f, " ({hint})"),
            None => Ok(()),
        }
    }
}

/// Everything that is wrong with one configuration, in the order in which it was found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Faults(Vec<Fault>);

impl Faults {
    /// The faults one by one.
    pub fn iter(&self) -> impl Iterator<Item = &Fault> {
        self.0.iter()
    }

    /// Whether nothing is wrong.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether something at this place or within it is wrong.
    pub(super) fn any_within(&self, place: &Place) -> bool {
        self.0.iter().any(|fault| place.holds(&fault.place))
    }

    pub(super) fn push(&mut self, place: &Place, problem: impl Into<String>) {
        self.0.push(Fault { place: place.clone(), problem: problem.into(), hint: None });
    }

    pub(super) fn push_with(
        &mut self,
        place: &Place,
        problem: impl Into<String>,
        hint: impl Into<String>,
    ) {
        let hint = Some(hint.into());
        self.0.push(Fault { place: place.clone(), problem: problem.into(), hint });
    }

    /// Reports that something is missing, unless it is missing because what stood there was
    /// refused.
    pub(super) fn missing(&mut self, place: &Place) {
        if !self.0.iter().any(|fault| fault.place.holds(place)) {
            self.push(place, "is missing");
        }
    }
}

impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut lines = self.0.iter();
        if let Some(first) = lines.next() {
            write!(f, "{first}")?;
        }
        lines.try_for_each(|fault| write!(f, "\n{fault}"))
    }
}

impl std::error::Error for Faults {}
