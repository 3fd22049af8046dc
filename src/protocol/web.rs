//! Plain HTTP: one request to a web API below the path of a route → one [`Call`].
//!
//! Nothing is known of the API, so a call is its HTTP method on the server, and everything that tells
//! calls apart is for policies: the path, the query, what the body is. All of it is decoded once here;
//! what is forwarded is written from it.
//!
//! A body that calls itself JSON is read as strictly as the arguments of a tool. Others are opaque:
//! nothing can be said of them but their type, and no policy that looks at arguments permits them.
//!
//! Refused: methods that aren't in [`WEB_METHODS`](super::method::WEB_METHODS), a body where the method
//! gives it no meaning, paths and queries that two servers could take apart in two ways, a repeated
//! parameter (servers differ in which one they take), `_method` (which makes another method of it), a
//! repeated header that decides something.
//!
//! Sources: RFC 9110 §9, RFC 3986 §3.3 and §3.4, URL Standard "application/x-www-form-urlencoded".

use bytes::Bytes;
use http::{
    HeaderMap, Method as HttpMethod,
    header::{AUTHORIZATION, CONTENT_ENCODING, CONTENT_TYPE},
};

use super::{Call, DecodeError, Era, Fault, Kind, Method, Rest, Target, json, media};
use path::Path;
use query::Query;

mod facts;
mod path;
mod query;

#[cfg(test)]
mod tests;

pub use facts::{Facts, Traits};

/// Longest path and query, in bytes as they were sent.
const LONGEST: usize = 8 << 10;

/// Decodes a request on a route of plain HTTP.
///
/// `below` is what follows the path of the route, as it was sent; it is empty or starts with a slash.
/// `query` comes without its question mark, `body` without any transfer coding. `may_repeat` tells which
/// parameters are lists to the API, so that their names may be there again.
///
/// # Errors
/// Everything that could be more than one call to different readers; see the module and [`Fault`].
pub fn decode(
    method: &HttpMethod,
    below: &str,
    query: Option<&str>,
    headers: &HeaderMap,
    body: Bytes,
    may_repeat: impl Fn(&str) -> bool,
) -> Result<Call, DecodeError> {
    let unknown = (Fault::HttpMethod, "this HTTP method is not served here");
    let rule = Method::of_web(method.as_str()).rule().ok_or(unknown).map_err(fault)?;
    let (path, query) = read(below, query, may_repeat).map_err(fault)?;
    for name in [AUTHORIZATION, CONTENT_TYPE, CONTENT_ENCODING] {
        if headers.get_all(&name).iter().nth(1).is_some() {
            let detail = format!("repeated header `{name}`").into();
            return Err(DecodeError { detail, ..fault((Fault::Invalid, "")) });
        }
    }
    if !body.is_empty() && !may_have_body(method) {
        return Err(fault((Fault::Invalid, "a request of this method has no body here")));
    }
    let content_type = essence(headers).map_err(fault)?;
    let mut traits = Traits {
        path: path.text().into(),
        depth: path.depth(),
        parameters: query.names(),
        query: query.texts(),
        content_type,
        opaque: false,
    };
    let mut index = json::Index::default();
    let mut arguments = None;
    match traits.content_type.as_deref().filter(|essence| is_json(essence)) {
        _ if body.is_empty() => {}
        Some(essence) => {
            let wrong = |detail| fault((Fault::MediaType, detail));
            media::check_json(headers, &[essence]).map_err(wrong)?;
            let document =
                json::scan_and_digest(&body, json::Limits::default()).map_err(unreadable)?;
            index = document.into_index();
            arguments = body.iter().position(|byte| !byte.is_ascii_whitespace());
        }
        None => traits.opaque = true,
    }
    let rest = Rest { path: path.encoded(), query: query.encoded() };
    Ok(Call {
        era: Era::Http,
        kind: Kind::Operation,
        method: Method::Known(rule),
        targets: vec![Target::Server],
        version: None,
        session: None,
        continuation: None,
        progress_token: None,
        body,
        a2a: None,
        web: Some(Box::new(Facts { traits, rest })),
        arguments,
        index,
    })
}

/// Where a request to this path and query would go; see [`decode`].
///
/// # Errors
/// If they could be read in two ways.
pub fn target(
    below: &str,
    query: Option<&str>,
    may_repeat: impl Fn(&str) -> bool,
) -> Result<Rest, DecodeError> {
    let (path, query) = read(below, query, may_repeat).map_err(fault)?;
    Ok(Rest { path: path.encoded(), query: query.encoded() })
}

fn read(
    below: &str,
    query: Option<&str>,
    may_repeat: impl Fn(&str) -> bool,
) -> Result<(Path, Query), Refusal> {
    if below.len() + query.map_or(0, str::len) > LONGEST {
        return Err((Fault::Invalid, "path and query are longer than 8 KiB"));
    }
    Ok((Path::read(below)?, Query::read(query, may_repeat)?))
}

/// What a refusal consists of.
type Refusal = (Fault, &'static str);

fn fault((fault, detail): Refusal) -> DecodeError {
    let (id, notification, requested, rest) = (None, false, None, false);
    DecodeError { fault, id, notification, era: Era::Http, detail: detail.into(), requested, rest }
}

fn unreadable(error: json::ScanError) -> DecodeError {
    let kind = if error.is_malformed() { Fault::Parse } else { Fault::Invalid };
    DecodeError { detail: error.to_string().into(), ..fault((kind, "")) }
}

/// Elsewhere it has no meaning, and servers differ in whether they read it (RFC 9110 §9.3.1, §9.3.5).
fn may_have_body(method: &HttpMethod) -> bool {
    matches!(*method, HttpMethod::POST | HttpMethod::PUT | HttpMethod::PATCH)
}

/// The media type without parameters, in lower case.
fn essence(headers: &HeaderMap) -> Result<Option<Box<str>>, Refusal> {
    const ODD: Refusal = (Fault::MediaType, "`Content-Type` is no media type");
    let Some(value) = headers.get(CONTENT_TYPE) else { return Ok(None) };
    let value = value.to_str().map_err(|_| ODD)?;
    let (essence, parameters) = value.split_once(';').unwrap_or((value, ""));
    let essence = essence.trim();
    let token = |text: &str| {
        let other = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$&-^_.+".contains(&byte);
        !text.is_empty() && text.bytes().all(other)
    };
    let whole = essence.split_once('/').is_some_and(|(kind, name)| token(kind) && token(name));
    // A list of them, of which readers take the first or the last.
    let several = parameters.contains(',') && !parameters.contains('"');
    if !whole || several {
        return Err(ODD);
    }
    Ok(Some(essence.to_ascii_lowercase().into()))
}

/// Whether a media type says that the body is one JSON text (RFC 6839 §3.1).
fn is_json(essence: &str) -> bool {
    let name = essence.rsplit('/').next().unwrap_or_default();
    matches!(name, "json" | "x-json") || name.ends_with("+json")
}
