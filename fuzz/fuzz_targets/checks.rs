//! The laws that the fuzz targets check; `tests/fuzz_corpus.rs` checks them on the corpus.

use std::{fs, path::PathBuf, sync::OnceLock};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use lictor::ledger::{self, Filter, link_hash};
use lictor::protocol::{Call, Era, Kind, Protocol, a2a, json, mcp, sse, web};
use lictor::response::agent_card;

/// The text, read by our scanner and by serde_json.
pub(crate) fn json(data: &[u8]) {
    let ours = json::scan(data, json::Limits::default());
    let theirs = serde_json::from_slice::<serde_json::Value>(data);
    match (ours, theirs) {
        (Ok(document), Ok(tree)) => assert_eq!(read(document.root()), Some(tree)),
        (Ok(_), Err(error)) => assert!(error.to_string().contains("number out of range")),
        (Err(error), Ok(_)) => assert!(!error.is_malformed(), "{error}"),
        (Err(_), Err(_)) => {}
    }
}

/// A request: lines of `name: value`, an empty line, the body. A first line without a colon is the
/// HTTP method.
pub(crate) fn mcp(data: &[u8]) {
    let (method, headers, body) = request(data);
    if let Ok(call) = mcp::decode(&method, &headers, body.clone()) {
        assert_eq!(call.body, body);
        assert!(!call.targets.is_empty());
        assert_eq!(call.id().is_some(), matches!(call.kind, Kind::Request(_)));
        check_arguments(&call);
    }
}

/// A request as for [`mcp`]; the target, below the endpoint, follows the HTTP method after a space. What
/// is to be sent in its place is the same call.
pub(crate) fn a2a(data: &[u8]) {
    let (method, suffix, query, headers, body) = targeted(data);
    let Ok(call) = a2a::decode(&method, suffix, query, &headers, body.clone()) else { return };
    assert_eq!(call.body, body);
    assert_eq!(call.era.protocol(), Protocol::A2a);
    assert!(!call.targets.is_empty());
    assert_eq!(call.id().is_none(), call.kind == Kind::Operation);
    let facts = call.a2a.as_deref().expect("facts");
    assert_eq!(facts.push_urls.is_empty(), facts.traits.push_hosts.is_empty());
    drop(a2a::check_form(&call));
    if let Some(rest) = &facts.rest {
        let again = a2a::decode(&method, &rest.path, rest.query.as_deref(), &headers, body);
        let again = again.expect("the same call");
        assert_eq!((&again.kind, &again.method), (&call.kind, &call.method));
        assert_eq!((&again.targets, &again.a2a), (&call.targets, &call.a2a));
    }
}

/// A request as for [`a2a`]. What is to be sent in its place is the same call, and stays below where it was sent.
pub(crate) fn web(data: &[u8]) {
    let many = |name: &str| name == "many";
    let (method, below, query, headers, body) = targeted(data);
    let Ok(call) = web::decode(&method, below, query, &headers, body.clone(), many) else {
        return;
    };
    assert_eq!(call.body, body);
    assert_eq!((call.era.protocol(), call.id()), (Protocol::Http, None));
    let facts = call.web.as_deref().expect("facts");
    let (path, query) = (&*facts.rest.path, facts.rest.query.as_deref());
    let again = web::decode(&method, path, query, &headers, body, many).expect("the same call");
    assert_eq!((&again.method, &again.web), (&call.method, &call.web));
    let mut place: url::Url = "https://api.example/base".parse().expect("a URL");
    place.set_path(&format!("/base{path}"));
    place.set_query(query);
    assert_eq!(place.path(), format!("/base{path}"));
    assert_eq!(place.host_str(), Some("api.example"));
}

/// What an agent answers to a call of each kind: a list that was cut can be read again.
pub(crate) fn a2a_answer(data: &[u8]) {
    let mut headers = HeaderMap::new();
    headers.insert("content-type", HeaderValue::from_static("application/json"));
    let rpc = |method: &str| {
        let params = r#"{"message":{},"id":"t"}"#;
        let body = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{params}}}"#);
        a2a::decode(&Method::POST, "", None, &headers, body.into())
    };
    let rest = |path| a2a::decode(&Method::GET, path, None, &headers, Bytes::new());
    for call in [rpc("SendMessage"), rpc("ListTasks"), rest("/tasks"), rest("/v1/tasks/t")] {
        let call = call.expect("decoded");
        let Ok(given) = a2a::answer::read(&call, data) else { continue };
        assert!(given.tasks.len() <= 1 && given.contexts.len() <= 1);
        let Some(listed) = given.listed else { continue };
        let is_shown = |id: &str| id.len().is_multiple_of(2);
        let cut = a2a::answer::read(&call, &listed.only(data, is_shown)).expect("readable");
        let shown: Vec<_> =
            listed.tasks.iter().map(|(id, _)| id).filter(|id| is_shown(id)).collect();
        let left = cut.listed.expect("a list").tasks;
        assert_eq!(left.iter().map(|(id, _)| id).collect::<Vec<_>>(), shown);
    }
}

