//! The request to a token service (RFC 8693 §2.1).

use std::{io, path::Path};

use bytes::Bytes;
use data_encoding::BASE64;
use http::{HeaderValue, Method, header, request::Parts};
use url::form_urlencoded::{self, Serializer};

use super::{UserToken, answer::ACCESS_TOKEN};
use crate::{
    telemetry::Secret,
    upstream::{
        SetupError,
        settings::{ClientSecret, TokenExchange},
    },
};

const GRANT: &str = "urn:ietf:params:oauth:grant-type:token-exchange";

/// Longest client secret in bytes.
const LONGEST_SECRET: u64 = 4096;

/// What is the same in every request.
pub(super) struct Request {
    client_id: Box<str>,
    secret: ClientSecret,
    /// What is asked for, as parameters.
    wanted: Box<[(&'static str, String)]>,
}

impl Request {
    pub(super) fn new(settings: &TokenExchange) -> Result<Self, SetupError> {
        let scope = Some(settings.scopes.join(" ")).filter(|scope| !scope.is_empty());
        let wanted = [
            ("audience", settings.audience.clone()),
            ("resource", settings.resource.clone()),
            ("scope", scope),
        ];
        let wanted = wanted.into_iter().filter_map(|(key, value)| Some((key, value?))).collect();
        read(&settings.client_secret).map_err(SetupError::ClientSecret)?;
        Ok(Self {
            client_id: settings.client_id.as_str().into(),
            secret: settings.client_secret.clone(),
            wanted,
        })
    }

    /// The request that exchanges a token. The secret is read anew, so that it can be changed under way.
    pub(super) async fn write(&self, user: &UserToken) -> io::Result<(Parts, Bytes)> {
        let place = self.secret.clone();
        let secret = tokio::task::spawn_blocking(move || read(&place)).await;
        let secret = secret.map_err(io::Error::other)??;
        let mut parts = http::Request::new(()).into_parts().0;
        parts.method = Method::POST;
        parts.headers.insert(header::AUTHORIZATION, basic(&self.client_id, &secret)?);
        parts.headers.insert(header::ACCEPT, HeaderValue::from_static("application/json"));
        let form = HeaderValue::from_static("application/x-www-form-urlencoded");
        parts.headers.insert(header::CONTENT_TYPE, form);
        let mut form = Serializer::new(String::new());
        form.append_pair("grant_type", GRANT)
            .append_pair("subject_token", user.0.expose())
            .append_pair("subject_token_type", ACCESS_TOKEN)
            .append_pair("requested_token_type", ACCESS_TOKEN)
            .extend_pairs(self.wanted.iter().map(|(key, value)| (key, value)));
        Ok((parts, form.finish().into()))
    }
}

/// RFC 6749 §2.3.1: both parts are form-encoded first.
fn basic(client_id: &str, secret: &Secret<String>) -> io::Result<HeaderValue> {
    let encoded = |text: &str| form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>();
    let pair = format!("{}:{}", encoded(client_id), encoded(secret.expose()));
    let value = format!("Basic {}", BASE64.encode(pair.as_bytes()));
    let mut value = HeaderValue::try_from(value).map_err(io::Error::other)?;
    value.set_sensitive(true);
    Ok(value)
}

fn read(secret: &ClientSecret) -> io::Result<Secret<String>> {
    let secret = match secret {
        ClientSecret::File(path) => read_file(path)?,
        ClientSecret::Environment(name) => std::env::var(name).map_err(io::Error::other)?,
    };
    if secret.is_empty() {
        return Err(io::Error::other("it is empty"));
    }
    Ok(Secret::new(secret))
}

fn read_file(path: &Path) -> io::Result<String> {
    use io::Read as _;
    let mut text = String::new();
    let read = std::fs::File::open(path)?.take(LONGEST_SECRET + 1).read_to_string(&mut text)?;
    if u64::try_from(read).is_ok_and(|read| read > LONGEST_SECRET) {
        return Err(io::Error::other(format!("it is longer than {LONGEST_SECRET} bytes")));
    }
    text.truncate(text.trim_end().len());
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_secrets_are_encoded_before_they_are_joined() {
        for (client_id, secret, pair) in [
            ("lictor", "hunter2", "lictor:hunter2"),
            ("a:b", "c:d", "a%3Ab:c%3Ad"),
            ("a b", "ä+&=%", "a+b:%C3%A4%2B%26%3D%25"),
        ] {
            let value = basic(client_id, &Secret::new(secret.to_owned())).unwrap();
            assert!(value.is_sensitive());
            let sent = value.to_str().unwrap().strip_prefix("Basic ").unwrap();
            assert_eq!(BASE64.decode(sent.as_bytes()).unwrap(), pair.as_bytes());
        }
    }
}
