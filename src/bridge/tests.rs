use std::sync::{Arc, Mutex};

use tokio::io::AsyncWriteExt;

use super::{
    failure::adopted,
    message::{Id, Look, Outgoing},
    output::Output,
    read,
};

fn id(json: &str) -> Id {
    let line = format!(r#"{{"id":{json},"method":"ping"}}"#);
    Outgoing::read(line.as_bytes()).expect("a message").id.expect("an id")
}

#[test]
fn messages_are_told_apart() {
    let read = |line: &str| Outgoing::read(line.as_bytes());
    let call = read(r#"{"jsonrpc":"2.0","id":"a\u0062","method":"ping"}"#).expect("a request");
    assert_eq!((call.id, call.method.as_deref()), (Some(id(r#""ab""#)), Some("ping")));
    let answer = read(r#"{"jsonrpc":"2.0","id":1,"result":{}}"#).expect("an answer");
    assert_eq!((answer.id, answer.method), (None, None));
    let notice = read(r#"{"method":"notifications/cancelled","params":{"requestId":1.0e2}}"#);
    let notice = notice.expect("a notification");
    assert_eq!((notice.id, notice.cancels), (None, Some(id("1.0e2"))));
    assert!(read(r#"{"method":"x","params":{"requestId":1}}"#).expect("one").cancels.is_none());
    for line in
        ["", "[]", "null", "{", r#"{"id":[],"method":"x"}"#, r#"{"id":1,"id":2,"method":"x"}"#]
    {
        assert!(read(line).is_none(), "{line}");
    }
}

#[test]
fn errors_without_an_id_are_adopted() {
    let seven = id("7");
    let adopt = |body: &str| {
        let line = adopted(body.as_bytes(), &seven)?;
        Some(String::from_utf8(line).expect("UTF-8"))
    };
    let own = r#"{"jsonrpc":"2.0","id":7,"error":{"code":1,"message":"m"},"x":1}"#;
    assert_eq!(adopt(own).as_deref(), Some(own));
    let told =
        r#"{"jsonrpc":"2.0","id":7,"error":{"code":-32600,"message":"m\"","data":{"a":1.10}}}"#;
    for id in [r#""id":null,"#, ""] {
        let body = format!(
            r#"{{"jsonrpc":"2.0",{id}"error":{{"code":-32600,"message":"m\"","data":{{"a":1.10}}}}}}"#
        );
        assert_eq!(adopt(&body).as_deref(), Some(told));
    }
    for other in [
        r#"{"id":8,"error":{"code":1,"message":"m"}}"#,
        r#"{"result":{}}"#,
        r#"{"error":"unauthorized"}"#,
        "<html>",
        "",
    ] {
        assert_eq!(adopt(other), None, "{other}");
    }
}

#[test]
fn answers_are_known_by_their_id() {
    let look = |text: &'static str| Look::read(text.as_bytes()).expect("a message");
    assert!(look(r#"{"id":"ab","result":{}}"#).answers(&id(r#""a\u0062""#)));
    assert!(!look(r#"{"id":"7","result":{}}"#).answers(&id("7")));
    assert!(!look(r#"{"id":7,"method":"ping"}"#).answers(&id("7")));
    assert!(!look(r#"{"result":{}}"#).answers(&id("7")));
}

#[tokio::test]
async fn lines_are_read_in_any_pieces() {
    let (mut far, near) = tokio::io::duplex(7);
    let (line, mut lines) = tokio::sync::mpsc::channel(8);
    let reading = tokio::spawn(read(near, line, 100));
    let writing = tokio::spawn(async move {
        far.write_all(b"one\n\r\n  \ntwo\r\n\n").await.expect("written");
        far.write_all(&[b'x'; 1000]).await.expect("written");
        far.write_all(b"\nthree\nfour").await.expect("written");
    });
    let mut all = Vec::new();
    while let Some(line) = lines.recv().await {
        all.push(String::from_utf8(line).expect("UTF-8"));
    }
    writing.await.expect("no panic");
    reading.await.expect("no panic").expect("read");
    assert_eq!(all, ["one", "two", "three", "four"]);
}

/// Takes one byte at a time.
struct Slow(Arc<Mutex<Vec<u8>>>);

impl tokio::io::AsyncWrite for Slow {
    fn poll_write(
        self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
        bytes: &[u8],
    ) -> std::task::Poll<std::io::Result<usize>> {
        self.0.lock().expect("the lock").extend(bytes.first());
        std::task::Poll::Ready(Ok(bytes.len().min(1)))
    }

    fn poll_flush(
        self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<std::io::Result<()>> {
        std::task::Poll::Ready(Ok(()))
    }

    fn poll_shutdown(
        self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<std::io::Result<()>> {
        std::task::Poll::Ready(Ok(()))
    }
}

#[tokio::test]
async fn lines_are_written_whole() {
    let written = Arc::new(Mutex::new(Vec::new()));
    let (output, writer) = Output::start(Slow(Arc::clone(&written)));
    let mut tasks = tokio::task::JoinSet::new();
    for n in 0..100 {
        let output = output.clone();
        tasks.spawn(async move { output.line(format!("{n}\r\n{n}").as_bytes()).await });
    }
    tasks.join_all().await;
    drop(output);
    writer.await.expect("no panic").expect("written");
    let written = String::from_utf8(written.lock().expect("the lock").clone()).expect("UTF-8");
    let mut lines: Vec<_> = written.lines().collect();
    lines.sort_unstable();
    let mut expected: Vec<_> = (0..100).map(|n| format!("{n}  {n}")).collect();
    expected.sort_unstable();
    assert_eq!(lines, expected);
}
