//! The media type of a body that is to be read as JSON.
//!
//! A body in another encoding would be judged in one reading and run in another, so nothing but JSON
//! in UTF-8 passes, as it is.

use http::{
    HeaderMap,
    header::{CONTENT_ENCODING, CONTENT_TYPE},
};

/// Whether the headers call the body JSON (by one of `names`, without regard to case) in UTF-8 and
/// without a content coding. `Content-Type` has to stand there once; whoever calls checks that.
pub(super) fn check_json(headers: &HeaderMap, names: &[&str]) -> Result<(), &'static str> {
    let encoded = headers.get_all(CONTENT_ENCODING).iter().any(|value| {
        !value.as_bytes().split(|&byte| byte == b',').all(|coding| {
            let coding = coding.trim_ascii();
            coding.is_empty() || coding.eq_ignore_ascii_case(b"identity")
        })
    });
    if encoded {
        return Err("encoded bodies are not accepted; send it without `Content-Encoding`");
    }
    match headers.get(CONTENT_TYPE) {
        Some(value) if is_utf8_json(value.as_bytes(), names) => Ok(()),
        Some(_) | None => Err("`Content-Type` is not `application/json` in UTF-8"),
    }
}

fn is_utf8_json(value: &[u8], names: &[&str]) -> bool {
    let mut parts = value.split(|&byte| byte == b';').map(<[u8]>::trim_ascii);
    let essence = parts.next().unwrap_or_default();
    names.iter().any(|name| essence.eq_ignore_ascii_case(name.as_bytes()))
        && parts.all(|parameter| {
            let mut halves = parameter.splitn(2, |&byte| byte == b'=').map(<[u8]>::trim_ascii);
            let name = halves.next().unwrap_or_default();
            let value = halves.next().unwrap_or_default();
            let quoted = value.strip_prefix(b"\"").and_then(|value| value.strip_suffix(b"\""));
            !name.eq_ignore_ascii_case(b"charset")
                || quoted.unwrap_or(value).eq_ignore_ascii_case(b"utf-8")
        })
}
