//! One process takes over from another: nobody is turned away, nothing that began is lost, and whatever
//! ends on the way leaves somebody who serves and a ledger that says what happened.

use std::{
    net::TcpListener,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tokio::{
    task::JoinHandle,
    time::{sleep, timeout},
};

use crate::{
    CALL, CHANGE,
    http::{Caller, TRANSPORTS, Transport, whole, within},
    stub::{Call, Stub},
    subject::{CALLER, Lictor, Setup},
};

const FORGET: &str = "--unsafe-forget-state";

/// Callers with a new connection for each call, until told to stop; then how often they were answered.
struct Crowd {
    stop: Arc<AtomicBool>,
    callers: Vec<JoinHandle<usize>>,
}

impl Crowd {
    fn call(lictor: &Lictor) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let admin = lictor.administration();
        let mut callers = Vec::new();
        for transport in TRANSPORTS {
            let (stop, places) = (Arc::clone(&stop), lictor.places());
            callers.push(tokio::spawn(async move {
                let mut answered = 0;
                while !stop.load(Ordering::Relaxed) {
                    let mut caller = places.caller(transport).await;
                    assert_eq!(caller.post(CALL).await.whole().await.status, 200, "{transport:?}");
                    answered += 1;
                }
                answered
            }));
        }
        // Somebody asks for health all the while, and never hears of the process that isn't ready or ends.
        let asking = Arc::clone(&stop);
        callers.push(tokio::spawn(async move {
            // The first process tells where it listens a moment before it is ready.
            let mut ready = false;
            while !asking.load(Ordering::Relaxed) {
                let mut prober = Caller::plain(admin).await;
                let request = prober.request_to("GET", "/readyz", whole(""));
                let answer = prober.send(request).await.whole().await;
                assert!(!ready || answer.status == 200, "{}", answer.text());
                ready |= answer.status == 200;
            }
            assert!(ready, "it never was");
            0
        }));
        Self { stop, callers }
    }

    async fn answered(self) -> usize {
        self.stop.store(true, Ordering::Relaxed);
        let mut answered = 0;
        for caller in self.callers {
            answered += within("the last answer", caller).await.expect("every call was answered");
        }
        answered
    }
}

/// A call in flight, and the upstream's side of it.
async fn in_flight(lictor: &Lictor, stub: &mut Stub) -> (JoinHandle<u16>, Call) {
    let mut caller = lictor.caller(Transport::Http1).await;
    let request = caller.request("POST", whole(CHANGE));
    let waiting = tokio::spawn(async move {
        match timeout(Duration::from_secs(30), caller.exchange(request)).await {
            Ok(Ok(reply)) => reply.whole().await.status,
            Ok(Err(_)) | Err(_) => 0,
        }
    });
    (waiting, stub.call().await)
}

async fn serves(lictor: &Lictor, stub: &mut Stub) {
    let (waiting, call) = in_flight(lictor, stub).await;
    call.answer("{}").await;
    assert_eq!(within("an answer", waiting).await.expect("no panic"), 200);
}

fn configure(directory: &Path, change: impl FnOnce(String) -> String) {
    let path = directory.join("lictor.yaml");
    let text = std::fs::read_to_string(&path).expect("a configuration");
    std::fs::write(path, change(text)).expect("written");
}

#[tokio::test]
async fn nobody_is_turned_away_whoever_is_first() {
    for quit_first in [true, false] {
        let stub = Stub::json().await;
        let mut old = Lictor::start(&stub.url()).await;
        let crowd = Crowd::call(&old);
        let mut answered = 0;
        let mut replaced = 0;
        for _ in 0..2 {
            let mut new = old.successor(&[FORGET]);
            if !quit_first {
                new.logged("waits for the old process").await;
            }
            old.signal("QUIT").await;
            let new = new.up().await;
            assert_eq!((new.plain, new.mutual), (old.plain, old.mutual));
            assert_eq!(new.administration(), old.administration());
            assert!(old.ended().await.success());
            new.logged("the process before this one has ended").await;
            replaced += 1;
            old = new;
        }
        answered += crowd.answered().await;
        assert!(answered > 20 && replaced == 2, "{answered}");
        assert!(!old.directory().join("ledger/upgrade.sock").exists());
        // Every one of them is on record, in one chain or another.
        old.stop(answered).await;
    }
}

