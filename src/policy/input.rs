//! From the raw arguments of a call to `context.input`.
//!
//! Only places that policies look at are lifted, each by its declared type, by conversions of our own.
//! Cedar's JSON reader never sees a caller's bytes: it would take `{"__entity": …}` for an entity.
//!
//! INVARIANT: a value that is not exactly what a policy would see is never lifted. It is refused, with
//! an error that names the place and never the value.

use std::{borrow::Cow, collections::BTreeMap};

use cedar_policy::{ExpressionConstructionError, RestrictedExpression};

use super::{analysis::InputPath, vocabulary::Shape};
use crate::protocol::json::{Kind, Member, Value};

/// Fraction digits of a Cedar decimal.
const DECIMAL_PLACES: usize = 4;

/// Most values that are lifted from one call: a list of millions fits into a body, but not into a policy
/// decision (each becomes a node of an expression).
const MOST_VALUES: usize = 1_024;
/// Longest number, in bytes, that is looked at as a decimal; one that fits has 19 digits at most, and the
/// rest would be zeros that nobody writes.
const LONGEST_DECIMAL: usize = 64;

/// The places that some policies look at, as a tree.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Wanted {
    below: BTreeMap<String, Self>,
    /// Everything below is looked at, declared attributes one and all.
    whole: bool,
}

impl Wanted {
    pub(crate) fn add(&mut self, path: &InputPath) {
        let mut at = self;
        for segment in &path.segments {
            at = at.below.entry(segment.clone()).or_default();
        }
        at.whole |= path.value;
    }
}

/// Why arguments can't be judged.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Unfit {
    #[error("argument `{0}` can't be represented as declared")]
    Value(String),
    #[error("argument `{0}` comes with a look-alike that an upstream could read in its place")]
    LookAlike(String),
    #[error("argument `{0}` brings the values to judge above {MOST_VALUES}")]
    TooMany(String),
}

impl Unfit {
    /// There are arguments, and nobody has read them.
    pub(crate) fn opaque() -> Self {
        Self::Value("input".to_owned())
    }
}

/// Arguments as policies see them. They are callers' data, and so can't be printed.
pub(crate) enum Lifted<'a> {
    String(Cow<'a, str>),
    Bool(bool),
    Long(i64),
    /// As Cedar writes it.
    Decimal(String),
    Set(Vec<Self>),
    Record(Vec<(&'a str, Self)>),
}

impl Lifted<'_> {
    /// What Cedar evaluates in its place.
    pub(crate) fn into_expression(
        self,
    ) -> Result<RestrictedExpression, ExpressionConstructionError> {
        match self {
            Self::String(text) => Ok(RestrictedExpression::new_string(text.into_owned())),
            Self::Bool(value) => Ok(RestrictedExpression::new_bool(value)),
            Self::Long(value) => Ok(RestrictedExpression::new_long(value)),
            Self::Decimal(text) => Ok(RestrictedExpression::new_decimal(text)),
            Self::Set(elements) => {
                let elements: Result<Vec<_>, _> =
                    elements.into_iter().map(Self::into_expression).collect();
                elements.map(RestrictedExpression::new_set)
            }
            Self::Record(attributes) => {
                let attribute = |(name, value): (&str, Self)| {
                    value.into_expression().map(|value| (name.to_owned(), value))
                };
                let attributes: Result<Vec<_>, _> = attributes.into_iter().map(attribute).collect();
                RestrictedExpression::new_record(attributes?)
            }
        }
    }

    /// An attribute, if there is one; nothing where this is no record.
    pub(crate) fn attribute(&self, name: &str) -> Option<Option<&Self>> {
        match self {
            Self::Record(attributes) => {
                Some(attributes.iter().find(|(known, _)| *known == name).map(|(_, value)| value))
            }
            Self::String(_) | Self::Bool(_) | Self::Long(_) | Self::Decimal(_) | Self::Set(_) => {
                None
            }
        }
    }
}

/// Lifts what is wanted; absent arguments are an empty record.
pub(crate) fn lift<'a>(
    arguments: Option<Value<'a>>,
    wanted: &Wanted,
    shape: &'a Shape,
) -> Result<Lifted<'a>, Unfit> {
    let mut place = Place { names: vec!["input"], left: MOST_VALUES };
    let lifted = match arguments {
        None => None,
        Some(arguments) => value(arguments, wanted, shape, &mut place)?,
    };
    Ok(lifted.unwrap_or_else(|| Lifted::Record(vec![])))
}

