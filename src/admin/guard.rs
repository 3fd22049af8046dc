//! Who may use the administration API.
//!
//! The workload shares the pod's loopback, and so may a browser on an operator's machine: an address is no
//! authority. Whoever shows the token of `admin.tokenFile` is an operator. The file is read for each request, so
//! that it can be replaced at any time.
//!
//! INVARIANT: without a configured token nothing of the API is served.
//!
//! Refuses besides: requests that a page of a browser makes (`Origin`), and those for a host name that isn't of this
//! machine, which is what a page reaches by making its own name lead here.

use std::{net::IpAddr, path::Path, sync::Arc};

use axum::{
    Json,
    extract::{Request, State},
    http::{HeaderMap, HeaderValue, StatusCode, header, uri::Authority},
    middleware::Next,
    response::{IntoResponse, Response},
};
use ring::{hmac, rand::SystemRandom};
use serde_json::json;
use tokio::io::AsyncReadExt;

use crate::telemetry::Secret;

/// Shortest and longest token, in bytes.
const TOKEN: std::ops::RangeInclusive<usize> = 16..=4096;

/// Looks at each request to the API.
#[derive(Clone)]
pub(super) struct Guard {
    token_file: Option<Arc<Path>>,
    /// Of this process; what is compared are digests under it.
    key: Arc<Result<hmac::Key, ring::error::Unspecified>>,
}

/// Why a request is not looked at any further.
#[derive(Debug, thiserror::Error)]
enum Refused {
    #[error("`Host` has to be an address or `localhost`")]
    Host,
    #[error("pages of browsers have no business here")]
    Origin,
    #[error("the administration API is off: set `admin.tokenFile` to a file with a token")]
    Off,
    #[error("the file of `admin.tokenFile` can't be read, or holds no token of 16 to 4096 bytes")]
    NoToken,
    #[error("send `Authorization: Bearer` with the token of `admin.tokenFile`")]
    Token,
}

impl Guard {
    pub(super) fn new(token_file: Option<&Path>) -> Self {
        let key = hmac::Key::generate(hmac::HMAC_SHA256, &SystemRandom::new());
        Self { token_file: token_file.map(Into::into), key: Arc::new(key) }
    }

    /// Whether somebody who shows this is an operator.
    async fn check(&self, shown: Option<Secret<Vec<u8>>>) -> Result<(), Refused> {
        let file = self.token_file.as_deref().ok_or(Refused::Off)?;
        let expected = read(file).await.ok_or(Refused::NoToken)?;
        let key = (*self.key).as_ref().map_err(|_| Refused::NoToken)?;
        let shown = shown.ok_or(Refused::Token)?;
        // In constant time, whatever the lengths are.
        let expected = hmac::sign(key, expected.expose());
        hmac::verify(key, shown.expose(), expected.as_ref()).map_err(|_| Refused::Token)
    }
}

/// Lets operators in.
pub(super) async fn admit(State(guard): State<Guard>, request: Request, next: Next) -> Response {
    let checked = match check_names(&request) {
        Ok(()) => guard.check(bearer(request.headers())).await,
        Err(refused) => Err(refused),
    };
    match checked {
        Ok(()) => next.run(request).await,
        Err(refused) => {
            let path = request.uri().path();
            tracing::warn!(path, reason = %refused, "administration refused a request");
            refused.into_response()
        }
    }
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        let status = match self {
            Self::Host | Self::Origin | Self::Off => StatusCode::FORBIDDEN,
            Self::NoToken => StatusCode::SERVICE_UNAVAILABLE,
            Self::Token => StatusCode::UNAUTHORIZED,
        };
        let mut response = (status, Json(json!({ "error": self.to_string() }))).into_response();
        if status == StatusCode::UNAUTHORIZED {
            let challenge = HeaderValue::from_static("Bearer realm=\"lictor\"");
            response.headers_mut().insert(header::WWW_AUTHENTICATE, challenge);
        }
        response
    }
}

fn check_names(request: &Request) -> Result<(), Refused> {
    let mut hosts = request.headers().get_all(header::HOST).iter();
    let (Some(host), None) = (hosts.next(), hosts.next()) else { return Err(Refused::Host) };
    let host: Authority =
        host.to_str().ok().and_then(|host| host.parse().ok()).ok_or(Refused::Host)?;
    if !is_here(&host) || !request.uri().authority().is_none_or(is_here) {
        return Err(Refused::Host);
    }
    if request.headers().contains_key(header::ORIGIN) {
        return Err(Refused::Origin);
    }
    Ok(())
}

/// No name that somebody else can make lead here.
fn is_here(host: &Authority) -> bool {
    let bare = host.host().trim_start_matches('[').trim_end_matches(']');
    !host.as_str().contains('@')
        && (bare.eq_ignore_ascii_case("localhost") || bare.parse::<IpAddr>().is_ok())
}

async fn read(file: &Path) -> Option<Secret<Vec<u8>>> {
    let mut text = Vec::new();
    let limit = u64::try_from(*TOKEN.end()).ok()? + 2;
    tokio::fs::File::open(file).await.ok()?.take(limit).read_to_end(&mut text).await.ok()?;
    text.truncate(text.trim_ascii_end().len());
    TOKEN.contains(&text.len()).then(|| Secret::new(text))
}

/// The one token that is shown (RFC 6750 §2.1).
fn bearer(headers: &HeaderMap) -> Option<Secret<Vec<u8>>> {
    let mut values = headers.get_all(header::AUTHORIZATION).iter();
    let (Some(value), None) = (values.next(), values.next()) else { return None };
    let (scheme, token) = value.as_bytes().split_at_checked("Bearer ".len())?;
    scheme.eq_ignore_ascii_case(b"bearer ").then(|| Secret::new(token.to_vec()))
}
