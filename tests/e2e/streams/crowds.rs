//! Many callers who come and go in every way, and what is left of them.

use tokio::{io::AsyncWriteExt, net::TcpStream};

use super::*;
use crate::http::Wire;

/// How somebody leaves.
#[derive(Clone, Copy, Debug)]
enum Leaving {
    /// Closes the connection.
    Closing(Transport),
    /// Resets the stream of HTTP/2, and keeps the connection.
    Resetting,
    /// Resets the connection.
    Aborting,
    /// Says that nothing more will come, and stays.
    HalfClosing,
}

#[tokio::test]
async fn nothing_is_left_of_those_who_vanish() {
    const EACH: usize = 25;
    let mut stub = Stub::scripted().await;
    let lictor = Lictor::start(&stub.url()).await;
    let files = lictor.descriptors(usize::MAX).await;
    let ways = TRANSPORTS.map(Leaving::Closing).into_iter().chain([
        Leaving::Resetting,
        Leaving::Aborting,
        Leaving::HalfClosing,
    ]);
    let ways: Vec<_> = ways.collect();
    for way in ways.iter().copied() {
        let mut calls = Vec::new();
        let mut stay = Vec::new();
        for _ in 0..EACH {
            match way {
                Leaving::Closing(transport) => {
                    let (caller, reply, call) = getting(&lictor, &mut stub, transport).await;
                    calls.push(call);
                    drop((caller, reply));
                }
                Leaving::Resetting => {
                    let (caller, reply, call) =
                        getting(&lictor, &mut stub, Transport::Http2Tls).await;
                    calls.push(call);
                    drop(reply);
                    stay.push(caller);
                }
                Leaving::Aborting | Leaving::HalfClosing => {
                    let mut stream = TcpStream::connect(lictor.plain).await.expect("connected");
                    stream.set_zero_linger().expect("it resets");
                    let get = "GET /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n";
                    stream.write_all(get.as_bytes()).await.expect("sent");
                    let mut call = stub.call().await;
                    call.begin_events().await;
                    calls.push(call);
                    if matches!(way, Leaving::HalfClosing) {
                        stream.shutdown().await.expect("half of it");
                        let mut wire = Wire::new(stream);
                        assert_eq!(wire.head().await.status(), 200);
                        wire.rest().await;
                    }
                }
            }
        }
        for call in &mut calls {
            call.abandoned().await;
        }
        drop(stay);
        let left = lictor.descriptors(files).await;
        assert!(left <= files, "{way:?}: {files} descriptors at first, {left} afterwards");
    }
    lictor.stop(EACH * ways.len()).await;
}

#[tokio::test]
async fn a_low_limit_of_open_files_is_raised() {
    const MANY: usize = 120;
    let mut stub = Stub::scripted().await;
    let lictor = Setup::to(&stub.url()).file_limit(1 << 30).start().await;
    let mut streams = Vec::new();
    for _ in 0..MANY {
        streams.push(getting(&lictor, &mut stub, Transport::Http1).await);
    }
    drop(streams);
    lictor.stop(MANY).await;
}

#[tokio::test]
async fn nothing_is_left_of_those_who_idle() {
    let stub = Stub::json().await;
    let idle = "timeouts: { idle: 500ms }";
    let lictor = Setup::to(&stub.url()).listener(idle).upstream(idle).start().await;
    let files = lictor.descriptors(usize::MAX).await;
    let mut crowd = Vec::new();
    for _ in 0..150 {
        let mut caller = lictor.caller(Transport::Http2Tls).await;
        assert_eq!(caller.post(CALL).await.whole().await.status, 200);
        crowd.push(caller);
    }
    for caller in crowd {
        caller.closed().await;
    }
    let left = lictor.descriptors(files).await;
    assert!(left <= files, "{files} descriptors at first, {left} afterwards");
    lictor.stop(150).await;
}
