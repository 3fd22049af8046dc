//! The real binary, `lictor run`, in a directory of its own, with a plain and a mutual TLS listener on free
//! ports. Callers of both are the same principal.

use std::{
    net::SocketAddr,
    path::Path,
    process::{ExitStatus, Output, Stdio},
    sync::{Arc, LazyLock, Mutex},
    time::Duration,
};

use lictor::tls::provider;
use rustls::{
    ClientConfig, DigitallySignedStruct, Error, ServerConfig, SignatureScheme,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    crypto::{verify_tls12_signature, verify_tls13_signature},
    pki_types::{CertificateDer, ServerName, UnixTime},
};
use serde_json::Value;
use tempfile::TempDir;
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    net::TcpStream,
    process::{Child, Command},
    sync::watch,
    time::{sleep, timeout},
};

use super::{
    ca::Ca,
    http::{Caller, Transport, Wire, within},
};

/// Time for a process to start or to end, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);

/// The trust domain of everybody here.
pub(crate) static CA: LazyLock<Ca> = LazyLock::new(|| Ca::new("one.test"));

/// The principal that every caller is.
pub(crate) const CALLER: &str = "spiffe://one.test/caller";

/// TLS settings of a caller that proves to be [`CALLER`].
pub(crate) static CALLER_TLS: LazyLock<ClientConfig> = LazyLock::new(|| {
    let credential = CA.svid("/caller");
    caller_tls()
        .with_client_auth_cert(credential.chain.clone(), credential.key())
        .expect("a credential")
});

/// TLS settings of an upstream that proves to be `spiffe://one.test/server`.
pub(crate) fn upstream_tls(protocol: &[u8]) -> Arc<ServerConfig> {
    let credential = CA.svid("/server");
    let mut config = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_no_client_auth()
        .with_single_cert(credential.chain.clone(), credential.key())
        .expect("a credential");
    config.alpn_protocols = vec![protocol.to_vec()];
    Arc::new(config)
}

/// Everything is permitted except the tools `wipe` and `wipe_loudly` and whatever goes to a task.
const POLICIES: &str = r#"
@id("all")
permit (principal, action, resource);

@id("no-wipe")
@reason("wiping is not permitted")
forbid (principal, action, resource == Tool::"files/wipe");

@id("no-roots")
forbid (principal, action == Action::"notifications/roots/list_changed", resource);
"#;

/// What a Lictor is started with. Texts are lines of YAML in flow style.
pub(crate) struct Setup {
    url: String,
    listener: String,
    route: String,
    also: String,
    upstream: String,
    ledger: String,
    policies: String,
    rest: String,
    valid_for: u64,
    file_limit: Option<u64>,
    hanging: bool,
}

impl Setup {
    /// In front of one upstream.
    pub(crate) fn to(url: &str) -> Self {
        Self {
            url: url.to_owned(),
            listener: String::new(),
            route: String::new(),
            also: String::new(),
            upstream: String::new(),
            ledger: String::new(),
            policies: POLICIES.to_owned(),
            rest: String::new(),
            valid_for: 3600,
            file_limit: None,
            hanging: false,
        }
    }

    /// More keys of both listeners: `timeouts: { body: 1s }`.
    pub(crate) fn listener(mut self, keys: &str) -> Self {
        self.listener = format!(", {keys}");
        self
    }

    /// More keys of the route: `denials: httpStatus`.
    pub(crate) fn route(mut self, keys: &str) -> Self {
        self.route = format!(", {keys}");
        self
    }

    /// One more route to the upstream: `path: /agent, protocol: a2a`.
    pub(crate) fn also(mut self, keys: &str) -> Self {
        self.also.push_str(&format!(", {{ {keys}, upstream: files }}"));
        self
    }

    /// More policies.
    pub(crate) fn policy(mut self, text: &str) -> Self {
        self.policies.push_str(text);
        self
    }

    /// More keys of the upstream: `timeouts: { idle: 1s }`.
    pub(crate) fn upstream(mut self, keys: &str) -> Self {
        self.upstream = format!(", {keys}");
        self
    }

    /// More top-level lines: `limits: { body: 1KiB }`.
    pub(crate) fn with(mut self, line: &str) -> Self {
        self.rest.push_str(line);
        self.rest.push('\n');
        self
    }

