//! The fixture agent behind a Lictor, which callers reach by a plain door and by one with mutual TLS. They
//! are the same principal at both.

use std::{ffi::OsString, net::TcpListener};

use tempfile::TempDir;

use crate::{
    programs::{Server, listening, script},
    subject::{CA, CALLER, Lictor},
};

/// Everything is permitted.
pub(crate) const PERMIT: &str = r#"@id("everything") permit (principal, action, resource);"#;

/// What a client is told: where the agent is, and what to show there.
pub(crate) struct Place {
    pub(crate) url: String,
    pub(crate) credential: Vec<OsString>,
}

/// A running agent and its Lictor; both end with this value.
pub(crate) struct Site {
    agent: Server,
    lictor: Lictor,
    /// Ports of the plain door and of the one with mutual TLS.
    ports: [u16; 2],
    caller: TempDir,
}

impl Site {
    pub(crate) async fn start(policies: &str) -> Self {
        let agent = listening(script("fixtures/a2a_agent.py"), "").await;
        let directory = TempDir::new().expect("a directory");
        let here = directory.path();
        CA.svid("/lictor").write(here, &[&CA]);
        std::fs::create_dir(here.join("policies")).expect("a directory");
        std::fs::write(here.join("policies/all.cedar"), policies).expect("policies");
        let ports = [free_port(), free_port()];
        let config = config(&agent.url, ports);
        std::fs::write(here.join("lictor.yaml"), config).expect("a configuration");
        let lictor = Lictor::run(directory, None).await;
        let caller = TempDir::new().expect("a directory");
        CA.svid("/caller").write(caller.path(), &[&CA]);
        Self { agent, lictor, ports, caller }
    }

    /// The agent itself.
    pub(crate) fn direct(&self) -> Place {
        Place { url: self.agent.url.clone(), credential: Vec::new() }
    }

    pub(crate) fn plain(&self) -> Place {
        let url = format!("http://127.0.0.1:{}/agent", self.ports[0]);
        Place { url, credential: Vec::new() }
    }

    pub(crate) fn mutual(&self) -> Place {
        let url = format!("https://127.0.0.1:{}/agent", self.ports[1]);
        let files = [("--ca", "one.test.pem"), ("--cert", "svid.pem"), ("--key", "key.pem")];
        let credential = files.into_iter().flat_map(|(option, file)| {
            [OsString::from(option), self.caller.path().join(file).into_os_string()]
        });
        Place { url, credential: credential.collect() }
    }

    /// Stops Lictor, and checks that it ended well and closed every exchange in a ledger that verifies.
    pub(crate) async fn stop(self) {
        self.lictor.stop_with(|closings| closings > 0).await;
    }
}

/// The card says where callers reach the agent, so a door's port has to be known before it listens.
pub(crate) fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("an address").port()
}

fn config(agent: &str, [plain, mutual]: [u16; 2]) -> String {
    let routes = "routes: [{ path: /agent, protocol: a2a, upstream: agent }]";
    format!(
        "identity: {{ spiffe: {{ files: {{ certificate: svid.pem, key: key.pem, \
         bundles: {{ one.test: one.test.pem }} }} }} }}\n\
         listeners:\n\
         - {{ name: plain, bind: '127.0.0.1:{plain}', publicUrl: 'http://127.0.0.1:{plain}', \
         tls: none, identity: '{CALLER}', {routes} }}\n\
         - {{ name: mutual, bind: '127.0.0.1:{mutual}', publicUrl: 'https://127.0.0.1:{mutual}', \
         tls: mutual, {routes} }}\n\
         upstreams:\n\
         - {{ name: agent, url: '{agent}/', rest: '{agent}/rest', \
         pushNotifications: {{ hosts: [1.1.1.1] }} }}\n\
         policy: {{ directory: policies }}\n\
         ledger: {{ directory: ledger }}\n\
         admin: {{ bind: '127.0.0.1:0' }}\n"
    )
}
