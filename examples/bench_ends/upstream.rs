//! The server behind the proxies: reads a whole body, then answers how long it was. A call that wants
//! to follow something is answered with a stream of events that doesn't end.

use std::{io, net::SocketAddr, time::Duration};

use lictor::telemetry::Clock;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{
        TcpListener, TcpStream,
        tcp::{ReadHalf, WriteHalf},
    },
    time::interval,
};

use crate::message::Reader;

/// What stands in the body of a call that is answered with a stream.
const FOLLOW: &[u8] = br#""mode":"follow""#;
/// From one event of a stream to the next. Streams begin at different times, so the events of all of
/// them are spread over it.
const PERIOD: Duration = Duration::from_secs(1);

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Address to listen on.
    #[arg(long)]
    listen: SocketAddr,
}

/// The answer to a call whose body had this many bytes.
pub(crate) fn answer(length: usize) -> String {
    let content = format!(r#"{{"type":"text","text":"{length} bytes"}}"#);
    format!(r#"{{"jsonrpc":"2.0","id":1,"result":{{"content":[{content}]}}}}"#)
}

/// The event of a stream with this number, sent at this Unix time in nanoseconds.
pub(crate) fn event(count: u64, sent: u64) -> String {
    let data = format!(r#"{{"count":{count},"sent":{sent}}}"#);
    let params = format!(r#"{{"level":"info","data":{data}}}"#);
    format!(
        "event: message\ndata: {{\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\",\
         \"params\":{params}}}\n\n"
    )
}

/// Serves until the process is ended.
pub(crate) async fn serve(arguments: Arguments) -> io::Result<()> {
    let listener = TcpListener::bind(arguments.listen).await?;
    loop {
        let (stream, _) = listener.accept().await?;
        // A proxy that drops a connection has nobody to tell; its caller reports the failed call.
        tokio::spawn(async move { converse(stream).await.ok() });
    }
}

async fn converse(mut stream: TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let (read, mut write) = stream.split();
    let mut requests = Reader::new(read);
    while let Some(request) = requests.next().await? {
        if memchr::memmem::find(request.body, FOLLOW).is_some() {
            return follow(requests.into_stream(), write).await;
        }
        let body = answer(request.body.len());
        let response = format!(
            "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        write.write_all(response.as_bytes()).await?;
    }
    Ok(())
}

/// Sends events until the other end closes. nginx buffers what isn't marked.
async fn follow(mut read: ReadHalf<'_>, mut write: WriteHalf<'_>) -> io::Result<()> {
    let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nX-Accel-Buffering: no\r\n\
                Transfer-Encoding: chunked\r\n\r\n";
    write.write_all(head.as_bytes()).await?;
    let mut pace = interval(PERIOD);
    let mut count = 0;
    loop {
        tokio::select! {
            _ = read.read_u8() => return Ok(()),
            _ = pace.tick() => {}
        }
        let sent = u64::try_from(Clock.unix().as_nanos()).map_err(io::Error::other)?;
        let event = event(count, sent);
        let chunk = format!("{:x}\r\n{event}\r\n", event.len());
        write.write_all(chunk.as_bytes()).await?;
        count += 1;
    }
}
