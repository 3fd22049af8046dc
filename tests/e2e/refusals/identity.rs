//! Refusals about who is calling, and about who Lictor itself is.

use std::time::Duration;

use super::*;
use crate::{
    http::Wire,
    subject::{CA, caller_tls, upstream_tls},
};

#[tokio::test]
async fn an_identity_is_believed_as_long_as_it_is_valid() {
    let stub = Stub::json().await;
    let lictor = Lictor::start(&stub.url()).await;
    let brief = CA.svid_for("/caller", 4);
    let config =
        caller_tls().with_client_auth_cert(brief.chain.clone(), brief.key()).expect("a credential");
    let mut warm = [
        Caller::tls(lictor.mutual, &config, false).await,
        Caller::tls(lictor.mutual, &config, true).await,
    ];
    // One whose body takes its time.
    let mut slow = Wire::connect_tls(lictor.mutual, &config).await;
    let length = format!("Content-Length: {}\r\nExpect: 100-continue\r\n", CALL.len());
    slow.send(crate::post(&length, "")).await;
    assert_eq!(slow.head().await.status(), 100);
    let mut requests = 1;
    for caller in &mut warm {
        assert_eq!(caller.post(CALL).await.whole().await.status, 200);
        requests += 1;
    }
    let mut served = requests - 1;
    for mut caller in warm {
        // Until the certificate has expired, the connection serves on.
        let expired = async {
            let mut pace = tokio::time::interval(Duration::from_millis(100));
            loop {
                pace.tick().await;
                let answer = caller.post(CALL).await.whole().await;
                requests += 1;
                if answer.status != 200 {
                    return answer;
                }
                served += 1;
            }
        };
        let answer = within("the end of the identity", expired).await;
        check(&answer, &expected(401, 4011, "identity_expired", Value::Null));
    }
    slow.send(CALL).await;
    check(&slow.answer().await, &expected(401, 4011, "identity_expired", Value::Null));
    slow.ends().await;
    // A resumed TLS session proves nothing any more.
    let mut resumed = Caller::tls(lictor.mutual, &config, false).await;
    let answer = resumed.post(CALL).await.whole().await;
    requests += 1;
    check(&answer, &expected(401, 4010, "unauthenticated", Value::Null));
    resumed.closed().await;
    assert_eq!(stub.requests(), served);
    lictor.stop(requests).await;
}

#[tokio::test]
async fn without_an_identity_of_its_own_it_calls_no_upstream() {
    let stub = Stub::scripted_tls(upstream_tls(b"http/1.1")).await;
    let setup = Setup::to(&stub.url()).upstream("spiffeId: 'spiffe://one.test/server'");
    let lictor = setup.valid_for(4).start().await;
    let mut stub = stub;
    let mut caller = lictor.caller(Transport::Http1).await;
    let (reply, ()) =
        tokio::join!(caller.post(CALL), async { stub.call().await.answer("{}").await });
    assert_eq!(reply.whole().await.status, 200);
    let mut requests = 1;
    let expired = async {
        let mut pace = tokio::time::interval(Duration::from_millis(100));
        loop {
            pace.tick().await;
            requests += 1;
            let calling = async {
                let reply = caller.post(CALL).await;
                reply.whole().await
            };
            tokio::pin!(calling);
            let answer = tokio::select! {
                answer = &mut calling => answer,
                call = stub.call() => {
                    call.answer("{}").await;
                    calling.await
                }
            };
            if answer.status != 200 {
                return answer;
            }
        }
    };
    let answer = within("the end of the identity", expired).await;
    check(&answer, &expected(503, 5032, "not_ready", 7));
    assert_eq!(stub.requests(), requests - 1);
    lictor.stop(requests).await;
}

#[tokio::test]
async fn a_caller_without_a_certificate_gets_no_answer() {
    let stub = Stub::json().await;
    let lictor = Lictor::start(&stub.url()).await;
    let config = caller_tls().with_no_client_auth();
    let mut wire = Wire::connect_tls(lictor.mutual, &config).await;
    // In TLS 1.3 the client learns of it after its own part of the handshake.
    wire.try_send(post_whole("", CALL)).await;
    wire.ends().await;
    let mut plain = Wire::connect(lictor.mutual).await;
    plain.try_send(post_whole("", CALL)).await;
    let rest = plain.rest().await;
    assert!(!rest.starts_with(b"HTTP/"), "{}", String::from_utf8_lossy(&rest));
    assert_eq!(stub.connections(), 0);
    lictor.stop(0).await;
}