/// A message of a server. What the cheap look lets pass asks for nothing.
pub(crate) fn server(data: &[u8]) {
    use mcp::server::{Outcome, ServerMessage, decode, may_ask};
    let may_ask = may_ask(data);
    for era in [Era::Legacy, Era::Modern] {
        match decode(data, era) {
            Ok(ServerMessage::Answer { outcome: Outcome::Complete | Outcome::Error, .. })
            | Err(_) => {}
            Ok(_) => assert!(may_ask),
        }
    }
}

/// A hop of a chain of delegation. What has its form is read alike by others, and has no second form.
pub(crate) fn delegation(data: &[u8]) {
    use data_encoding::BASE64URL_NOPAD;
    let Ok(text) = std::str::from_utf8(data) else { return };
    if lictor::delegation::token::check_form(text).is_err() {
        return;
    }
    let parts: Vec<Vec<u8>> = text
        .split('.')
        .map(|part| BASE64URL_NOPAD.decode(part.as_bytes()).expect("decoded before"))
        .collect();
    let again: Vec<String> = parts.iter().map(|part| BASE64URL_NOPAD.encode(part)).collect();
    assert_eq!(again.join("."), text);
    let [header, claims, _signature] = &parts[..] else { panic!("{} parts", parts.len()) };
    let header: serde_json::Value = serde_json::from_slice(header).expect("JSON");
    assert_eq!(header.as_object().map(serde_json::Map::len), Some(3));
    assert_eq!(header["typ"], "agent-delegation+jwt");
    assert!(header["x5c"].as_array().is_some_and(|x5c| !x5c.is_empty()));
    let claims: serde_json::Value = serde_json::from_slice(claims).expect("JSON");
    for name in ["dep", "iat", "exp"] {
        assert!(claims[name].is_u64(), "{name}");
    }
    for name in ["iss", "aud", "sub"] {
        assert!(claims[name].as_str().is_some_and(|id| id.starts_with("spiffe://")), "{name}");
    }
}

/// An agent's card: what comes out names no address but ours in any field that a client takes one from, has
/// no signatures if it was changed, and passes unchanged.
pub(crate) fn card(data: &[u8]) {
    let url = |text: &str| text.parse().expect("a URL");
    let agent = vec![url("http://127.0.0.1:9000/in/agent")];
    let settings = agent_card::Settings {
        public_url: url("https://side.example.org/out/agent"),
        json_rpc: agent.clone(),
        rest: agent,
        demands: agent_card::Demands::MutualTls,
        keys: None,
        signer: None,
    };
    let sent = Bytes::copy_from_slice(data);
    let Ok(card) = agent_card::rewrite(&sent, &settings) else { return };
    let tree: serde_json::Value = serde_json::from_slice(&card).expect("JSON");
    assert!(card == sent || tree.get("signatures").is_none());
    let lists = ["additionalInterfaces", "supportedInterfaces", "additional_interfaces"];
    let lists = lists.iter().chain(&["supported_interfaces"]);
    let interfaces = lists.filter_map(|name| tree.get(*name)?.as_array()).flatten();
    let addresses = interfaces.chain([&tree]).filter_map(|it| it.get("url")?.as_str());
    for address in addresses {
        let address: url::Url = address.parse().expect("a URL");
        assert_eq!(address, settings.public_url);
    }
    assert_eq!(agent_card::rewrite(&card, &settings).as_ref(), Ok(&card));
}

