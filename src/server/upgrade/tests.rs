use std::net::TcpListener;

use tokio::signal::unix::{SignalKind, signal};

use super::*;
use crate::ledger::{Genesis, OnFailure, Settings};

fn ledger(directory: &Path) -> Ledger {
    let settings = Settings {
        directory: directory.to_owned(),
        commit_interval: Duration::from_millis(5),
        read_intent: false,
        on_failure: OnFailure::DenyWrites,
    };
    Ledger::open(settings, Genesis::default()).expect("opens")
}

fn predecessor(directory: &Path, state: state::Settings) -> Predecessor {
    let mut sockets = Sockets::default();
    for name in ["admin", "listener/a"] {
        sockets.bind(name, ([127, 0, 0, 1], 0).into()).expect("bound");
    }
    let quit = signal(SignalKind::quit()).expect("a handler");
    Predecessor::new(quit, directory, ledger(directory), state, sockets)
}

fn redis() -> state::Settings {
    state::Settings::Redis(state::RedisSettings {
        host: "localhost".to_owned(),
        port: 1,
        database: 0,
        username: None,
        password: None,
        transport: state::Transport::Plain,
    })
}

#[tokio::test]
async fn sockets_and_head_of_the_ledger_are_handed_over() {
    let directory = tempfile::tempdir().expect("a directory");
    let old = predecessor(directory.path(), redis());
    let addresses =
        old.sockets.open().iter().map(|it| it.listener.local_addr().expect("an address"));
    let addresses: Vec<_> = addresses.collect();
    let new = async {
        let (new, mut sockets) =
            Successor::ask(directory.path(), &redis(), false).await.expect("handed over");
        let mode = |path: &Path| fs::metadata(path).map(|it| it.permissions().mode() & 0o777);
        assert!(mode(&directory.path().join(SOCKET)).is_err(), "it is closed to others by now");
        let bind = ([127, 0, 0, 1], 0).into();
        let taken: Vec<_> = ["admin", "listener/a"]
            .map(|name| sockets.bind(name, bind).expect("bound").local_addr().expect("an address"))
            .to_vec();
        let previous = new.previous.clone();
        new.ready().await;
        (previous, taken)
    };
    let (handed, (previous, taken)) = tokio::join!(old.hand_over(), new);
    handed.expect("handed over");
    assert_eq!((previous, taken), (old.ledger.tip(), addresses));
}

#[tokio::test]
async fn a_new_process_that_ends_or_says_nonsense_takes_nothing_with_it() {
    let directory = tempfile::tempdir().expect("a directory");
    let old = predecessor(directory.path(), redis());
    let ends = async {
        drop(Successor::ask(directory.path(), &redis(), false).await.expect("handed over"));
    };
    let (handed, ()) = tokio::join!(old.hand_over(), ends);
    assert!(matches!(handed, Err(UpgradeError::Ended)), "{handed:?}");
    for (hello, told) in [
        (r#"{"version":1}"#.to_owned(), "nothing"),
        (r#"{"version":2,"forget_state":false}"#.to_owned(), "versions 1 and 2"),
        ("x".repeat(70_000), "nothing"),
    ] {
        let new = async {
            let stream = connect(&directory.path().join(SOCKET)).await.expect("it listens");
            let mut text = tokio::io::BufReader::new(stream);
            // The old process may be gone before it has read all of it.
            let _ = tokio::io::AsyncWriteExt::write_all(&mut text, format!("{hello}\n").as_bytes())
                .await;
            let mut line = String::new();
            let _ = tokio::io::AsyncBufReadExt::read_line(&mut text, &mut line).await;
            line
        };
        let (handed, line) = tokio::join!(old.hand_over(), new);
        assert!(handed.is_err());
        assert!(if told == "nothing" { line.is_empty() } else { line.contains(told) }, "{line}");
    }
}

#[tokio::test]
async fn what_would_lose_state_is_refused_by_either_side() {
    let file = || state::Settings::Directory("/somewhere".into());
    for (old_state, new_state, forget, reason) in [
        (state::Settings::Memory, redis(), false, "kept in memory"),
        (file(), redis(), true, "of one process at a time"),
        (redis(), state::Settings::Memory, false, "kept in memory"),
        (redis(), file(), true, "of one process at a time"),
        (state::Settings::Memory, state::Settings::Memory, true, ""),
    ] {
        let directory = tempfile::tempdir().expect("a directory");
        let old = predecessor(directory.path(), old_state);
        let new = async {
            match Successor::ask(directory.path(), &new_state, forget).await {
                Ok((new, _)) => {
                    new.ready().await;
                    String::new()
                }
                Err(error) => error.to_string(),
            }
        };
        let told = tokio::select! {
            told = new => told,
            handed = async { let _ = old.hand_over().await; std::future::pending::<String>().await } => handed,
        };
        assert!(told.contains(reason) && told.is_empty() == reason.is_empty(), "{told}");
    }
}

#[tokio::test]
async fn more_sockets_than_can_be_sent_are_an_error() {
    let directory = tempfile::tempdir().expect("a directory");
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("bound");
    let (one, _other) = UnixStream::pair().expect("a pair");
    let sockets = vec![listener.as_fd(); 254];
    let sent = link_to(one).expect("our own").send(&Ready {}, &sockets).await;
    assert!(matches!(sent, Err(UpgradeError::Link(_))), "{sent:?}");
    drop(directory);
}
