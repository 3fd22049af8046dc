//! Token services, and what is asked of them.

use url::Url;

use super::{Reader, names, shape};
use crate::{
    config::fault::Place,
    upstream::settings::{ClientSecret, TokenExchange},
};

impl Reader<'_> {
    pub(super) fn token_exchange(
        &mut self,
        it: shape::TokenExchange,
        place: &Place,
    ) -> Option<TokenExchange> {
        let at = place.key("url");
        let url = self.required(it.url, &at);
        let url = url.and_then(|text| self.url(&text, &at)).and_then(|url| {
            // Whoever answers gets users' tokens.
            if url.scheme() == "http" && !names::is_loopback(&url) {
                let hint = "say `https://`, with `roots` where it has no public name";
                self.faults.push_with(&at, "plain HTTP is for loopback addresses only", hint);
                return None;
            }
            Some(url)
        });
        let verification =
            url.as_ref().and_then(|url| self.verification(url, None, it.roots, place));
        let at = place.key("clientId");
        let client_id = self.required(it.client_id, &at);
        if client_id.as_ref().is_some_and(String::is_empty) {
            self.faults.push(&at, "is empty");
        }
        let secret = self.client_secret(it.client_secret_file, it.client_secret_env, place);
        if it.audience.is_none() && it.resource.is_none() {
            let hint = "a token for no upstream in particular would be good for any";
            self.faults.push_with(place, "needs `audience` or `resource`", hint);
        }
        if it.audience.as_ref().is_some_and(String::is_empty) {
            self.faults.push(&place.key("audience"), "is empty");
        }
        // RFC 8693 §2.1.
        let absolute = |text: &String| Url::parse(text).is_ok_and(|url| url.fragment().is_none());
        if it.resource.as_ref().is_some_and(|text| !absolute(text)) {
            let at = place.key("resource");
            self.faults.push(&at, "has to be an absolute URI without a fragment");
        }
        let at = place.key("scopes");
        for (index, scope) in it.scopes.iter().enumerate() {
            if !is_scope(scope) {
                let hint = "visible ASCII without spaces, quotes and backslashes";
                self.faults.push_with(&at.index(index), "is no scope", hint);
            }
        }
        Some(TokenExchange {
            url: url?,
            verification: verification?,
            client_id: client_id?,
            client_secret: secret?,
            audience: it.audience,
            resource: it.resource,
            scopes: it.scopes,
            required: it.required.unwrap_or(true),
        })
    }

    fn client_secret(
        &mut self,
        file: Option<String>,
        variable: Option<String>,
        place: &Place,
    ) -> Option<ClientSecret> {
        match (file, variable) {
            (Some(_), Some(_)) => {
                let problem = "has both `clientSecretFile` and `clientSecretEnv`; keep one";
                self.faults.push(place, problem);
                None
            }
            (None, None) => {
                self.faults.push(place, "needs `clientSecretFile` or `clientSecretEnv`");
                None
            }
            (file @ Some(_), None) => {
                self.file(file, &place.key("clientSecretFile")).map(ClientSecret::File)
            }
            (None, Some(name)) if std::env::var_os(&name).is_some_and(|it| !it.is_empty()) => {
                Some(ClientSecret::Environment(name))
            }
            (None, Some(name)) => {
                let problem = format!("the environment has no `{name}`");
                self.faults.push(&place.key("clientSecretEnv"), problem);
                None
            }
        }
    }
}

/// The `scope-token` of RFC 6749 §3.3.
fn is_scope(text: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'"' | b'\\');
    !text.is_empty() && text.bytes().all(fits)
}