    /// More keys of the ledger: `onFailure: denyWrites`.
    pub(crate) fn ledger(mut self, keys: &str) -> Self {
        self.ledger = format!(", {keys}");
        self
    }

    /// How many seconds its own identity is valid.
    pub(crate) fn valid_for(self, seconds: u64) -> Self {
        Self { valid_for: seconds, ..self }
    }

    /// Files that it writes can't become longer than this, in bytes.
    pub(crate) fn file_limit(self, bytes: u64) -> Self {
        Self { file_limit: Some(bytes), ..self }
    }

    /// Its disk hangs as long as there is a file `hang` in its directory.
    pub(crate) fn hanging(self) -> Self {
        Self { hanging: true, ..self }
    }

    fn yaml(&self) -> String {
        let Self { url, listener, route, also, upstream, ledger, rest, .. } = self;
        let routes =
            format!("routes: [{{ path: /mcp, protocol: mcp, upstream: files{route} }}{also}]");
        format!(
            "identity: {{ spiffe: {{ files: {{ certificate: svid.pem, key: key.pem, \
             bundles: {{ one.test: one.test.pem }} }} }} }}\n\
             listeners:\n\
             - {{ name: plain, bind: '127.0.0.1:0', tls: none, identity: '{CALLER}', \
             {routes}{listener} }}\n\
             - {{ name: mutual, bind: '127.0.0.1:0', tls: mutual, {routes}{listener} }}\n\
             upstreams:\n\
             - {{ name: files, url: '{url}', tools: {{ look: {{ class: read }} }}{upstream} }}\n\
             policy: {{ directory: policies }}\n\
             ledger: {{ directory: ledger{ledger} }}\n\
             admin: {{ bind: '127.0.0.1:0' }}\n\
             {rest}"
        )
    }

    /// Starts it and waits until it listens.
    pub(crate) async fn start(self) -> Lictor {
        let directory = TempDir::new().expect("a directory");
        let here = directory.path();
        CA.svid_for("/lictor", self.valid_for).write(here, &[&CA]);
        std::fs::create_dir(here.join("policies")).expect("a directory");
        std::fs::write(here.join("policies/all.cedar"), &self.policies).expect("policies");
        std::fs::write(here.join("lictor.yaml"), self.yaml()).expect("a configuration");
        if self.hanging {
            let command = hanging(here).await;
            return Starting::of(command, Arc::new(directory)).listens(LISTENERS).await;
        }
        Lictor::run(directory, self.file_limit).await
    }
}

/// Where listeners listen, once all of them do.
fn addresses<const N: usize>(logs: &[String], listeners: [&str; N]) -> Option<[SocketAddr; N]> {
    let events: Vec<Value> =
        logs.iter().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let address = |listener: &str| -> Option<SocketAddr> {
        let event = events
            .iter()
            .find(|event| event["message"] == "listening" && event["listener"] == listener)?;
        event["address"].as_str()?.parse().ok()
    };
    let all: Option<Vec<_>> = listeners.into_iter().map(address).collect();
    all?.try_into().ok()
}

const RUN: [&str; 3] = ["run", "--file", "lictor.yaml"];
const LISTENERS: [&str; 2] = ["plain", "mutual"];

/// A process that was started; it is killed with this value.
pub(crate) struct Starting {
    child: Child,
    directory: Arc<TempDir>,
    logs: Arc<Mutex<Vec<String>>>,
    lines: watch::Receiver<usize>,
}