#[tokio::test]
async fn the_old_one_finishes_what_it_has_begun() {
    let mut stub = Stub::scripted().await;
    let mut old = Lictor::start(&stub.url()).await;
    let idle = old.caller(Transport::Http2Tls).await;
    let (waiting, call) = in_flight(&old, &mut stub).await;
    let mut listener = old.caller(Transport::Http1).await;
    let get = listener.request("GET", whole(""));
    let (mut reply, mut events) = tokio::join!(listener.send(get), async {
        let mut events = stub.call().await;
        events.begin_events().await;
        events
    });
    let new = old.upgrade().await;
    assert_eq!(reply.chunk().await, None, "a stream that only listens ends well");
    events.abandoned().await;
    idle.closed().await;
    serves(&new, &mut stub).await;
    // While it ends it can't be asked to hand over once more, and neither can the new one.
    let again = new.successor(&[FORGET]);
    new.signal("QUIT").await;
    let told = again.fails().await;
    assert!(told.contains("has not ended yet"), "{told}");
    assert!(timeout(Duration::from_millis(100), old.ended()).await.is_err());
    let start = new.again().await;
    assert!(String::from_utf8_lossy(&start.stderr).contains("in use by another writer"));
    call.answer("{}").await;
    assert_eq!(within("the answer", waiting).await.expect("no panic"), 200);
    assert!(old.ended().await.success());
    new.logged("the process before this one has ended").await;
    serves(&new, &mut stub).await;
    new.stop(4).await;
}

#[tokio::test]
async fn what_would_lose_state_is_refused_before_anything_is_handed_over() {
    let mut stub = Stub::scripted().await;
    for (keys, arguments, reason) in [
        ("", &[][..], "--unsafe-forget-state"),
        ("state: { directory: state }", &[FORGET][..], "of one process at a time"),
    ] {
        let old = Setup::to(&stub.url()).with(keys).start().await;
        let told = old.successor(arguments).fails().await;
        assert!(told.contains(reason), "{told}");
        serves(&old, &mut stub).await;
        assert!(!old.directory().join("ledger/upgraded-0001").exists());
        old.stop(1).await;
    }
}

#[tokio::test]
async fn a_new_process_that_fails_leaves_the_old_one_serving() {
    let mut stub = Stub::scripted().await;
    let old = Lictor::start(&stub.url()).await;
    let taken = TcpListener::bind(("127.0.0.1", 0)).expect("bound");
    let address = taken.local_addr().expect("an address");
    let (begun, call) = in_flight(&old, &mut stub).await;
    let mut good = String::new();
    configure(old.directory(), |text| {
        good.clone_from(&text);
        let more = format!(
            "- {{ name: third, bind: '{address}', tls: none, identity: '{CALLER}', \
             routes: [{{ path: /mcp, protocol: mcp, upstream: files }}] }}\nupstreams:\n"
        );
        text.replace("upstreams:\n", &more)
    });
    let new = old.successor(&[FORGET]);
    old.signal("QUIT").await;
    let told = new.fails().await;
    assert!(told.contains("can't be bound"), "{told}");
    old.logged("the new process ended before it was ready").await;
    serves(&old, &mut stub).await;
    // One that waits for its identity, and is killed there.
    configure(old.directory(), |_| {
        let (before, rest) = good.split_once("files: { certificate").expect("files");
        let (_, after) = rest.split_once(" } } } }").expect("their end");
        format!("{before}workloadApi: 'unix:///nowhere/agent.sock' }} }}{after}")
    });
    let mut new = old.successor(&[FORGET]);
    old.signal("QUIT").await;
    old.logged("serving until the new process is ready").await;
    serves(&old, &mut stub).await;
    new.kill().await;
    serves(&old, &mut stub).await;
    call.answer("{}").await;
    assert_eq!(within("the answer", begun).await.expect("no panic"), 200);
    // The third time it works.
    configure(old.directory(), |_| good);
    let new = old.upgrade().await;
    serves(&new, &mut stub).await;
    new.logged("the process before this one has ended").await;
    new.stop(5).await;
}

