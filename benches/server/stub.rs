//! A server that answers the requests of the benchmark, and does nothing.

use std::net::SocketAddr;

use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};

use crate::Failure;

/// Starts it; it ends with the process.
pub(crate) async fn start() -> Result<SocketAddr, Failure> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(serve(stream));
        }
    });
    Ok(address)
}

async fn serve(stream: TcpStream) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut stream = BufReader::new(stream);
    loop {
        let (mut first, mut length) = (String::new(), 0);
        if stream.read_line(&mut first).await? == 0 {
            return Ok(());
        }
        loop {
            let mut line = String::new();
            stream.read_line(&mut line).await?;
            let line = line.trim_end();
            if line.is_empty() {
                break;
            }
            if let Some(value) = line.strip_prefix("content-length: ") {
                length = value.parse().unwrap_or_default();
            }
        }
        let mut body = vec![0; length];
        stream.read_exact(&mut body).await?;
        let body = if first.contains("/endpoints/") {
            "{\"headers\":{\"X-EXECD-ACCESS-TOKEN\":\"token\"}}"
        } else if first.contains("/command ") {
            "{\"type\":\"execution_complete\"}\n\n"
        } else {
            "{\"id\":\"box\"}"
        };
        let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len());
        stream.write_all((head + body).as_bytes()).await?;
    }
}
