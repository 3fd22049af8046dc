//! Where bindings are kept.

use std::{net::IpAddr, path::PathBuf};

/// Where bindings are kept beside memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Settings {
    /// Nowhere: they end with the process.
    #[default]
    Memory,
    /// In a file in this folder, which is of this process alone.
    Directory(PathBuf),
    /// In a Redis that replicas share.
    Redis(RedisSettings),
}

/// A Redis, or a server that speaks its protocol and knows `GETEX` and scripts (Redis 6.2 and later).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RedisSettings {
    /// Host name or address; an IPv6 address without brackets.
    pub host: String,
    /// Port.
    pub port: u16,
    /// Number of the database.
    pub database: u32,
    /// Name of an ACL user; the default user without it.
    pub username: Option<String>,
    /// Where the password is; it is read again for each connection.
    pub password: Option<Password>,
    /// How the server is verified.
    pub transport: Transport,
}

impl RedisSettings {
    /// Whether what goes to it and comes back can be read and changed on its way.
    pub fn is_exposed(&self) -> bool {
        let here = self.host.parse().is_ok_and(|address: IpAddr| address.is_loopback());
        self.transport == Transport::Plain && !here && self.host != "localhost"
    }
}

/// Where a password is found; never the password itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Password {
    /// In a file, less the white space at its end.
    File(PathBuf),
    /// In a variable of the environment.
    Environment(String),
}

/// How the connection to Redis is protected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Transport {
    /// Not at all.
    Plain,
    /// TLS, with the host name checked against public roots (`None`) or the roots in a PEM file.
    Tls {
        /// PEM file with the accepted roots.
        roots: Option<PathBuf>,
    },
}
