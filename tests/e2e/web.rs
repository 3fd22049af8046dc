//! Plain HTTP: a workload's own calls to a web API, and a web API that is called by others.

use http::Request;
use serde_json::Value;
use tempfile::TempDir;

use crate::{
    http::{Answer, Caller, Outgoing, TRANSPORTS, Transport, whole},
    stub::{Seen, Stub},
    subject::{CA, Lictor},
};

mod answers;
mod behalf;
mod bypass;
mod clients;
mod redirects;
mod requests;
mod upstreams;

/// Permits everything but what is below `/secret`.
const POLICIES: &str = r#"
@id("all") permit (principal, action, resource);

@id("no-secrets")
@reason("secrets are not for agents")
forbid (principal, action, resource == Server::"api")
when { context has http && context.http.path like "/secret*" };
"#;

/// A Lictor beside a workload, in both directions: `/api` leads to the API.
struct Site {
    lictor: Lictor,
}

/// What it is started with. Texts are lines of YAML in flow style.
struct Setup {
    place: String,
    policies: String,
    schema: String,
    route: String,
    also: String,
    upstream: String,
    more: String,
    listener: String,
    rest: String,
}

impl Setup {
    /// In front of an API at this URL.
    fn to(url: &str) -> Self {
        Self::at(&format!("url: '{url}'"))
    }

    /// In front of an API at the place that these keys of its upstream tell.
    fn at(keys: &str) -> Self {
        let none = String::new;
        let (place, policies) = (keys.to_owned(), POLICIES.to_owned());
        Self {
            place,
            policies,
            schema: none(),
            route: none(),
            also: none(),
            upstream: none(),
            more: none(),
            listener: none(),
            rest: none(),
        }
    }

    /// More keys of the route: `headers: [x-a]`.
    fn route(self, keys: &str) -> Self {
        Self { route: format!(", {keys}"), ..self }
    }

    /// More keys of both listeners.
    fn listener(self, keys: &str) -> Self {
        Self { listener: format!(", {keys}"), ..self }
    }

    /// Another API at `/{name}`.
    fn also(mut self, name: &str, url: &str) -> Self {
        self.also.push_str(&format!(", {{ path: /{name}, protocol: http, upstream: {name} }}"));
        self.more.push_str(&format!("- {{ name: {name}, url: '{url}' }}\n"));
        self
    }

    /// A fragment of the schema.
    fn schema(self, text: &str) -> Self {
        Self { schema: text.to_owned(), ..self }
    }

    /// More keys of the upstream.
    fn upstream(self, keys: &str) -> Self {
        Self { upstream: format!(", {keys}"), ..self }
    }

    /// Other policies.
    fn policies(self, text: &str) -> Self {
        Self { policies: text.to_owned(), ..self }
    }

    /// More top-level lines.
    fn with(mut self, line: &str) -> Self {
        self.rest.push_str(line);
        self.rest.push('\n');
        self
    }

    async fn start(self) -> Site {
        let Self { place, policies, schema, route, also, upstream, more, listener, rest } = self;
        let directory = TempDir::new().expect("a directory");
        let here = directory.path();
        CA.svid("/workload").write(here, &[&CA]);
        std::fs::create_dir(here.join("policies")).expect("a directory");
        std::fs::write(here.join("policies/all.cedar"), policies).expect("policies");
        std::fs::write(here.join("policies/all.cedarschema"), schema).expect("a fragment");
        let route = format!(
            "routes: [{{ path: /api, protocol: http, upstream: api{route} }}{also}]{listener}"
        );
        let yaml = format!(
            "identity: {{ spiffe: {{ files: {{ certificate: svid.pem, key: key.pem, \
             bundles: {{ one.test: one.test.pem }} }} }} }}\n\
             listeners:\n\
             - {{ name: out, direction: outbound, bind: '127.0.0.1:0', tls: none, {route} }}\n\
             - {{ name: in, bind: '127.0.0.1:0', tls: mutual, {route} }}\n\
             upstreams:\n- {{ name: api, {place}{upstream} }}\n{more}\
             policy: {{ directory: policies }}\n\
             ledger: {{ directory: ledger }}\n\
             admin: {{ bind: '127.0.0.1:0', tokenFile: token }}\n\
             {rest}"
        );
        std::fs::write(here.join("token"), "a token of operators").expect("a token");
        std::fs::write(here.join("lictor.yaml"), yaml).expect("a configuration");
        Site { lictor: Lictor::run_with(directory, None, ["out", "in"]).await }
    }
}

/// Where an API is.
fn base(api: &Stub, path: &str) -> String {
    format!("http://{}{path}", api.address)
}

/// A request of nothing but what is said.
fn ask(
    caller: &Caller,
    method: &str,
    target: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> Request<Outgoing> {
    let mut request = caller.request_to(method, target, whole(body.to_owned()));
    let host = request.headers().get("host").cloned();
    request.headers_mut().clear();
    request.headers_mut().extend(host.map(|host| (http::header::HOST, host)));
    for (name, value) in headers {
        let name: http::HeaderName = name.parse().expect("a name");
        request.headers_mut().append(name, value.parse().expect("a value"));
    }
    request
}

async fn asked(
    caller: &mut Caller,
    method: &str,
    target: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> Answer {
    let request = ask(caller, method, target, headers, body);
    caller.send(request).await.whole().await
}

/// The method and target that an API has heard.
fn line(seen: &Seen) -> &str {
    seen.head.start.strip_suffix(" HTTP/1.1").expect("a version")
}

/// An answer with this head and body; the head's lines have their ends.
fn reply(status: &str, headers: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\n{headers}\r\n{body}").into_bytes()
}

fn problem(answer: &Answer, status: u16, kind: &str) -> Value {
    let json = answer.json();
    assert_eq!(answer.status, status, "{json}");
    assert_eq!(answer.header("content-type"), Some("application/problem+json"));
    assert_eq!((&json["status"], &json["kind"]), (&status.into(), &kind.into()), "{json}");
    assert_eq!(answer.header("lictor-decision"), json["request_id"].as_str());
    json
}
