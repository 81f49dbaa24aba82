//! A server for the tests of runtimes, to be started in a sandbox: `echo tcp PORT` on the loopback
//! or `echo unix PATH`. It sends back what it receives, on any number of concurrent connections,
//! and closes each when the other side has closed it.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};

trait Stream: Read + Write + Send + 'static {
    fn end(&self) -> io::Result<()>;
}

impl Stream for TcpStream {
    fn end(&self) -> io::Result<()> {
        self.shutdown(Shutdown::Write)
    }
}

impl Stream for UnixStream {
    fn end(&self) -> io::Result<()> {
        self.shutdown(Shutdown::Write)
    }
}

fn echo(mut stream: impl Stream) -> io::Result<()> {
    let mut buffer = vec![0; 64 * 1024];
    loop {
        match stream.read(&mut buffer)? {
            0 => return stream.end(),
            length => stream.write_all(&buffer[..length])?,
        }
    }
}

fn serve<S: Stream>(connections: impl Iterator<Item = io::Result<S>>) -> io::Result<()> {
    for stream in connections {
        let stream = stream?;
        std::thread::spawn(move || echo(stream));
    }
    Ok(())
}

fn main() -> io::Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["tcp", port] => {
            let port = port.parse().map_err(io::Error::other)?;
            serve(TcpListener::bind((Ipv4Addr::LOCALHOST, port))?.incoming())
        }
        ["unix", path] => serve(UnixListener::bind(path)?.incoming()),
        _ => Err(io::Error::other("usage: echo tcp PORT | echo unix PATH")),
    }
}
