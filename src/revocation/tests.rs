//! What can be revoked, and how every replica comes to know it.

use std::{sync::Arc, time::Duration};

use tempfile::TempDir;
use tokio::{task::JoinSet, time::timeout};

use super::*;
use crate::{
    ledger::{self, Genesis, Ledger},
    state::{
        self, Owners, Records, RedisSettings, Settings, Transport, tests::server::RedisServer,
    },
    telemetry::{Clock, Metrics},
};

mod redis;

const PATIENCE: Duration = Duration::from_secs(20);

/// One process: a register that is followed, and its ledger.
struct Replica {
    register: Arc<Register>,
    ledger: Ledger,
    records: Records,
    directory: TempDir,
    _follower: JoinSet<()>,
}

impl Replica {
    async fn open(settings: Settings) -> Self {
        let directory = TempDir::new().expect("a directory");
        let ledger = ledger(&directory);
        // A file is free once the one before has been dropped by everybody who had a part of it.
        let opening = async {
            loop {
                let opened = Owners::open(settings.clone(), state::Limits::of, Clock.unix()).await;
                match opened {
                    Ok(owners) => break owners,
                    Err(_) => tokio::task::yield_now().await,
                }
            }
        };
        let owners = timeout(PATIENCE, opening).await.expect("a store");
        let records = owners.records();
        let register = Register::open(records.clone(), ledger.clone(), Metrics::new()).await;
        let register = Arc::new(register.expect("opens"));
        let mut follower = JoinSet::new();
        let followed = Arc::clone(&register);
        follower.spawn(async move { followed.follow().await });
        Self { register, ledger, records, directory, _follower: follower }
    }

    async fn revoke(&self, kind: &str, value: &str, until: Option<u64>) -> Revoked {
        let subject = Subject::parse(kind, value).expect("a subject");
        self.register.revoke(subject, "leaked", "ops", until).await.expect("revoked")
    }

    /// What is revoked, as `kind value`.
    fn in_force(&self) -> Vec<String> {
        let current = self.register.current();
        let text =
            |it: &Arc<Revocation>| format!("{} {}", it.subject.what().as_str(), it.subject.value());
        let mut all: Vec<_> = current.entries().map(text).collect();
        all.sort();
        all
    }

    /// Waits until exactly this is revoked.
    async fn until(&self, expected: &[&str]) {
        let mut changes = self.register.changes();
        let waiting = async {
            while self.in_force() != expected {
                changes.changed().await.expect("the register lives");
            }
        };
        let waited = timeout(PATIENCE, waiting).await;
        assert!(waited.is_ok(), "{:?} and not {expected:?}", self.in_force());
    }

    /// What its ledger says of revocations: status, target, reason.
    async fn recorded(&self) -> Vec<(String, String)> {
        self.ledger.flush().await;
        let rows =
            ledger::list(self.directory.path(), ledger::Filter::default()).expect("readable");
        let rows = rows.map(|row| row.expect("an entry")).filter(|row| row.kind == "revocation");
        rows.map(|row| (row.status.expect("a status"), row.target.expect("a target"))).collect()
    }
}

fn ledger(directory: &TempDir) -> Ledger {
    let settings = ledger::Settings {
        directory: directory.path().to_owned(),
        commit_interval: Duration::from_millis(1),
        read_intent: false,
        on_failure: ledger::OnFailure::DenyAll,
    };
    Ledger::open(settings, Genesis::default()).expect("opens")
}

fn shared(redis: &RedisServer) -> Settings {
    Settings::Redis(RedisSettings {
        host: "127.0.0.1".into(),
        port: redis.port,
        database: 0,
        username: None,
        password: None,
        transport: Transport::Plain,
    })
}

#[test]
fn a_subject_is_read_in_one_way_or_not_at_all() {
    let long = "x".repeat(513);
    for (kind, value, written) in [
        ("spiffe", "spiffe://td/a", Some("spiffe://td/a")),
        ("spiffe", "spiffe://td/a/*", Some("spiffe://td/a/*")),
        ("spiffe", "spiffe://td/*", Some("spiffe://td/*")),
        ("spiffe", "spiffe://td/a*", None),
        ("spiffe", "spiffe://td*", None),
        ("spiffe", "spiffe://*", None),
        ("spiffe", "*", None),
        ("spiffe", "spiffe://td/a/", None),
        ("spiffe", "spiffe://td", None),
        ("spiffe", "spiffe://td/*/a", None),
        ("spiffe", "SPIFFE://td/a", None),
        ("user", "u-1", Some("u-1")),
        ("user", "", None),
        ("user", "a\nb", None),
        ("user", &long, None),
        ("tenant", "acme", Some("acme")),
        ("tool", "files/delete", Some("files/delete")),
        ("tool", "files/a/b", Some("files/a/b")),
        ("tool", "files", None),
        ("tool", "/delete", None),
        ("tool", "files/", None),
        (
            "delegation",
            "01993f0e-7b5a-7c3e-9a1d-0123456789ab",
            Some("01993f0e-7b5a-7c3e-9a1d-0123456789ab"),
        ),
        ("delegation", "AgICAgICAgICAgICAgICAg", Some("02020202-0202-0202-0202-020202020202")),
        ("delegation", "AgICAgICAgICAgICAgICAh", None),
        ("delegation", "01993f0e7b5a7c3e9a1d0123456789ab", None),
        ("session", "", None),
        ("apikey", "k", None),
        ("Spiffe", "spiffe://td/a", None),
    ] {
        let subject = Subject::parse(kind, value);
        let shown = subject.as_ref().ok().map(|subject| subject.value().into_owned());
        assert_eq!(shown.as_deref(), written, "{kind} {value:?}");
        if let Ok(subject) = subject {
            assert_eq!(Subject::from_kept(kind, &subject.value()), Ok(subject));
        }
    }
    let session = Subject::parse("session", "s-1").expect("a session");
    assert!(session.value().starts_with("sha256:") && !session.value().contains("s-1"));
    assert_eq!(Subject::from_kept("session", &session.value()), Ok(session));
}