/// A segment of a ledger. Random bytes would not get past the hash, so each line of the input is taken for an entry
/// and linked; the parser behind the hash sees everything. Input that starts with NUL is taken as it is.
pub(crate) fn ledger(data: &[u8]) {
    static DIRECTORY: OnceLock<PathBuf> = OnceLock::new();
    let directory = DIRECTORY.get_or_init(|| {
        let name = format!("lictor-fuzz-ledger-{}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        fs::create_dir_all(&directory).expect("a directory");
        directory
    });
    let segment = match data.strip_prefix(b"\0") {
        Some(raw) => raw.to_vec(),
        None => linked(data),
    };
    let lines = segment.iter().filter(|byte| **byte == b'\n').count() as u64;
    fs::write(directory.join("00000000000000000000.jsonl"), segment).expect("written");
    let report = ledger::verify(directory).expect("readable");
    assert!(report.entries <= lines);
    assert_eq!(report.head.is_some(), report.entries > 0);
    let listed = ledger::list(directory, Filter::default()).expect("readable");
    let listed = listed.flatten().count() as u64;
    assert!(listed >= report.entries && listed <= lines);
}

/// A stream: the first byte gives the size of the chunks.
pub(crate) fn sse(data: &[u8]) {
    let Some((&size, stream)) = data.split_first() else { return };
    let whole = split(stream, stream.len().max(1));
    let cut = split(stream, usize::from(size).max(1));
    assert_eq!(whole.0, stream);
    assert_eq!(cut, whole);
}

fn read(value: json::Value<'_>) -> Option<serde_json::Value> {
    use serde_json::Value;
    Some(match value.kind() {
        json::Kind::Null => Value::Null,
        json::Kind::Bool => Value::Bool(value.as_bool()?),
        json::Kind::Number => serde_json::from_str(value.as_number()?).ok()?,
        json::Kind::String => Value::String(value.as_str()?.into_owned()),
        json::Kind::Array => Value::Array(value.elements().map(read).collect::<Option<_>>()?),
        json::Kind::Object => {
            let member =
                |member: json::Member<'_>| Some((member.name.into_owned(), read(member.value)?));
            Value::Object(value.members().map(member).collect::<Option<_>>()?)
        }
    })
}

/// A request whose first line has the target, too.
fn targeted(data: &[u8]) -> (Method, &str, Option<&str>, HeaderMap, Bytes) {
    let line = data.split(|&byte| byte == b'\n').next().unwrap_or_default();
    let line = std::str::from_utf8(line).unwrap_or_default();
    let (method, target) = line.split_once(' ').unwrap_or(("POST", ""));
    let method = Method::from_bytes(method.as_bytes()).unwrap_or(Method::POST);
    let (suffix, query) = match target.split_once('?') {
        Some((suffix, query)) => (suffix, Some(query)),
        None => (target, None),
    };
    let (_, headers, body) = request(data.get(line.len() + 1..).unwrap_or_default());
    (method, suffix, query, headers, body)
}

fn request(data: &[u8]) -> (Method, HeaderMap, Bytes) {
    let mut method = Method::POST;
    let mut headers = HeaderMap::new();
    let mut rest = data;
    while let Some(end) = rest.iter().position(|&byte| byte == b'\n') {
        let (line, tail) = rest.split_at(end);
        rest = tail.get(1..).unwrap_or_default();
        if line.is_empty() {
            break;
        }
        match line.iter().position(|&byte| byte == b':') {
            Some(colon) => {
                let (name, value) = line.split_at(colon);
                let name = HeaderName::from_bytes(name);
                let value = HeaderValue::from_bytes(value.get(1..).unwrap_or_default());
                if let (Ok(name), Ok(value)) = (name, value) {
                    headers.append(name, value);
                }
            }
            None => method = Method::from_bytes(line).unwrap_or(method),
        }
    }
    (method, headers, Bytes::copy_from_slice(rest))
}

/// The cursor kept in a call reads what another scan of the same bytes reads.
fn check_arguments(call: &Call) {
    let Some(arguments) = call.arguments_value() else { return };
    let again = json::scan(arguments.raw(), json::Limits::default()).expect("scanned before");
    assert_eq!(read(again.root()), read(arguments));
}

/// Lines as the writer would have linked them.
fn linked(data: &[u8]) -> Vec<u8> {
    let mut head = [0; 32];
    let mut segment = Vec::new();
    for json in data.split(|byte| *byte == b'\n') {
        head = link_hash(&head, json);
        segment.extend_from_slice(json);
        segment.push(b'\t');
        segment.extend(data_encoding::HEXLOWER.encode(&head).into_bytes());
        segment.push(b'\n');
    }
    segment
}

/// All bytes that came out, and the data of each event.
fn split(stream: &[u8], size: usize) -> (Vec<u8>, Vec<Vec<u8>>) {
    let mut splitter = sse::Splitter::new(usize::MAX);
    let mut events = Vec::new();
    for chunk in stream.chunks(size) {
        splitter.feed(Bytes::copy_from_slice(chunk), &mut events).expect("no limit");
    }
    let data = events.iter().filter_map(sse::Event::data).map(Into::into).collect();
    let mut out: Vec<u8> = events.iter().flat_map(|event| event.raw().to_vec()).collect();
    out.extend_from_slice(&splitter.into_rest());
    (out, data)
}
