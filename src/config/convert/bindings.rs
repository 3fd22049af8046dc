//! Where state is kept.

use url::Url;

use super::{Reader, shape};
use crate::{
    config::fault::Place,
    state::{self, Password, RedisSettings, Transport},
};

/// The port that Redis has everywhere.
const PORT: u16 = 6379;

impl Reader<'_> {
    pub(super) fn state(&mut self, it: shape::State, place: &Place) -> Option<state::Settings> {
        match (it.directory, it.redis) {
            (Some(directory), None) => {
                let directory = self.path(&directory, &place.key("directory"))?;
                Some(state::Settings::Directory(directory))
            }
            (None, Some(redis)) => {
                self.redis(redis, &place.key("redis")).map(state::Settings::Redis)
            }
            (Some(_), Some(_)) => {
                self.faults.push(place, "has both `directory` and `redis`; keep one");
                None
            }
            (None, None) => {
                let hint = "leave `state` out to keep it in memory";
                self.faults.push_with(place, "needs `directory` or `redis`", hint);
                None
            }
        }
    }

    fn redis(&mut self, it: shape::Redis, place: &Place) -> Option<RedisSettings> {
        let at = place.key("url");
        let url = self.required(it.url, &at);
        let url = url.and_then(|text| self.redis_url(&text, &at));
        let password = match (it.password_file, it.password_env) {
            (Some(_), Some(_)) => {
                self.faults.push(place, "has both `passwordFile` and `passwordEnv`; keep one");
                None
            }
            (None, None) => Some(None),
            (file @ Some(_), None) => {
                let file = self.file(file, &place.key("passwordFile"));
                file.map(|path| Some(Password::File(path)))
            }
            (None, Some(name)) if std::env::var_os(&name).is_some_and(|it| !it.is_empty()) => {
                Some(Some(Password::Environment(name)))
            }
            (None, Some(name)) => {
                let problem = format!("the environment has no `{name}`");
                self.faults.push(&place.key("passwordEnv"), problem);
                None
            }
        };
        let url = url?;
        let transport = self.transport(&url, it.roots, place);
        let settings = RedisSettings {
            host: url.host,
            port: url.port,
            database: url.database,
            username: url.username,
            password: password?,
            transport: transport?,
        };
        let at = place.key("unsafePlaintext");
        match (settings.is_exposed(), it.unsafe_plaintext) {
            (true, false) => {
                let problem = "`redis`, without TLS, is for loopback addresses only";
                let hint = "say `rediss://`: who can change an answer can take sessions over";
                self.faults.push_with(&place.key("url"), problem, hint);
            }
            (false, true) => self.faults.push(&at, "allows nothing here; leave it out"),
            (true, true) | (false, false) => {}
        }
        Some(settings)
    }

    /// INVARIANT: a URL that was refused is never echoed; it may hold a password.
    fn redis_url(&mut self, text: &str, place: &Place) -> Option<Address> {
        match Address::parse(text) {
            Ok(address) => Some(address),
            Err(problem) => {
                let hint = "such as `rediss://lictor@redis.example.org:6379/0`";
                self.faults.push_with(place, problem, hint);
                None
            }
        }
    }

    fn transport(
        &mut self,
        url: &Address,
        roots: Option<String>,
        place: &Place,
    ) -> Option<Transport> {
        if url.tls {
            let roots = match roots {
                None => None,
                given => Some(self.file(given, &place.key("roots"))?),
            };
            return Some(Transport::Tls { roots });
        }
        if roots.is_some() {
            let problem = "needs `rediss`; nothing proves who answers without TLS";
            self.faults.push(&place.key("roots"), problem);
            return None;
        }
        Some(Transport::Plain)
    }
}

/// What a URL of Redis says.
struct Address {
    tls: bool,
    username: Option<String>,
    host: String,
    port: u16,
    database: u32,
}

impl Address {
    fn parse(text: &str) -> Result<Self, &'static str> {
        let url = Url::parse(text).map_err(|_| "is no URL")?;
        let tls = match url.scheme() {
            "redis" => false,
            "rediss" => true,
            _ => return Err("has to start with `rediss://` or `redis://`"),
        };
        if url.password().is_some() {
            return Err("has a password; say `passwordFile` or `passwordEnv`");
        }
        if url.query().is_some() || url.fragment().is_some() {
            return Err("has a query or a fragment, which nobody reads");
        }
        let host = url.host_str().filter(|host| !host.is_empty()).ok_or("names no host")?;
        let host = host.trim_start_matches('[').trim_end_matches(']').to_ascii_lowercase();
        if host.contains('%') {
            return Err("has a host that is no name");
        }
        let username = Some(url.username()).filter(|name| !name.is_empty());
        if username.is_some_and(|name| name.contains('%')) {
            return Err("has a user whose name needs encoding, which isn't read");
        }
        let database = match url.path() {
            "" | "/" => 0,
            path => path
                .strip_prefix('/')
                .and_then(|number| number.parse().ok())
                .ok_or("has a path that is no number of a database")?,
        };
        Ok(Self {
            tls,
            username: username.map(str::to_owned),
            host,
            port: url.port().unwrap_or(PORT),
            database,
        })
    }
}
