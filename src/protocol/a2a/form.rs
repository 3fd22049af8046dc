//! The forms of messages that agents of one hub exchange: a private convention, which a route can ask
//! for.
//!
//! A message says in `metadata.form` what it is, and again in the `type` of a data part, as
//! `<namespace>.<form>`, beside a text for humans. Policies go by the first, agents by either; so
//! where the convention is in force, both have to say the same. A task that is handed over to a helper which
//! was made for it says so too, in `metadata.spawned`.

use super::{Facts, Traits, fault};
use crate::protocol::{Call, DecodeError, Fault, Kind};

/// What a message is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Form {
    /// To one agent.
    Direct,
    /// Asks for an answer.
    Request,
    /// To all.
    Broadcast,
    /// To a group.
    Group,
    /// Hands a task over.
    Delegate,
    /// On a topic.
    Topic,
    /// To the board.
    Board,
    /// Asks for a review.
    Review,
    /// Makes a claim, to the board.
    Claim,
    /// Challenges a claim; the task waits for a response.
    Challenge,
    /// Answers a challenge.
    Response,
    /// Ends a dispute.
    Resolution,
    /// Takes a position.
    Position,
    /// Signs.
    Signature,
}

impl Form {
    /// All of them.
    pub const ALL: [Self; 14] = [
        Self::Direct,
        Self::Request,
        Self::Broadcast,
        Self::Group,
        Self::Delegate,
        Self::Topic,
        Self::Board,
        Self::Review,
        Self::Claim,
        Self::Challenge,
        Self::Response,
        Self::Resolution,
        Self::Position,
        Self::Signature,
    ];

    /// The name on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Request => "request",
            Self::Broadcast => "broadcast",
            Self::Group => "group",
            Self::Delegate => "delegate",
            Self::Topic => "topic",
            Self::Board => "board",
            Self::Review => "review",
            Self::Claim => "claim",
            Self::Challenge => "challenge",
            Self::Response => "response",
            Self::Resolution => "resolution",
            Self::Position => "position",
            Self::Signature => "signature",
        }
    }

    fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|form| form.as_str() == name)
    }

    /// The form that the type of a data part names.
    fn of_type(name: &str) -> Option<Self> {
        name.rsplit_once('.').and_then(|(_, form)| Self::parse(form))
    }
}

/// The form of a message, for routes on which the convention is in force; `None` for a message
/// without one.
///
/// # Errors
/// A form that doesn't exist, a form without its text or data part, a data part of another form, and
/// a data part of a form in a message that names none; `metadata.spawned` that is no boolean, or true of
/// anything but a task that is handed over.
pub fn check_form(call: &Call) -> Result<Option<Form>, DecodeError> {
    let Some(facts) = &call.a2a else { return Ok(None) };
    form_of(facts).map_err(|detail| DecodeError {
        id: call.id().cloned(),
        rest: call.kind == Kind::Operation,
        ..fault(Fault::Params, call.era, detail)
    })
}

fn form_of(facts: &Facts) -> Result<Option<Form>, &'static str> {
    let Facts { traits: Traits { form, parts, spawned, .. }, data_types, .. } = facts;
    let form = match form {
        Some(name) => Some(Form::parse(name).ok_or("`metadata.form` is no known form")?),
        None => None,
    };
    if data_types.iter().filter_map(|name| Form::of_type(name)).any(|of| Some(of) != form) {
        return Err("a data part is of another form than `metadata.form`");
    }
    if facts.spawned_is_odd {
        return Err("`metadata.spawned` is neither true nor false");
    }
    if *spawned && form != Some(Form::Delegate) {
        return Err("`metadata.spawned` goes with the form `delegate` only");
    }
    if form.is_some() {
        if !parts.contains("text") {
            return Err("a message of a form has a text part");
        }
        if !data_types.iter().any(|name| Form::of_type(name) == form) {
            return Err("a message of a form has a data part whose `type` names it");
        }
    }
    Ok(form)
}