#[tokio::test]
async fn whoever_is_killed_leaves_a_ledger_that_says_so() {
    let mut stub = Stub::scripted().await;
    let mut old = Lictor::start(&stub.url()).await;
    let (lost, _call) = in_flight(&old, &mut stub).await;
    let new = old.upgrade().await;
    serves(&new, &mut stub).await;
    old.kill().await;
    assert_eq!(within("the end", lost).await.expect("no panic"), 0);
    new.logged("the process before this one has ended").await;
    let recovered =
        async { while !new.entries().await.iter().any(|entry| entry["kind"] == "settled") {} };
    within("the record of it", recovered).await;
    let kinds = |entries: Vec<serde_json::Value>| -> Vec<String> {
        let kind = |entry: &serde_json::Value| entry["kind"].as_str().expect("a kind").to_owned();
        entries.iter().map(kind).filter(|kind| kind != "config").collect()
    };
    assert_eq!(
        kinds(new.entries().await),
        ["genesis", "intent", "genesis", "intent", "outcome", "recovered", "settled"]
    );
    // Now the new one, while the one before it still has something to do.
    let (slow, call) = in_flight(&new, &mut stub).await;
    let mut third = new.upgrade().await;
    let (lost, _call) = in_flight(&third, &mut stub).await;
    third.kill().await;
    assert_eq!(within("the end", lost).await.expect("no panic"), 0);
    let start = third.again().await;
    assert!(String::from_utf8_lossy(&start.stderr).contains("in use by another writer"));
    call.answer("{}").await;
    assert_eq!(within("the answer", slow).await.expect("no panic"), 200);
    let mut new = new;
    assert!(new.ended().await.success());
    let fourth = third.restart().await;
    serves(&fourth, &mut stub).await;
    let ended = fourth.stop(3).await;
    assert!(ended.iter().all(|entry| entry["status"] == "ok"));
}

/// `LICTOR_KILL_ROUNDS` sets how often, five to one; 20.
#[tokio::test]
async fn killed_at_any_moment_they_leave_a_ledger_that_goes_on() {
    let rounds = std::env::var("LICTOR_KILL_ROUNDS").map_or(20, |it| it.parse().expect("a number"));
    let mut stub = Stub::scripted().await;
    let mut begun = 0;
    for round in 0..rounds / 5 {
        let mut old = Lictor::start(&stub.url()).await;
        let (_waiting, _call) = in_flight(&old, &mut stub).await;
        let mut new = old.successor(&[FORGET]);
        old.signal("QUIT").await;
        // From before it has read its configuration to after it serves.
        let moment = u64::from(uuid::Uuid::now_v7().as_bytes()[15]) * 3;
        sleep(Duration::from_millis(moment)).await;
        if round % 2 == 0 {
            old.kill().await;
            sleep(Duration::from_millis(100)).await;
            new.kill().await;
        } else {
            new.kill().await;
            sleep(Duration::from_millis(100)).await;
            old.kill().await;
        }
        begun += usize::from(old.directory().join("ledger/upgraded-0001").exists());
        let after = old.restart().await;
        serves(&after, &mut stub).await;
        let entries = after.entries().await;
        let of = |kind: &str| entries.iter().filter(|entry| entry["kind"] == kind).count();
        assert_eq!((of("intent"), of("recovered")), (2, 1), "{moment} ms: {entries:#?}");
        after.stop_with(|closings| closings == 1).await;
    }
    println!("{} rounds, {begun} chains begun", rounds / 5);
}

/// The new process read its configuration before it was changed, and takes the change over like any other.
#[tokio::test]
async fn a_reload_while_the_new_process_waits_is_not_lost() {
    let (one, two) = (Stub::json().await, Stub::json().await);
    let mut old = Lictor::start(&one.url()).await;
    let mut new = old.successor(&[FORGET]);
    new.logged("waits for the old process").await;
    configure(old.directory(), |text| text.replace(&one.url(), &two.url()));
    let mut calls = until_heard(&old, &two, 1).await;
    // Changed once more while the one hands over to the other.
    configure(old.directory(), |text| text.replace("class: read", "class: write"));
    old.signal("QUIT").await;
    let new = new.up().await;
    calls += until_heard(&new, &two, two.requests() + 1).await;
    assert!(old.ended().await.success());
    let before = one.requests();
    for _ in 0..3 {
        calls += until_heard(&new, &two, two.requests() + 1).await;
    }
    assert_eq!((one.requests(), before + two.requests()), (before, calls));
    // Calls of a tool that writes have an intent.
    let class_of = |entry: &serde_json::Value| entry["kind"] == "intent";
    let intents = async {
        while !new.entries().await.iter().any(class_of) {
            calls += until_heard(&new, &two, two.requests() + 1).await;
        }
    };
    within("a class that is in force", intents).await;
    new.stop(calls).await;
}

/// Calls until an upstream has heard so many; how often. Everybody is served.
async fn until_heard(lictor: &Lictor, stub: &Stub, requests: usize) -> usize {
    let calling = async {
        let mut calls = 0;
        while stub.requests() < requests {
            let mut caller = lictor.caller(Transport::Http1).await;
            assert_eq!(caller.post(CALL).await.whole().await.status, 200);
            calls += 1;
        }
        calls
    };
    within("an upstream that is called", calling).await
}
