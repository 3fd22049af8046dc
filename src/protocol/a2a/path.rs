//! The path of a request of the REST binding, taken apart once and put together anew.
//!
//! Servers differ in what they decode, when they split, and what they make of case. What could be
//! two paths to two of them is refused; what is forwarded is written from what was understood.

use http::Method as HttpMethod;

use super::Refusal;
use crate::protocol::{
    Era, Fault,
    method::{Rule, operation},
    target::{decoded, encode},
};

/// A path that is known.
#[derive(Debug)]
pub(super) struct Path {
    /// The era that has it; `None` for the card, which both have.
    pub(super) era: Option<Era>,
    tenant: Option<Box<str>>,
    place: Place,
}

/// What stands behind version and tenant.
#[derive(Debug)]
enum Place {
    Send,
    Stream,
    Tasks,
    Task(Box<str>),
    Cancel(Box<str>),
    Subscribe(Box<str>),
    Configs(Box<str>),
    Config(Box<str>, Box<str>),
    /// The card for callers that are known; its last segments.
    ExtendedCard(&'static str),
    /// The public card; its last segment.
    Card(&'static str),
}

/// Takes a path apart. It starts with a slash and is not the slash alone.
pub(super) fn read(path: &str) -> Result<Path, Refusal> {
    let mut segments = vec![];
    for segment in path.strip_prefix('/').ok_or(ODD)?.split('/') {
        segments.push(decoded(segment).filter(|segment| is_plain(segment)).ok_or(ODD)?);
    }
    let segments: Vec<&str> = segments.iter().map(|segment| &**segment).collect();
    let (era, tenant, place) = match segments.as_slice() {
        [".well-known", "agent-card.json"] => (None, None, Some(Place::Card("agent-card.json"))),
        [".well-known", "agent.json"] => (Some(Era::V03), None, Some(Place::Card("agent.json"))),
        ["v1", rest @ ..] => (Some(Era::V03), None, place(rest, "card")),
        ["agent", "authenticatedExtendedCard"] => {
            let card = Place::ExtendedCard("agent/authenticatedExtendedCard");
            (Some(Era::V03), None, Some(card))
        }
        all => match (place(all, EXTENDED_CARD), all) {
            (Some(place), _) => (Some(Era::V10), None, Some(place)),
            (None, [tenant, rest @ ..]) if is_tenant(tenant) => {
                (Some(Era::V10), Some(Box::from(*tenant)), place(rest, EXTENDED_CARD))
            }
            (None, _) => (None, None, None),
        },
    };
    let place = place.ok_or((Fault::UnknownMethod, "no such operation"))?;
    Ok(Path { era, tenant, place })
}

const ODD: Refusal = (Fault::Invalid, "the path could be read in two ways");
const EXTENDED_CARD: &str = "extendedAgentCard";
const CONFIGS: &str = "pushNotificationConfigs";
/// What can stand behind a task's id and a colon.
const VERBS: [&str; 2] = ["cancel", "subscribe"];

/// Words of paths. A tenant of such a name (in any case, as some servers don't care) would make one
/// path two.
const WORDS: [&str; 5] = ["tasks", "v1", "message:send", "message:stream", EXTENDED_CARD];

fn is_tenant(name: &str) -> bool {
    !name.starts_with('.') && !WORDS.iter().any(|word| word.eq_ignore_ascii_case(name))
}

fn place(segments: &[&str], extended_card: &'static str) -> Option<Place> {
    Some(match segments {
        ["message:send"] => Place::Send,
        ["message:stream"] => Place::Stream,
        ["tasks"] => Place::Tasks,
        ["tasks", last] => match last.rsplit_once(':') {
            Some((id, "cancel")) => Place::Cancel(task(id)?),
            Some((id, "subscribe")) => Place::Subscribe(task(id)?),
            Some(_) | None => Place::Task(task(last)?),
        },
        ["tasks", id, configs] if *configs == CONFIGS => Place::Configs(task(id)?),
        ["tasks", id, configs, config] if *configs == CONFIGS => {
            Place::Config(task(id)?, (*config).into())
        }
        [card] if *card == extended_card => Place::ExtendedCard(extended_card),
        _ => return None,
    })
}

/// The id of a task. One that ends in a verb (in any case) is another task with that verb to some
/// servers, and one that is a word of paths may be a path below a tenant.
fn task(id: &str) -> Option<Box<str>> {
    let verb = id.rsplit_once(':').map(|(_, verb)| verb);
    let is_verb = verb.is_some_and(|verb| VERBS.iter().any(|it| it.eq_ignore_ascii_case(verb)));
    let is_word = WORDS.iter().any(|word| word.eq_ignore_ascii_case(id));
    (!id.is_empty() && !is_verb && !is_word).then(|| id.into())
}

impl Path {
    /// The operation of an HTTP method at this path, and whether it may have a body.
    pub(super) fn rule(&self, method: &HttpMethod) -> Result<(&'static Rule, bool), Refusal> {
        let get = *method == HttpMethod::GET;
        let post = *method == HttpMethod::POST;
        let rule = match &self.place {
            Place::Send if post => &operation::SEND,
            Place::Stream if post => &operation::STREAM,
            Place::Tasks if get => &operation::LIST,
            Place::Task(_) if get => &operation::GET,
            Place::Cancel(_) if post => &operation::CANCEL,
            Place::Subscribe(_) if get || post => &operation::SUBSCRIBE,
            Place::Configs(_) if post => &operation::PUSH_CREATE,
            Place::Configs(_) if get => &operation::PUSH_LIST,
            Place::Config(..) if get => &operation::PUSH_GET,
            Place::Config(..) if *method == HttpMethod::DELETE => &operation::PUSH_DELETE,
            Place::ExtendedCard(_) if get => &operation::EXTENDED_CARD,
            Place::Card(_) if get || *method == HttpMethod::HEAD => &operation::CARD,
            Place::Send
            | Place::Stream
            | Place::Tasks
            | Place::Task(_)
            | Place::Cancel(_)
            | Place::Subscribe(_)
            | Place::Configs(_)
            | Place::Config(..)
            | Place::ExtendedCard(_)
            | Place::Card(_) => {
                return Err((Fault::HttpMethod, "this operation has another HTTP method"));
            }
        };
        Ok((rule, post))
    }

    /// The names of the parameters that the query may have, in camelCase.
    pub(super) fn parameters(&self) -> &'static [&'static str] {
        match self.place {
            Place::Task(_) => &["tenant", "historyLength"],
            Place::Tasks => &[
                "tenant",
                "contextId",
                "status",
                "pageSize",
                "pageToken",
                "historyLength",
                "statusTimestampAfter",
                "includeArtifacts",
            ],
            Place::Configs(_) => &["tenant", "pageSize", "pageToken"],
            Place::Send
            | Place::Stream
            | Place::Cancel(_)
            | Place::Subscribe(_)
            | Place::Config(..)
            | Place::ExtendedCard(_) => &["tenant"],
            Place::Card(_) => &[],
        }
    }

    /// The task that it names.
    pub(super) fn task(&self) -> Option<Box<str>> {
        match &self.place {
            Place::Task(id)
            | Place::Cancel(id)
            | Place::Subscribe(id)
            | Place::Configs(id)
            | Place::Config(id, _) => Some(id.clone()),
            Place::Send
            | Place::Stream
            | Place::Tasks
            | Place::ExtendedCard(_)
            | Place::Card(_) => None,
        }
    }

    /// The tenant that it names.
    pub(super) fn tenant(&self) -> Option<Box<str>> {
        self.tenant.clone()
    }

    /// The path to send.
    pub(super) fn encoded(&self) -> Box<str> {
        let mut path = String::new();
        let segment = |text: &str, path: &mut String| {
            path.push('/');
            encode(text, path);
        };
        match (&self.place, self.era, &self.tenant) {
            (Place::Card(_), _, _) => path.push_str("/.well-known"),
            (Place::ExtendedCard(card), _, _) if card.contains('/') => {}
            (_, Some(Era::V03), _) => path.push_str("/v1"),
            (_, _, Some(tenant)) => segment(tenant, &mut path),
            (_, _, None) => {}
        }
        let word = |word: &str, path: &mut String| {
            path.push('/');
            path.push_str(word);
        };
        match &self.place {
            Place::Send => word("message:send", &mut path),
            Place::Stream => word("message:stream", &mut path),
            Place::Card(name) | Place::ExtendedCard(name) => word(name, &mut path),
            Place::Tasks => word("tasks", &mut path),
            Place::Task(id) | Place::Cancel(id) | Place::Subscribe(id) => {
                word("tasks", &mut path);
                segment(id, &mut path);
            }
            Place::Configs(id) | Place::Config(id, _) => {
                word("tasks", &mut path);
                segment(id, &mut path);
                word(CONFIGS, &mut path);
            }
        }
        match &self.place {
            Place::Cancel(_) => path.push_str(":cancel"),
            Place::Subscribe(_) => path.push_str(":subscribe"),
            Place::Config(_, config) => segment(config, &mut path),
            Place::Send
            | Place::Stream
            | Place::Tasks
            | Place::Task(_)
            | Place::Configs(_)
            | Place::ExtendedCard(_)
            | Place::Card(_) => {}
        }
        path.into()
    }
}

/// Whether a decoded segment is one to every server, however often it decodes.
fn is_plain(segment: &str) -> bool {
    !matches!(segment, "" | "." | "..") && !segment.contains(['/', '\\', '%', ';', '?', '#'])
}