impl Starting {
    fn of(mut command: Command, directory: Arc<TempDir>) -> Self {
        let mut child =
            command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("the binary runs");
        let stderr = child.stderr.take().expect("stderr is piped");
        let (added, lines) = watch::channel(0);
        let logs = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&logs);
        tokio::spawn(async move {
            let mut stderr = BufReader::new(stderr).lines();
            while let Ok(Some(line)) = stderr.next_line().await {
                kept.lock().expect("the lock").push(line);
                added.send_modify(|count| *count += 1);
            }
        });
        Self { child, directory, logs, lines }
    }

    /// Waits until its log tells something, and takes it from there.
    async fn told<T>(&mut self, what: &str, find: impl Fn(&[String]) -> Option<T>) -> T {
        let mut found = None;
        let told = self.lines.wait_for(|_| {
            found = find(&self.logs.lock().expect("the lock"));
            found.is_some()
        });
        let told = timeout(PATIENCE, told).await.is_ok_and(|told| told.is_ok());
        found.unwrap_or_else(|| {
            panic!("{what} ({told}): {:#?}", self.logs.lock().expect("the lock"))
        })
    }

    async fn listens(mut self, listeners: [&'static str; 2]) -> Lictor {
        let [plain, mutual] =
            self.told("it doesn't start", |logs| addresses(logs, listeners)).await;
        let Self { child, directory, logs, .. } = self;
        Lictor { child, directory, listeners, plain, mutual, logs }
    }

    /// Waits for a log line with such a text.
    pub(crate) async fn logged(&mut self, text: &str) {
        let find = |logs: &[String]| logs.iter().any(|line| line.contains(text)).then_some(());
        self.told(text, find).await;
    }

    /// Waits until it listens.
    pub(crate) async fn up(self) -> Lictor {
        self.listens(LISTENERS).await
    }

    /// Kills it as nothing else can.
    pub(crate) async fn kill(&mut self) {
        self.child.kill().await.expect("it ran");
    }

    /// Waits for it to end, which it does by an error; what it said.
    pub(crate) async fn fails(mut self) -> String {
        let status = timeout(PATIENCE, self.child.wait()).await.expect("it ends").expect("status");
        assert!(!status.success());
        let gone = async { while self.lines.changed().await.is_ok() {} };
        timeout(PATIENCE, gone).await.expect("its last words");
        self.logs.lock().expect("the lock").join("\n")
    }
}

/// Where a Lictor listens, whichever process that is.
#[derive(Clone, Copy)]
pub(crate) struct Places {
    plain: SocketAddr,
    mutual: SocketAddr,
}

impl Places {
    /// A well-behaved client's connection.
    pub(crate) async fn caller(self, transport: Transport) -> Caller {
        match transport {
            Transport::Http1 => Caller::plain(self.plain).await,
            Transport::Http1Tls => Caller::tls(self.mutual, &CALLER_TLS, false).await,
            Transport::Http2Tls => Caller::tls(self.mutual, &CALLER_TLS, true).await,
        }
    }
}

/// A running Lictor; it is killed with this value unless it was stopped.
pub(crate) struct Lictor {
    child: Child,
    directory: Arc<TempDir>,
    listeners: [&'static str; 2],
    pub(crate) plain: SocketAddr,
    pub(crate) mutual: SocketAddr,
    logs: Arc<Mutex<Vec<String>>>,
}

impl Lictor {
    /// Starts it in a directory that holds everything, and waits until it listens.
    pub(crate) async fn run(directory: TempDir, file_limit: Option<u64>) -> Self {
        Self::run_with(directory, file_limit, LISTENERS).await
    }

