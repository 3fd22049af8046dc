//! [`Tag`]: which endpoint a session is at, in the session's id.
//!
//! What the server calls `f00d` is `f00d.0123456789abcdef` to callers and to the rest of Lictor; the end is taken
//! off again on the way to the server. A tag is the beginning of the SHA-256 of the endpoint's URL: the order of
//! endpoints may change, and those of one upstream never share one.
//!
//! INVARIANT: to the rest of Lictor a session is its id with the tag. Whose it is is looked up by that, so a
//! caller that writes another tag names a session that isn't there, and two servers that hand out the same id
//! have handed out two sessions.

use data_encoding::HEXLOWER;
use http::{HeaderMap, HeaderValue};
use sha2::{Digest, Sha256};
use url::Url;

/// The header of MCP's sessions.
const SESSION: &str = "mcp-session-id";

/// Characters of a tag.
const LENGTH: usize = 16;

/// The end of the ids of one endpoint's sessions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Tag(Box<str>);

impl Tag {
    pub(super) fn of(url: &Url) -> Self {
        let mut tag = HEXLOWER.encode(&Sha256::digest(url.as_str()));
        tag.truncate(LENGTH);
        Self(tag.into())
    }

    /// Puts the tag on the session ids of an answer.
    pub(super) fn put_on(&self, headers: &mut HeaderMap) {
        let http::header::Entry::Occupied(mut ids) = headers.entry(SESSION) else { return };
        for id in ids.iter_mut() {
            let tagged = [id.as_bytes(), b".", self.0.as_bytes()].concat();
            // It can't fail: what is added is ASCII.
            if let Ok(tagged) = HeaderValue::from_bytes(&tagged) {
                *id = tagged;
            }
        }
    }
}

/// Takes the tag off the session id of a call. `None` if it belongs to no session, and `Some(None)` if its session's
/// id has no tag.
pub(super) fn take_off(headers: &mut HeaderMap) -> Option<Option<Tag>> {
    let id = headers.get(SESSION)?;
    let split = id.to_str().ok().and_then(|id| id.rsplit_once('.'));
    let Some((own, tag)) = split.filter(|(_, end)| is_tag(end)) else { return Some(None) };
    let (own, tag) = (HeaderValue::from_str(own).ok()?, Tag(tag.into()));
    headers.insert(SESSION, own);
    Some(Some(tag))
}

fn is_tag(text: &str) -> bool {
    text.len() == LENGTH && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn tag(url: &str) -> Tag {
        Tag::of(&Url::parse(url).expect("a URL"))
    }

    fn with(id: &str) -> HeaderMap {
        let id = HeaderValue::from_str(id).expect("a value");
        [(http::HeaderName::from_static(SESSION), id)].into_iter().collect()
    }

    #[test]
    fn tags_are_what_they_were() {
        // They are in the ids of sessions that outlive a process: never to change.
        assert_eq!(tag("http://127.0.0.1:9000/mcp"), Tag("c0995675546f77fb".into()));
        assert_ne!(tag("http://127.0.0.1:9000/mcp"), tag("http://127.0.0.1:9001/mcp"));
    }

    #[test]
    fn ids_without_a_tag_stay_as_they_are() {
        for id in ["a", "a.b", ".", "a.0123456789ABCDEF", "a.0123456789abcde", "0123456789abcdef"] {
            let mut headers = with(id);
            assert_eq!(take_off(&mut headers), Some(None), "{id}");
            assert_eq!(headers, with(id));
        }
        assert_eq!(take_off(&mut HeaderMap::new()), None);
    }

    #[test]
    fn answers_without_a_session_stay_as_they_are() {
        let mut headers = HeaderMap::new();
        tag("http://127.0.0.1:9000/mcp").put_on(&mut headers);
        assert!(headers.is_empty());
    }

    proptest! {
        #[test]
        fn what_is_put_on_is_taken_off(id in "[!-~]{1,40}(\\.[0-9a-f]{16})?") {
            let mut headers = with(&id);
            let tag = tag("https://files.example.org/mcp");
            tag.put_on(&mut headers);
            prop_assert_ne!(&headers, &with(&id));
            prop_assert_eq!(take_off(&mut headers), Some(Some(tag)));
            prop_assert_eq!(headers, with(&id));
        }
    }
}
