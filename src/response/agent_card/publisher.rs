//! [`Publisher`]: the card of one route, as callers get it.

use std::{sync::Arc, time::Duration};

use arc_swap::ArcSwapOption;
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, header::IF_NONE_MATCH};
use sha2::{Digest, Sha256};

use super::{Error, Settings, rewrite};

/// Rewrites the card of one route. A card that comes again is answered with what was made of it the
/// first time: most signatures are different each time, and its tag would be.
#[derive(Debug)]
pub struct Publisher {
    settings: Settings,
    last: ArcSwapOption<(Bytes, Arc<Published>)>,
}

/// A card as callers get it.
#[derive(Debug)]
pub struct Published {
    /// The document; `application/json`.
    pub bytes: Bytes,
    /// A strong entity tag of it (RFC 9110 §8.8.3); the agent's own doesn't fit what was rewritten.
    pub etag: HeaderValue,
}

impl Publisher {
    /// Has published nothing yet.
    pub fn new(settings: Settings) -> Self {
        Self { settings, last: ArcSwapOption::empty() }
    }

    /// What it rewrites with.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The card as callers get it.
    ///
    /// # Errors
    /// As [`rewrite`].
    pub fn publish(&self, card: &Bytes) -> Result<Arc<Published>, Error> {
        if let Some(last) = &*self.last.load()
            && last.0 == card
        {
            return Ok(Arc::clone(&last.1));
        }
        let bytes = rewrite(card, &self.settings)?;
        let published = Arc::new(Published { etag: etag(&bytes), bytes });
        self.last.store(Some(Arc::new((card.clone(), Arc::clone(&published)))));
        Ok(published)
    }
}

impl Published {
    /// Whether the caller has this very card, by its `If-None-Match` (RFC 9110 §13.1.2); 304 is due then.
    pub fn is_known_by(&self, headers: &HeaderMap) -> bool {
        let values = headers.get_all(IF_NONE_MATCH).iter();
        let tags = values.filter_map(|value| value.to_str().ok()).flat_map(|text| text.split(','));
        tags.map(str::trim).any(|tag| tag == "*" || tag.trim_start_matches("W/") == self.etag)
    }
}

/// `Cache-Control` of a card that may be used for so long. Only by the caller itself: who may see a card is
/// for the policies.
pub fn cache_control(fresh_for: Duration) -> HeaderValue {
    let text = format!("private, max-age={}", fresh_for.as_secs());
    text.try_into().unwrap_or(HeaderValue::from_static("no-store"))
}

#[expect(clippy::expect_used, reason = "digits in quotation marks are a header's value")]
fn etag(card: &[u8]) -> HeaderValue {
    let digest = data_encoding::HEXLOWER.encode(&Sha256::digest(card));
    format!("\"{digest}\"").try_into().expect("digits")
}

#[cfg(test)]
mod tests {
    use super::{
        super::{Demands, Signer},
        *,
    };

    fn publisher(signer: Option<Signer>) -> Publisher {
        let agent = url::Url::parse("http://127.0.0.1:9000/a2a").expect("valid");
        Publisher::new(Settings {
            public_url: url::Url::parse("https://side.example.org/a2a").expect("valid"),
            json_rpc: vec![agent],
            rest: Vec::new(),
            demands: Demands::Nothing,
            keys: None,
            signer: signer.map(Arc::new),
        })
    }

    fn card(name: &str) -> Bytes {
        format!(r#"{{"name":"{name}","skills":[],"url":"http://127.0.0.1:9000/a2a"}}"#).into()
    }

    #[test]
    fn a_card_that_comes_again_keeps_its_signatures_and_tag() {
        let pem = rcgen::KeyPair::generate().expect("a key").serialize_pem();
        let publisher = publisher(Signer::from_pem(pem.as_bytes(), "lictor", None).ok());
        let first = publisher.publish(&card("a")).expect("a card");
        let again = publisher.publish(&card("a")).expect("a card");
        assert_eq!((&first.bytes, &first.etag), (&again.bytes, &again.etag));
        let other = publisher.publish(&card("b")).expect("a card");
        assert_ne!((&first.bytes, &first.etag), (&other.bytes, &other.etag));
        assert!(publisher.publish(&Bytes::from_static(b"{}")).is_err());
    }

    #[test]
    fn tags_are_compared_as_caches_send_them() {
        let published = publisher(None).publish(&card("a")).expect("a card");
        let tag = published.etag.to_str().expect("text").to_owned();
        for (sent, known) in [
            (vec![], false),
            (vec![tag.clone()], true),
            (vec![format!("W/{tag}")], true),
            (vec![format!("\"x,y\", {tag}")], true),
            (vec!["\"x\"".to_owned(), tag.clone()], true),
            (vec!["*".to_owned()], true),
            (vec![tag.trim_matches('"').to_owned()], false),
            (vec!["\"x\"".to_owned()], false),
        ] {
            let mut headers = HeaderMap::new();
            for value in &sent {
                headers.append(IF_NONE_MATCH, value.parse().expect("a value"));
            }
            assert_eq!(published.is_known_by(&headers), known, "{sent:?}");
        }
        assert_eq!(cache_control(Duration::from_millis(59_900)), "private, max-age=59");
    }
}
