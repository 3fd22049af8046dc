use bytes::{Bytes, BytesMut};
use http::{Method, Request, Uri};
use proptest::prelude::*;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    time::timeout,
};

use super::{
    chunks::{Chunks, Piece},
    head::{self, Framing},
    *,
};
use crate::upstream::resolver::Resolver;

const DEADLINE: Duration = Duration::from_secs(10);

/// Framing of the answer with this head, and whether the connection stays.
fn framed(method: &Method, text: &str) -> Result<(Framing, bool), Broken> {
    let mut come = BytesMut::from(text);
    let (head, length) = head::parse(&mut come, method)?.expect("whole");
    assert_eq!((length, come.len()), (text.len(), 0));
    Ok((head.framing, head.keeps))
}

#[test]
fn the_end_of_an_answer_is_where_its_head_says() {
    let rows: &[(&str, &str, Framing, bool)] = &[
        ("a length", "200 OK\r\nContent-Length: 5", Framing::Length(5), true),
        (
            "the same twice",
            "200\r\nContent-Length: 5\r\nContent-Length: 5",
            Framing::Length(5),
            true,
        ),
        ("chunked", "200 OK\r\nTransfer-Encoding: Chunked", Framing::Chunked, true),
        ("both", "200\r\nContent-Length: 5\r\nTransfer-Encoding: chunked", Framing::Chunked, false),
        ("neither", "200 OK", Framing::Close, false),
        ("no content", "204 No\r\nContent-Length: 5", Framing::Length(0), true),
        ("not modified", "304 No\r\nTransfer-Encoding: chunked", Framing::Length(0), true),
        ("close", "200 OK\r\nContent-Length: 5\r\nConnection: x, Close", Framing::Length(5), false),
    ];
    for (what, head, framing, keeps) in rows {
        let text = format!("HTTP/1.1 {head}\r\n\r\n");
        assert_eq!(framed(&Method::POST, &text).expect(what), (*framing, *keeps), "{what}");
    }
    let old = "HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\n";
    assert_eq!(framed(&Method::POST, old).expect("old"), (Framing::Length(5), false));
    let bodiless = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n";
    assert_eq!(framed(&Method::HEAD, bodiless).expect("HEAD"), (Framing::Length(0), true));
}

#[test]
fn an_answer_whose_end_could_be_seen_in_two_ways_is_refused() {
    for head in [
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6",
        "HTTP/1.1 200 OK\r\nContent-Length: 5, 5",
        "HTTP/1.1 200 OK\r\nContent-Length: +5",
        "HTTP/1.1 200 OK\r\nContent-Length: 0x5",
        "HTTP/1.1 200 OK\r\nContent-Length:",
        "HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: identity",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
        "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked",
        "HTTP/1.1 200 OK\r\nX: 1\r\n folded",
        "HTTP/1.1 200 OK\r\nContent-Length : 5",
        "HTTP/1.1 200 OK\r\nX: a\0b",
        "HTTP/1.1 101 Switching\r\nUpgrade: x",
        "HTTP/2 200 OK",
    ] {
        let text = format!("{head}\r\n\r\n");
        assert!(framed(&Method::POST, &text).is_err(), "{head}");
    }
}

/// What comes out of a coded body that comes in pieces of this size.
fn decoded(coded: &[u8], size: usize) -> Result<Option<Vec<u8>>, Broken> {
    let (mut chunks, mut come, mut body) = (Chunks::Size, BytesMut::new(), Vec::new());
    for piece in coded.chunks(size) {
        come.extend_from_slice(piece);
        loop {
            match chunks.next(&mut come)? {
                Piece::Data(data) => body.extend_from_slice(&data),
                Piece::Nothing => break,
                Piece::End => return Ok(Some(body)),
            }
        }
    }
    Ok(None)
}

#[test]
fn chunks_come_apart_at_any_byte() {
    let rows: &[(&[u8], &[u8])] = &[
        (b"3\r\none\r\n0\r\n\r\n", b"one"),
        (b"003;x=\"y\"\r\none\r\n3 \r\ntwo\r\n0\r\nx-trailer: 1\r\ny: 2\r\n\r\n", b"onetwo"),
        (b"A\r\n0123456789\r\n00\r\n\r\n", b"0123456789"),
        (b"0\r\n\r\n", b""),
    ];
    for (coded, body) in rows {
        for size in 1..=coded.len() {
            let decoded = decoded(coded, size).expect("good");
            assert_eq!(decoded.as_deref(), Some(*body), "{size}");
        }
        for length in 0..coded.len() {
            assert_eq!(decoded(&coded[..length], 1).expect("good so far"), None);
        }
    }
}