    /// The same with other names for the plain listener and the one with mutual TLS.
    pub(crate) async fn run_with(
        directory: TempDir,
        file_limit: Option<u64>,
        listeners: [&'static str; 2],
    ) -> Self {
        let command = match file_limit {
            None => command(directory.path(), &RUN),
            Some(bytes) => limited(directory.path(), bytes, &RUN),
        };
        Starting::of(command, Arc::new(directory)).listens(listeners).await
    }

    /// Its process.
    pub(crate) fn id(&self) -> u32 {
        self.child.id().expect("it runs")
    }

    /// Starts it again where it ran before.
    pub(crate) async fn restart(self) -> Self {
        let starting = Starting::of(command(self.directory(), &RUN), Arc::clone(&self.directory));
        starting.listens(self.listeners).await
    }

    /// Starts a process that waits to take over from this one.
    pub(crate) fn successor(&self, arguments: &[&str]) -> Starting {
        let arguments = [RUN.as_slice(), &["--upgrade"], arguments].concat();
        Starting::of(command(self.directory(), &arguments), Arc::clone(&self.directory))
    }

    /// Has another process take over from this one, which then ends by itself.
    pub(crate) async fn upgrade(&self) -> Self {
        let successor = self.successor(&["--unsafe-forget-state"]);
        self.signal("QUIT").await;
        let new = successor.listens(self.listeners).await;
        self.logged("handed over; finishing").await;
        new
    }

    /// Tries to start a second one in the same place.
    pub(crate) async fn again(&self) -> Output {
        let mut command = command(self.directory(), &["run", "--file", "lictor.yaml"]);
        command.output().await.expect("the binary runs")
    }

    /// In front of one upstream, with defaults.
    pub(crate) async fn start(url: &str) -> Self {
        Setup::to(url).start().await
    }

    /// A well-behaved client's connection.
    pub(crate) async fn caller(&self, transport: Transport) -> Caller {
        self.places().caller(transport).await
    }

    /// Where it listens.
    pub(crate) fn places(&self) -> Places {
        Places { plain: self.plain, mutual: self.mutual }
    }

    /// A bare connection to the plain listener.
    pub(crate) async fn wire(&self) -> Wire {
        Wire::connect(self.plain).await
    }

    /// A bare connection to the listener with mutual TLS.
    pub(crate) async fn wire_tls(&self) -> Wire {
        Wire::connect_tls(self.mutual, &CALLER_TLS).await
    }

    /// The same with HTTP/2.
    pub(crate) async fn wire_http2(&self) -> Wire {
        Wire::connect_http2(self.mutual, &CALLER_TLS).await
    }

    /// Where it runs; the ledger is in `ledger`, the policies are in `policies`.
    pub(crate) fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// How many descriptors are open, once no more than `wanted` are, or after ten seconds.
    pub(crate) async fn descriptors(&self, wanted: usize) -> usize {
        let count =
            || std::fs::read_dir(format!("/proc/{}/fd", self.id())).expect("it runs").count();
        for _ in 0..100 {
            if count() <= wanted {
                break;
            }
            sleep(Duration::from_millis(100)).await;
        }
        count()
    }

    /// What it holds in memory, in KiB.
    pub(crate) fn resident(&self) -> u64 {
        let path = format!("/proc/{}/status", self.id());
        let status = std::fs::read_to_string(path).expect("it runs");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a line");
        line.trim().trim_end_matches(" kB").parse().expect("a number")
    }

    /// What it has logged so far.
    pub(crate) fn logs(&self) -> Vec<String> {
        self.logs.lock().expect("the lock").clone()
    }

    /// Where administration listens.
    pub(crate) fn administration(&self) -> SocketAddr {
        let events = self.logs();
        let mut events = events.iter().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let told = events.find(|event| event["message"] == "administration listens");
        told.expect("it listens")["address"].as_str().expect("text").parse().expect("an address")
    }

    /// Waits until it takes no more connections, which comes after everybody was told that it ends.
    pub(crate) async fn shut(&self) {
        let trying = async { while TcpStream::connect(self.plain).await.is_ok() {} };
        within("the end of listening", trying).await;
    }

    /// Sends SIGTERM.
    pub(crate) async fn terminate(&self) {
        self.signal("TERM").await;
    }

    /// Sends a signal.
    pub(crate) async fn signal(&self, name: &str) {
        let sent = Command::new("kill").args(["-s", name, &self.id().to_string()]).status();
        assert!(within("a signal", sent).await.expect("`kill` runs").success());
    }

    /// Kills it as nothing else can.
    pub(crate) async fn kill(&mut self) {
        self.child.kill().await.expect("it ran");
    }

    /// Waits for a log line with such a text.
    pub(crate) async fn logged(&self, text: &str) {
        let looking = async {
            while !self.logs().iter().any(|line| line.contains(text)) {
                sleep(Duration::from_millis(20)).await;
            }
        };
        within("a log line", looking).await;
    }

    /// Waits for it to end.
    pub(crate) async fn ended(&mut self) -> ExitStatus {
        let ended = timeout(PATIENCE, self.child.wait()).await;
        ended.unwrap_or_else(|_| panic!("it doesn't end: {:#?}", self.logs())).expect("a status")
    }

    /// Stops it, and checks that it ended well and closed exactly `requests` exchanges in a ledger that
    /// verifies; the closing entries, in their order.
    pub(crate) async fn stop(self, requests: usize) -> Vec<Value> {
        self.stop_with(|closings| closings == requests).await
    }

    /// The same for a number of requests that can't be known.
    pub(crate) async fn stop_with(mut self, fits: impl Fn(usize) -> bool) -> Vec<Value> {
        self.terminate().await;
        let status = self.ended().await;
        assert!(status.success(), "{status}: {:#?}", self.logs());
        self.verified(fits).await
    }

    /// Checks the ledger of a Lictor that has ended.
    pub(crate) async fn closings(&self, requests: usize) -> Vec<Value> {
        self.verified(|closings| closings == requests).await
    }

    async fn verified(&self, fits: impl Fn(usize) -> bool) -> Vec<Value> {
        let verified = self.ledger(&["verify"]).await;
        let told = String::from_utf8_lossy(&verified.stdout);
        assert!(verified.status.success(), "{told}");
        assert!(!told.contains("open "), "{told}");
        let closed: Vec<Value> = self
            .entries()
            .await
            .into_iter()
            .filter(|entry| entry["kind"] == "outcome" || entry["kind"] == "denied")
            .collect();
        let brief: Vec<_> =
            closed.iter().map(|entry| (&entry["method"], &entry["status"])).collect();
        assert!(fits(closed.len()), "{} closing entries: {brief:?}", closed.len());
        closed
    }

    /// All ledger entries.
    pub(crate) async fn entries(&self) -> Vec<Value> {
        let listed = self.ledger(&["list", "--json"]).await;
        assert!(listed.status.success(), "{}", String::from_utf8_lossy(&listed.stderr));
        let text = String::from_utf8(listed.stdout).expect("UTF-8");
        text.lines().map(|line| serde_json::from_str(line).expect("an entry")).collect()
    }

    async fn ledger(&self, arguments: &[&str]) -> Output {
        let mut command = command(self.directory(), &["ledger"]);
        let output = command.args(arguments).arg("ledger").output();
        // A soak leaves hundreds of thousands of entries.
        timeout(PATIENCE * 10, output).await.expect("in time").expect("the binary runs")
    }
}

fn command(directory: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lictor"));
    prepare(&mut command, directory, arguments);
    command
}

/// The command under a limit on the size of files, and the usual one on their number, which it may raise. The shell has the signal of that limit ignored, so
/// that writing fails as it does on a full disk.
fn limited(directory: &Path, bytes: u64, arguments: &[&str]) -> Command {
    let mut command = Command::new("bash");
    let script = format!(
        r#"trap "" XFSZ; ulimit -f {}; ulimit -Sn 100; exec "$0" "$@""#,
        bytes.div_ceil(1024)
    );
    command.args(["-c", &script, env!("CARGO_BIN_EXE_lictor")]);
    prepare(&mut command, directory, arguments);
    command
}

/// The command on a disk that can be made to hang. What linked these tests makes what is preloaded for that.
async fn hanging(directory: &Path) -> Command {
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/hanging_disk.c");
    let library = directory.join("hanging_disk.so");
    let mut linker = Command::new("cc");
    let linking = linker.args(["-shared", "-fPIC", source, "-o"]).arg(&library).status();
    assert!(within("a library", linking).await.expect("`cc` runs").success());
    let mut command = command(directory, &RUN);
    command.env("LD_PRELOAD", library);
    command
}

fn prepare(command: &mut Command, directory: &Path, arguments: &[&str]) {
    command
        .args(arguments)
        .current_dir(directory)
        .env_remove("RUST_LOG")
        .env("LICTOR_ALLOW_STDIO", "1")
        .stdin(Stdio::null())
        .kill_on_drop(true);
}

/// TLS settings of a caller that believes any server, without a credential yet.
pub(crate) fn caller_tls() -> rustls::ConfigBuilder<ClientConfig, rustls::client::WantsClientCert> {
    ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .expect("versions")
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(BelievesAnybody))
}

#[derive(Debug)]
struct BelievesAnybody;

impl ServerCertVerifier for BelievesAnybody {
    fn verify_server_cert(
        &self,
        _leaf: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _host: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = provider().signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signed, &algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = provider().signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signed, &algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        provider().signature_verification_algorithms.supported_schemes()
    }
}
