//! One request to the administration API of a running Lictor.
//!
//! Plain HTTP/1.1 on a connection of its own. `Host` is the address and not the name that it was looked up by:
//! administration answers to addresses only.

use std::{
    fs,
    io::{self, Read, Write},
    net::{TcpStream, ToSocketAddrs},
    path::{Path, PathBuf},
    time::Duration,
};

use serde::Deserialize;
use url::Url;

use crate::telemetry::Secret;

/// Longest time to connect, and for each piece of an answer. A change may wait a second for a store, twice.
const PATIENCE: Duration = Duration::from_secs(10);

/// Longest answer, in bytes: ten thousand revocations are less.
const LONGEST: u64 = 32 << 20;

/// Where operators are heard, and by what token.
pub(super) struct Admin {
    host: String,
    port: u16,
    token: Secret<String>,
}

/// Why there is no answer, or none as wanted.
#[derive(Debug, thiserror::Error)]
pub(super) enum AskError {
    #[error("`{0}` is no address of administration, such as `http://127.0.0.1:9440`")]
    Url(String),
    #[error("operators show a token: `--token-file FILE`, the file of Lictor's `admin.tokenFile`")]
    NoToken,
    #[error("`{path}` can't be read")]
    Token {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("`{address}` can't be reached")]
    Connect {
        address: String,
        #[source]
        source: io::Error,
    },
    #[error("the answer can't be read")]
    Read(#[source] io::Error),
    #[error("the answer isn't one of Lictor's administration")]
    Answer,
    /// 400, 404, 409.
    #[error("{0}")]
    Fault(String),
    /// 401, 403.
    #[error("{0}")]
    Refused(String),
    /// 503.
    #[error("{0}")]
    Busy(String),
    #[error("can't write")]
    Write(#[from] io::Error),
}

#[derive(Deserialize)]
struct Told {
    error: String,
}

impl Admin {
    pub(super) fn new(address: &str, token_file: Option<&Path>) -> Result<Self, AskError> {
        let fault = || AskError::Url(address.to_owned());
        let url = Url::parse(address).map_err(|_| fault())?;
        let bare = url.scheme() == "http" && url.path() == "/" && url.query().is_none();
        let anonymous = url.username().is_empty() && url.password().is_none();
        let (Some(host), true) = (url.host_str(), bare && anonymous) else { return Err(fault()) };
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let port = url.port().unwrap_or(80);
        let path = token_file.ok_or(AskError::NoToken)?;
        let token = fs::read_to_string(path)
            .map_err(|source| AskError::Token { path: path.to_owned(), source })?;
        Ok(Self { host, port, token: Secret::new(token.trim_end().to_owned()) })
    }

    pub(super) fn get(&self, path: &str) -> Result<String, AskError> {
        self.ask("GET", path, "")
    }

    pub(super) fn post(&self, path: &str, body: &str) -> Result<String, AskError> {
        self.ask("POST", path, body)
    }

    pub(super) fn delete(&self, path: &str) -> Result<String, AskError> {
        self.ask("DELETE", path, "")
    }

    fn ask(&self, method: &str, path: &str, body: &str) -> Result<String, AskError> {
        let answer = self.exchange(method, path, body)?;
        let (status, body) = parse(&answer).ok_or(AskError::Answer)?;
        if (200..300).contains(&status) {
            return Ok(body.to_owned());
        }
        let Told { error } = serde_json::from_str(body).map_err(|_| AskError::Answer)?;
        Err(match status {
            401 | 403 => AskError::Refused(error),
            503 => AskError::Busy(error),
            _ => AskError::Fault(error),
        })
    }

    fn exchange(&self, method: &str, path: &str, body: &str) -> Result<Vec<u8>, AskError> {
        let address = format!("{}:{}", self.host, self.port);
        let mut stream = self.connect().map_err(|source| AskError::Connect { address, source })?;
        let host = stream.peer_addr().map_err(AskError::Read)?;
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\
             Authorization: Bearer {}\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\n\r\n",
            self.token.expose(),
            body.len()
        );
        let mut answer = Vec::new();
        stream.write_all(&[head.as_bytes(), body.as_bytes()].concat()).map_err(AskError::Read)?;
        stream.take(LONGEST).read_to_end(&mut answer).map_err(AskError::Read)?;
        Ok(answer)
    }

    fn connect(&self) -> io::Result<TcpStream> {
        let mut failed = io::Error::from(io::ErrorKind::AddrNotAvailable);
        for address in (self.host.as_str(), self.port).to_socket_addrs()? {
            match TcpStream::connect_timeout(&address, PATIENCE) {
                Ok(stream) => {
                    stream.set_read_timeout(Some(PATIENCE))?;
                    stream.set_write_timeout(Some(PATIENCE))?;
                    return Ok(stream);
                }
                Err(error) => failed = error,
            }
        }
        Err(failed)
    }
}

/// Status and body of a whole answer of known length.
fn parse(answer: &[u8]) -> Option<(u16, &str)> {
    let mut headers = [httparse::EMPTY_HEADER; 32];
    let mut response = httparse::Response::new(&mut headers);
    let httparse::Status::Complete(head) = response.parse(answer).ok()? else { return None };
    let length = response.headers.iter().find(|it| it.name.eq_ignore_ascii_case("content-length"));
    let length: usize = std::str::from_utf8(length?.value).ok()?.parse().ok()?;
    let body = answer.get(head..).filter(|body| body.len() == length)?;
    Some((response.code?, std::str::from_utf8(body).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_a_plain_one() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        for (address, host, port) in [
            ("http://127.0.0.1:9440", "127.0.0.1", 9440),
            ("http://[::1]:9440/", "::1", 9440),
            ("http://localhost", "localhost", 80),
        ] {
            let admin = Admin::new(address, Some(file.path())).expect(address);
            assert_eq!((admin.host.as_str(), admin.port), (host, port));
        }
        for address in [
            "127.0.0.1:9440",
            "https://127.0.0.1:9440",
            "http://127.0.0.1:9440/api",
            "http://a@127.0.0.1:9440",
            "http://127.0.0.1:9440?a",
            "unix:///run/lictor",
            "",
        ] {
            let error = Admin::new(address, Some(file.path())).err();
            assert!(matches!(error, Some(AskError::Url(_))), "{address}");
        }
    }

    #[test]
    fn an_answer_is_whole_or_none() {
        let whole = b"HTTP/1.1 201 Created\r\nContent-Length: 2\r\n\r\n{}";
        assert_eq!(parse(whole), Some((201, "{}")));
        for end in 0..whole.len() {
            assert_eq!(parse(&whole[..end]), None);
        }
        assert_eq!(parse(b"HTTP/1.1 200 OK\r\n\r\n{}"), None);
        assert_eq!(parse(b"SSH-2.0-OpenSSH_9.6\r\n"), None);
    }
}