#[test]
fn other_codings_are_refused() {
    let long = format!("1;{}\r\n", "x".repeat(20_000));
    let trailers = format!("0\r\n{}", "x: 1\r\n".repeat(4_000));
    for coded in [
        "\r\n",
        "+3\r\none",
        "0x3\r\none",
        "3\none",
        "-1\r\n",
        "3 3\r\none",
        "1ffffffffffffffff\r\n",
        "3\r\none!\r\n",
        "3\r\none\n",
        "3;\rx\r\none",
        "g\r\n",
        &long,
        &trailers,
    ] {
        for size in [1, 7, coded.len()] {
            assert!(decoded(coded.as_bytes(), size).is_err(), "{coded:.20}, {size}");
        }
    }
}

proptest! {
    #[test]
    fn whatever_is_coded_comes_out_again(
        parts in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..300), 0..8),
        size in 1_usize..400,
    ) {
        let mut coded = Vec::new();
        for part in &parts {
            coded.extend_from_slice(format!("{:x}\r\n", part.len()).as_bytes());
            coded.extend_from_slice(part);
            coded.extend_from_slice(b"\r\n");
        }
        coded.extend_from_slice(b"0\r\n\r\n");
        prop_assert_eq!(decoded(&coded, size).expect("good"), Some(parts.concat()));
    }

    #[test]
    fn nothing_that_comes_makes_it_panic(come in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = decoded(&come, 7);
        let _ = head::parse(&mut BytesMut::from(&come[..]), &Method::POST);
    }
}

/// A client, and the listener that it connects to.
async fn client(idle: Duration) -> (Client, TcpListener) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("bound");
    let port = listener.local_addr().expect("address").port();
    let resolver = Resolver::new("127.0.0.1", port);
    let dialer = Dialer { resolver, timeout: DEADLINE, loopback_only: true };
    (Client::new(dialer, idle), listener)
}

/// Sends a call; the status, and the body as far as it came.
async fn call(client: &Client, body: Bytes) -> Result<(u16, Vec<u8>), Error> {
    let head = Request::post("/").header("content-length", body.len());
    let head = head.body(()).expect("request").into_parts().0;
    let target = Uri::from_static("http://127.0.0.1/mcp");
    let answer = timeout(DEADLINE, client.send(&target, &head, body)).await.expect("in time")?;
    let (parts, mut body) = answer.into_parts();
    let mut whole = Vec::new();
    while let Some(piece) = timeout(DEADLINE, body.frame()).await.expect("in time") {
        whole.extend_from_slice(&piece?);
    }
    Ok((parts.status.as_u16(), whole))
}

/// Reads a request's head and so many bytes of its body.
async fn read_request(stream: &mut TcpStream, length: usize) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.expect("a head"));
    }
    assert!(head.starts_with(b"POST /mcp HTTP/1.1\r\ncontent-length: "));
    stream.read_exact(&mut vec![0; length]).await.expect("a body");
}

#[tokio::test]
async fn interim_answers_are_skipped_and_the_connection_is_used_again() {
    let (client, listener) = client(DEADLINE).await;
    let server = async {
        let (mut stream, _) = listener.accept().await.expect("accepted");
        for answer in [
            "HTTP/1.1 103 Early\r\nlink: </x>\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok",
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
            "HTTP/1.1 202 OK\r\ncontent-length: 0\r\n\r\n",
            "HTTP/1.1 200 OK\r\n\r\nto the end",
        ] {
            read_request(&mut stream, 4).await;
            stream.write_all(answer.as_bytes()).await.expect("written");
        }
    };
    let calls = async {
        for expected in [(200, "ok"), (200, "ok"), (202, ""), (200, "to the end")] {
            let (status, body) =
                call(&client, Bytes::from_static(b"body")).await.expect("answered");
            assert_eq!((status, &body[..]), (expected.0, expected.1.as_bytes()));
        }
    };
    tokio::join!(server, calls);
}

#[tokio::test]
async fn a_head_comes_apart_at_any_byte() {
    let (client, listener) = client(DEADLINE).await;
    let server = async {
        let (mut stream, _) = listener.accept().await.expect("accepted");
        stream.set_nodelay(true).expect("set");
        for answer in [
            "HTTP/1.1 103 Early\r\n\r\nHTTP/1.1 200 OK\r\nx: 1\r\ncontent-length: 2\r\n\r\nok",
            "HTTP/1.1 200 OK\ncontent-length: 2\n\nok",
        ] {
            read_request(&mut stream, 0).await;
            for byte in answer.bytes() {
                stream.write_u8(byte).await.expect("written");
                tokio::task::yield_now().await;
            }
        }
    };
    let calls = async {
        for _ in 0..2 {
            assert_eq!(call(&client, Bytes::new()).await.expect("answered"), (200, b"ok".to_vec()));
        }
    };
    tokio::join!(server, calls);
}