#[test]
fn what_is_kept_is_understood_as_a_whole_or_not_at_all() {
    let revocation = Revocation {
        id: Uuid::now_v7(),
        subject: Subject::parse("tool", "files/\"\\\u{e9}").expect("a tool"),
        reason: "a \"reason\"".into(),
        by: "ops\\1".into(),
        at: 7,
        until: Some(9),
    };
    let text = revocation.to_text();
    assert_eq!(Revocation::from_text(revocation.id, &text).expect("readable"), revocation);
    let other = text.replace("\"tool\"", "\"planet\"");
    let more = text.replace("{\"kind\"", "{\"except\":\"a\",\"kind\"");
    for text in [&*other, &*more, "{}", "", "7"] {
        assert!(Revocation::from_text(revocation.id, text).is_err(), "{text}");
    }
}

#[tokio::test]
async fn what_is_revoked_is_in_force_recorded_and_kept() {
    let directory = TempDir::new().expect("a directory");
    let redis = RedisServer::start().await;
    for settings in
        [Settings::Memory, Settings::Directory(directory.path().join("state")), shared(&redis)]
    {
        let replica = Replica::open(settings.clone()).await;
        assert!(replica.register.current().is_known(), "{settings:?}");
        let tool = replica.revoke("tool", "files/delete", None).await;
        assert!(tool.kept);
        assert_eq!(replica.in_force(), ["tool files/delete"]);
        replica.revoke("user", "u-1", None).await;
        replica.revoke("user", "u-1", None).await;
        assert_eq!(replica.in_force(), ["tool files/delete", "user u-1", "user u-1"]);
        let lifted = replica.register.lift(tool.revocation.id).await.expect("lifted");
        assert_eq!(lifted, tool.revocation);
        assert_eq!(replica.in_force(), ["user u-1", "user u-1"]);
        let again = replica.register.lift(tool.revocation.id).await;
        assert!(matches!(again, Err(ChangeError::Unknown(_))));
        let told = |status: &str, target: &str| (status.to_owned(), target.to_owned());
        let expected = [
            told("revoked", "files/delete"),
            told("revoked", "u-1"),
            told("revoked", "u-1"),
            told("lifted", "files/delete"),
        ];
        assert_eq!(replica.recorded().await, expected);
        let kept = match settings {
            Settings::Memory => &[][..],
            Settings::Directory(_) | Settings::Redis(_) => &["user u-1", "user u-1"],
        };
        drop(replica);
        assert_eq!(Replica::open(settings).await.in_force(), kept);
    }
}

#[tokio::test]
async fn a_revocation_ends_at_its_time() {
    let replica = Replica::open(Settings::Memory).await;
    let now = Clock.unix().as_secs();
    let over = Subject::parse("user", "u-0").expect("a user");
    let refused = replica.register.revoke(over, "r", "b", Some(now)).await;
    assert!(matches!(refused, Err(ChangeError::Over)));
    replica.revoke("user", "u-1", Some(now + 2)).await;
    replica.revoke("user", "u-2", None).await;
    assert_eq!(replica.in_force(), ["user u-1", "user u-2"]);
    replica.until(&["user u-2"]).await;
    assert!(Clock.unix().as_secs() >= now + 2);
}

#[tokio::test]
async fn what_has_been_over_for_a_while_is_forgotten() {
    let (directory, redis) = (TempDir::new().expect("a directory"), RedisServer::start().await);
    for settings in [Settings::Directory(directory.path().join("state")), shared(&redis)] {
        let replica = Replica::open(settings.clone()).await;
        let kept = replica.revoke("user", "u-1", None).await.revocation.id;
        let old = Revocation {
            until: Some(1),
            ..(*replica.revoke("user", "u-2", None).await.revocation).clone()
        };
        let records = replica.records.clone();
        records.put(old.id, &old.to_text()).await.expect("written");
        // In a file it is read by the next process only.
        let ledger = replica.ledger.clone();
        let next = Register::open(records.clone(), ledger, Metrics::new()).await.expect("opens");
        let in_force: Vec<_> = next.current().entries().map(|it| it.id).collect();
        assert_eq!(in_force, [kept]);
        let left = records.read(None).await.expect("readable").expect("all").records;
        assert_eq!(left.into_iter().map(|(id, _)| id).collect::<Vec<_>>(), [kept]);
    }
}

#[tokio::test]
async fn what_makes_no_sense_changes_nothing() {
    let replica = Replica::open(Settings::Memory).await;
    let long = "x".repeat(257);
    for (reason, by) in
        [("", "b"), ("r", ""), ("r\n", "b"), ("r", "\u{7f}"), (&long, "b"), ("r", &long)]
    {
        let subject = Subject::parse("user", "u-1").expect("a user");
        let refused = replica.register.revoke(subject, reason, by, None).await;
        assert!(matches!(refused, Err(ChangeError::Text(_))), "{reason:?} {by:?}");
    }
    assert!(replica.in_force().is_empty());
    assert!(replica.recorded().await.is_empty());
}
