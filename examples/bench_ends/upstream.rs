//! The server behind the proxies: reads a whole body, then answers how long it was.

use std::{io, net::SocketAddr};

use tokio::{
    io::AsyncWriteExt,
    net::{TcpListener, TcpStream},
};

use crate::message::Reader;

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
        let body = answer(request.body.len());
        let response = format!(
            "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        write.write_all(response.as_bytes()).await?;
    }
    Ok(())
}