#[tokio::test]
async fn interim_answers_without_end_are_refused() {
    let (client, listener) = client(DEADLINE).await;
    let server = async {
        let (mut stream, _) = listener.accept().await.expect("accepted");
        read_request(&mut stream, 0).await;
        let interim = "HTTP/1.1 103 Early\r\nlink: </x>\r\n\r\n".repeat(100);
        // The other end takes each by itself.
        while stream.write_all(interim.as_bytes()).await.is_ok() {
            tokio::task::yield_now().await;
        }
    };
    let calls = async {
        let error = call(&client, Bytes::new()).await.expect_err("no answer");
        assert!(matches!(error, Error::Failed(_)), "{error:?}");
    };
    tokio::join!(server, calls);
}

#[tokio::test]
async fn an_answer_may_come_before_all_was_sent() {
    const LENGTH: usize = 8 << 20;
    for (reads, closes) in [(true, false), (false, true)] {
        let (client, listener) = client(DEADLINE).await;
        let server = async {
            let (mut stream, _) = listener.accept().await.expect("accepted");
            read_request(&mut stream, 1).await;
            let (head, body) = ("HTTP/1.1 413 Long\r\ncontent-length: 2\r\n\r\n", "ok");
            stream.write_all(head.as_bytes()).await.expect("written");
            if reads {
                // Not before it has everything does this server say the rest.
                stream.read_exact(&mut vec![0; LENGTH - 1]).await.expect("the rest");
            }
            stream.write_all(body.as_bytes()).await.expect("written");
            if closes {
                stream.shutdown().await.expect("ended");
                let mut rest = Vec::new();
                let _ = stream.read_to_end(&mut rest).await;
            }
        };
        let calls = async {
            let (status, body) = call(&client, vec![b' '; LENGTH].into()).await.expect("answered");
            assert_eq!((status, &body[..]), (413, &b"ok"[..]));
        };
        tokio::join!(server, calls);
    }
}

#[tokio::test]
async fn a_body_is_held_until_it_is_sent() {
    let (client, listener) = client(DEADLINE).await;
    let held = Arc::new(b"body".to_vec());
    /// Bytes that tell when they are let go.
    struct Shared(Arc<Vec<u8>>);
    impl AsRef<[u8]> for Shared {
        fn as_ref(&self) -> &[u8] {
            &self.0
        }
    }
    let server = async {
        let (mut stream, _) = listener.accept().await.expect("accepted");
        read_request(&mut stream, 4).await;
        // However long the answer takes.
        let let_go = async {
            while Arc::strong_count(&held) > 1 {
                tokio::task::yield_now().await;
            }
        };
        timeout(DEADLINE, let_go).await.expect("nobody holds it");
        stream.write_all(b"HTTP/1.1 202 OK\r\ncontent-length: 0\r\n\r\n").await.expect("written");
    };
    let calls = call(&client, Bytes::from_owner(Shared(Arc::clone(&held))));
    let ((), answer) = tokio::join!(server, calls);
    assert_eq!(answer.expect("answered").0, 202);
}

#[tokio::test]
async fn a_call_of_which_nothing_was_written_goes_out_whole_on_another_connection() {
    let (client, listener) = client(DEADLINE).await;
    let address = listener.local_addr().expect("address");
    let mut stale = TcpStream::connect(address).await.expect("connected");
    let (_kept, _) = listener.accept().await.expect("accepted");
    // Nothing can be sent on it, which only shows when it is tried.
    stale.shutdown().await.expect("shut");
    client.shelf.put(stale);
    let server = async {
        let (mut stream, _) = listener.accept().await.expect("accepted");
        read_request(&mut stream, 4).await;
        stream.write_all(b"HTTP/1.1 202 OK\r\ncontent-length: 0\r\n\r\n").await.expect("written");
    };
    let calls = call(&client, Bytes::from_static(b"body"));
    let ((), answer) = tokio::join!(server, calls);
    assert_eq!(answer.expect("answered").0, 202);
}

#[tokio::test]
async fn a_connection_with_bytes_that_nobody_asked_for_is_not_used_again() {
    let (client, listener) = client(DEADLINE).await;
    let server = async {
        for _ in 0..2 {
            let (mut stream, _) = listener.accept().await.expect("accepted");
            read_request(&mut stream, 0).await;
            let answer = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nokHTTP/1.1 200 OK\r\n";
            stream.write_all(answer.as_bytes()).await.expect("written");
        }
    };
    let calls = async {
        for _ in 0..2 {
            assert_eq!(call(&client, Bytes::new()).await.expect("answered"), (200, b"ok".to_vec()));
        }
    };
    tokio::join!(server, calls);
}

#[tokio::test]
async fn a_connection_that_waits_too_long_is_closed() {
    let (client, listener) = client(Duration::from_millis(20)).await;
    let server = async {
        let (mut stream, _) = listener.accept().await.expect("accepted");
        read_request(&mut stream, 0).await;
        let answer = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
        stream.write_all(answer.as_bytes()).await.expect("written");
        let end = timeout(DEADLINE, stream.read_u8()).await.expect("in time");
        end.expect_err("closed without another call");
    };
    let calls = call(&client, Bytes::new());
    let ((), answer) = tokio::join!(server, calls);
    assert_eq!(answer.expect("answered").0, 200);
}
