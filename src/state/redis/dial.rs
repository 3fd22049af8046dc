//! How Redis is reached: TCP, TLS where it is asked for, then a name and a password.

use std::{io, sync::Arc};

use redis::{AsyncConnectionConfig, RedisConnectionInfo, RedisError, aio::MultiplexedConnection};
use rustls::pki_types::ServerName;
use tokio::{net::TcpStream, sync::oneshot};
use tokio_rustls::TlsConnector;

use crate::{
    state::settings::{Password, RedisSettings, Transport},
    tls,
};

/// Longest password file in bytes.
const LONGEST_PASSWORD: u64 = 4096;

/// Why Redis can't be reached with such settings, ever.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    /// The server can't be checked.
    #[error(transparent)]
    Tls(#[from] tls::SetupError),
    /// The host is no name that a certificate could have.
    #[error("`{0}` is no host name")]
    Host(String),
    /// There is no password where it should be.
    #[error("the password can't be read")]
    Password(#[source] io::Error),
}

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub(super) enum DialError {
    #[error("the password can't be read")]
    Password(#[source] io::Error),
    #[error("no connection")]
    Connect(#[source] io::Error),
    #[error("no use")]
    Redis(#[source] RedisError),
    #[error("no answer in time")]
    TimeOut,
}

/// Comes to an end when the connection does; nothing is ever sent.
pub(super) type Closed = oneshot::Receiver<()>;

/// Makes connections.
pub(super) struct Dialer {
    settings: RedisSettings,
    tls: Option<(TlsConnector, ServerName<'static>)>,
}

impl Dialer {
    pub(super) fn new(settings: RedisSettings) -> Result<Self, SetupError> {
        let tls = match &settings.transport {
            Transport::Plain => None,
            Transport::Tls { roots } => {
                let name = ServerName::try_from(settings.host.clone())
                    .map_err(|_| SetupError::Host(settings.host.clone()))?;
                Some((TlsConnector::from(Arc::new(tls::towards_hosts(roots.as_deref())?)), name))
            }
        };
        let dialer = Self { settings, tls };
        dialer.password().map_err(SetupError::Password)?;
        Ok(dialer)
    }

    /// Connects and says who is there. Not bounded in time.
    pub(super) async fn dial(&self) -> Result<(MultiplexedConnection, Closed), DialError> {
        let settings = &self.settings;
        let mut info = RedisConnectionInfo::default()
            .set_db(settings.database.into())
            // One command less that its user needs to be allowed.
            .set_skip_set_lib_name();
        if let Some(username) = &settings.username {
            info = info.set_username(username);
        }
        if let Some(password) = self.password().map_err(DialError::Password)? {
            info = info.set_password(password);
        }
        let address = (&*settings.host, settings.port);
        let stream = TcpStream::connect(address).await.map_err(DialError::Connect)?;
        stream.set_nodelay(true).map_err(DialError::Connect)?;
        match &self.tls {
            None => start(&info, stream).await,
            Some((connector, name)) => {
                let stream = connector.connect(name.clone(), stream).await;
                start(&info, stream.map_err(DialError::Connect)?).await
            }
        }
    }

    fn password(&self) -> io::Result<Option<String>> {
        let password = match &self.settings.password {
            None => return Ok(None),
            Some(Password::File(path)) => {
                use io::Read;
                let mut text = String::new();
                let file = std::fs::File::open(path)?;
                file.take(LONGEST_PASSWORD).read_to_string(&mut text)?;
                text.truncate(text.trim_end().len());
                text
            }
            Some(Password::Environment(name)) => std::env::var(name).map_err(io::Error::other)?,
        };
        if password.is_empty() {
            return Err(io::Error::other("it is empty"));
        }
        Ok(Some(password))
    }
}

impl std::fmt::Debug for Dialer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Dialer").field("settings", &self.settings).finish_non_exhaustive()
    }
}

async fn start<S>(
    info: &RedisConnectionInfo,
    stream: S,
) -> Result<(MultiplexedConnection, Closed), DialError>
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
{
    // Time is kept by who asks.
    let config = AsyncConnectionConfig::new().set_response_timeout(None);
    let (connection, driver) = MultiplexedConnection::new_with_config(info, stream, config)
        .await
        .map_err(DialError::Redis)?;
    let (open, closed) = oneshot::channel();
    // It ends with the last handle to the connection, too.
    tokio::spawn(async move {
        driver.await;
        drop(open);
    });
    Ok((connection, closed))
}