/// Where the walk is, for the texts of errors (declared names only), and how many values are left.
struct Place<'a> {
    names: Vec<&'a str>,
    left: usize,
}

impl Place<'_> {
    fn name(&self) -> String {
        self.names.join(".")
    }
}

/// `None` stands for JSON's null: the attribute is absent.
fn value<'a>(
    value: Value<'a>,
    wanted: &Wanted,
    shape: &'a Shape,
    place: &mut Place<'a>,
) -> Result<Option<Lifted<'a>>, Unfit> {
    if value.kind() == Kind::Null {
        return Ok(None);
    }
    place.left = place.left.checked_sub(1).ok_or_else(|| Unfit::TooMany(place.name()))?;
    let lifted = match shape {
        Shape::String => value.as_str().map(Lifted::String),
        Shape::Bool => value.as_bool().map(Lifted::Bool),
        Shape::Long => value.as_number().and_then(|n| n.parse().ok()).map(Lifted::Long),
        Shape::Decimal => value.as_number().and_then(decimal).map(Lifted::Decimal),
        Shape::Set(element) if value.kind() == Kind::Array => {
            return set(value, element, place).map(Some);
        }
        Shape::Record(attributes) if value.kind() == Kind::Object => {
            return record(value, wanted, attributes, place).map(Some);
        }
        Shape::Set(_) | Shape::Record(_) => None,
    };
    lifted.map(Some).ok_or_else(|| Unfit::Value(place.name()))
}

/// Elements are lifted whole. A null among them can't be left out: the set would not be what was sent.
fn set<'a>(
    array: Value<'a>,
    element: &'a Shape,
    place: &mut Place<'a>,
) -> Result<Lifted<'a>, Unfit> {
    let whole = Wanted { whole: true, ..Wanted::default() };
    let lifted = array
        .elements()
        .map(|item| value(item, &whole, element, place)?.ok_or_else(|| Unfit::Value(place.name())));
    Ok(Lifted::Set(lifted.collect::<Result<Vec<_>, _>>()?))
}

/// One walk over the members, however many of them there are.
fn record<'a>(
    object: Value<'a>,
    wanted: &Wanted,
    attributes: &'a BTreeMap<String, Shape>,
    place: &mut Place<'a>,
) -> Result<Lifted<'a>, Unfit> {
    let whole = Wanted { whole: true, ..Wanted::default() };
    let looked_at: Vec<(&'a str, &Shape, &Wanted)> = attributes
        .iter()
        .filter_map(|(name, shape)| match (wanted.whole, wanted.below.get(name)) {
            (true, _) => Some((name.as_str(), shape, &whole)),
            (false, Some(below)) => Some((name.as_str(), shape, below)),
            (false, None) => None,
        })
        .collect();
    let mut found: Vec<Option<Value<'a>>> = vec![None; looked_at.len()];
    for Member { name: key, value, .. } in object.members() {
        for ((name, ..), slot) in looked_at.iter().zip(&mut found) {
            if *key == **name {
                // The only one: a scanned text has no key twice.
                *slot = Some(value);
            } else if looks_alike(&key, name) && !attributes.contains_key(&*key) {
                place.names.push(name);
                return Err(Unfit::LookAlike(place.name()));
            }
        }
    }
    let mut lifted = Vec::with_capacity(looked_at.len());
    for ((name, shape, below), found) in looked_at.into_iter().zip(found) {
        place.names.push(name);
        if let Some(found) = found
            && let Some(value) = value(found, below, shape, place)?
        {
            lifted.push((name, value));
        }
        place.names.pop();
    }
    Ok(Lifted::Record(lifted))
}

