//! An agent of the demo: a small MCP client (revision 2025-11-25) with an SVID.

use std::{path::Path, sync::Arc};

use bytes::Bytes;
use http::{Request, Response, header};
use http_body_util::{BodyExt, Full};
use hyper::{body::Incoming, client::conn::http1};
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use serde::Deserialize;
use serde_json::Value;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::TRUST_DOMAIN;
use crate::{
    identity::{Files, Settings, Source, SpiffeId, SpiffeIdError, StartError},
    protocol::sse::Splitter,
    upstream,
};

/// Longest event that the demo server can send.
const LONGEST: usize = 1 << 20;

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum CallError {
    #[error("no identity")]
    Identity(#[from] StartError),
    #[error("no SPIFFE ID")]
    Id(#[from] SpiffeIdError),
    #[error("no TLS")]
    Tls(#[from] upstream::SetupError),
    #[error("no connection")]
    Connect(#[from] std::io::Error),
    #[error("no HTTP")]
    Http(#[from] hyper::Error),
    #[error("no request")]
    Request(#[from] http::Error),
    #[error("the answer holds no message")]
    Empty,
    #[error("the answer can't be read")]
    Json(#[from] serde_json::Error),
}

/// A connected agent.
pub(super) struct Caller {
    sender: http1::SendRequest<Full<Bytes>>,
    authority: String,
    session: Option<String>,
    id: u32,
}

/// What an agent heard.
pub(super) struct Heard {
    /// In one line.
    pub(super) text: String,
    /// The decision id, which only a refusal tells.
    pub(super) decision: Option<String>,
}

#[derive(Deserialize)]
struct Message {
    method: Option<String>,
    result: Option<Value>,
    error: Option<RpcError>,
}

#[derive(Deserialize)]
struct RpcError {
    code: i64,
    message: String,
    data: Option<Value>,
}

impl Caller {
    /// Connects with the SVID of this name, to nobody but the demo's Lictor.
    pub(super) async fn connect(
        home: &Path,
        name: &str,
        authority: &str,
    ) -> Result<Self, CallError> {
        let files = Files {
            certificate: home.join(format!("{name}.pem")),
            key: home.join(format!("{name}.key")),
            bundles: [(TRUST_DOMAIN.to_owned(), home.join("ca.pem"))].into(),
        };
        let source = Source::start(Settings::Files(files), &tokio::runtime::Handle::current())?;
        let lictor = SpiffeId::parse(&format!("spiffe://{TRUST_DOMAIN}/lictor"))?;
        let mut config = upstream::client_config(&source, lictor)?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        let stream = TcpStream::connect(authority).await?;
        let name = ServerName::IpAddress(stream.peer_addr()?.ip().into());
        let stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await?;
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        Ok(Self { sender, authority: authority.to_owned(), session: None, id: 0 })
    }

    /// Opens a session.
    pub(super) async fn initialize(&mut self) -> Result<Heard, CallError> {
        let params = r#"{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"lictor-demo","version":"1"}}"#;
        let response = self.post(&self.request("initialize", params)).await?;
        let session = response.headers().get("mcp-session-id");
        self.session = session.and_then(|id| id.to_str().ok()).map(str::to_owned);
        let messages = read(response).await?;
        let heard = last(messages)?;
        let done = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
        read(self.post(done).await?).await?;
        Ok(Heard { text: "session open".to_owned(), ..heard })
    }

    /// Lists the tools, by name.
    pub(super) async fn list(&mut self) -> Result<Heard, CallError> {
        let response = self.post(&self.request("tools/list", "{}")).await?;
        let messages = read(response).await?;
        let Some(Message { result: Some(result), .. }) = messages.into_iter().next_back() else {
            return Err(CallError::Empty);
        };
        let tools = result.get("tools").and_then(Value::as_array);
        let names = tools.into_iter().flatten().filter_map(|tool| tool.get("name")?.as_str());
        let text = names.collect::<Vec<_>>().join(", ");
        Ok(Heard { text, decision: None })
    }

    /// Calls a tool; `arguments` is JSON.
    pub(super) async fn call(&mut self, tool: &str, arguments: &str) -> Result<Heard, CallError> {
        let params =
            format!(r#"{{"name":"{tool}","arguments":{arguments},"_meta":{{"progressToken":1}}}}"#);
        let response = self.post(&self.request("tools/call", &params)).await?;
        let messages = read(response).await?;
        let progress = messages
            .iter()
            .filter(|message| message.method.as_deref() == Some("notifications/progress"));
        let events = progress.count();
        let mut heard = last(messages)?;
        if events > 0 {
            heard.text = format!("{events} progress events, then: {}", heard.text);
        }
        Ok(heard)
    }

    fn request(&self, method: &str, params: &str) -> String {
        let id = self.id;
        format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{params}}}"#)
    }

    async fn post(&mut self, message: &str) -> Result<Response<Incoming>, CallError> {
        self.id += 1;
        let mut request = Request::post("/mcp")
            .header(header::HOST, &self.authority)
            .header(header::CONTENT_TYPE, "application/json")
            .header(header::ACCEPT, "application/json, text/event-stream")
            .header("mcp-protocol-version", "2025-11-25");
        if let Some(session) = &self.session {
            request = request.header("mcp-session-id", session);
        }
        self.sender.ready().await?;
        let request = request.body(Full::new(Bytes::copy_from_slice(message.as_bytes())))?;
        Ok(self.sender.send_request(request).await?)
    }
}

/// Every message of an answer, JSON or event stream.
async fn read(response: Response<Incoming>) -> Result<Vec<Message>, CallError> {
    let kind = response.headers().get(header::CONTENT_TYPE).cloned();
    let streamed = kind.is_some_and(|kind| kind.as_bytes().starts_with(b"text/event-stream"));
    let body = response.into_body().collect().await?.to_bytes();
    if !streamed {
        let message = if body.is_empty() { None } else { Some(serde_json::from_slice(&body)?) };
        return Ok(message.into_iter().collect());
    }
    let mut events = Vec::new();
    Splitter::new(LONGEST).feed(body, &mut events).map_err(|_| CallError::Empty)?;
    let mut messages = Vec::new();
    for event in events {
        if let Some(data) = event.data().filter(|data| !data.is_empty()) {
            messages.push(serde_json::from_slice(&data)?);
        }
    }
    Ok(messages)
}

fn last(messages: Vec<Message>) -> Result<Heard, CallError> {
    let message = messages.into_iter().next_back().ok_or(CallError::Empty)?;
    if let Some(error) = message.error {
        let data = error.data.unwrap_or_default();
        let text = |key: &str| data.get(key).and_then(Value::as_str).map(str::to_owned);
        let told = error.message.split(" (decision ").next().unwrap_or_default();
        return Ok(Heard {
            text: format!("refused ({}): {told}", error.code),
            decision: text("decisionId"),
        });
    }
    let result = message.result.ok_or(CallError::Empty)?;
    let text = result.pointer("/content/0/text").and_then(Value::as_str).unwrap_or("done");
    Ok(Heard { text: format!("allowed: {}", text.replace('\n', " ")), decision: None })
}