/// Whether readers that fold case (Go's `encoding/json`) take one key for the other.
fn looks_alike(key: &str, name: &str) -> bool {
    if key.is_ascii() && name.is_ascii() {
        return key.len() == name.len() && key.eq_ignore_ascii_case(name);
    }
    fold(key).eq(fold(name))
}

/// Upper case first: it brings `ſ` to `S`; lower case then brings the Kelvin sign to `k`.
fn fold(text: &str) -> impl Iterator<Item = char> {
    text.chars().flat_map(char::to_uppercase).flat_map(char::to_lowercase)
}

/// Writes a JSON number as a Cedar decimal, if not one digit is lost.
fn decimal(text: &str) -> Option<String> {
    if text.len() > LONGEST_DECIMAL {
        return None;
    }
    let (mantissa, exponent) = match text.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, exponent.parse::<i32>().ok()?),
        None => (text, 0),
    };
    let (sign, digits) = match mantissa.strip_prefix('-') {
        Some(digits) => ("-", digits),
        None => ("", mantissa),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let numeric = |digits: &str| digits.bytes().all(|byte| byte.is_ascii_digit());
    // A Cedar decimal has at most 15 whole digits, so that any longer shift can't fit anyway.
    if whole.is_empty() || !numeric(whole) || !numeric(fraction) || exponent.unsigned_abs() > 32 {
        return None;
    }
    let shift = usize::try_from(exponent.unsigned_abs()).ok()?;
    let mut all = format!("{whole}{fraction}");
    let mut places = fraction.len();
    if exponent < 0 {
        places += shift;
    } else if shift >= places {
        all.push_str(&"0".repeat(shift - places));
        places = 0;
    } else {
        places -= shift;
    }
    while places > DECIMAL_PLACES || (places > 1 && all.ends_with('0')) {
        all = all.strip_suffix('0')?.to_owned();
        places -= 1;
    }
    let padded = format!("{}{all}", "0".repeat((places + 1).saturating_sub(all.len())));
    let (whole, fraction) = padded.split_at_checked(padded.len() - places)?;
    let whole = whole.trim_start_matches('0');
    let whole = if whole.is_empty() { "0" } else { whole };
    let fraction = if fraction.is_empty() { "0" } else { fraction };
    Some(format!("{sign}{whole}.{fraction}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimals_keep_every_digit_or_nothing() {
        for (number, expected) in [
            ("0", Some("0.0")),
            ("-0", Some("-0.0")),
            ("1", Some("1.0")),
            ("-12.5", Some("-12.5")),
            ("0.0001", Some("0.0001")),
            ("0.00010", Some("0.0001")),
            ("1e3", Some("1000.0")),
            ("1.5E+1", Some("15.0")),
            ("15e-1", Some("1.5")),
            ("0.0015e2", Some("0.15")),
            ("100e-6", Some("0.0001")),
            ("1e-5", None),
            ("0.00001", None),
            ("1e33", None),
            ("1e-2147483648", None),
            ("true", None),
            ("\"1\"", None),
            (&format!("0.5{}", "0".repeat(1_000_000)), None),
        ] {
            assert_eq!(decimal(number).as_deref(), expected, "{number}");
        }
    }

    #[test]
    fn keys_that_fold_alike_are_told() {
        for (key, name, alike) in [
            ("Path", "path", true),
            ("pa\u{17f}s", "pass", true),
            ("\u{212a}ey", "key", true),
            ("path ", "path", false),
            ("pat", "path", false),
            ("\u{c9}t\u{e9}", "\u{e9}t\u{e9}", true),
        ] {
            assert_eq!(looks_alike(key, name), alike, "{key}");
        }
    }
}
