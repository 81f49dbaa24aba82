//! Traffic to the host's side of the network: attempts to reach somebody by address, by name or by the
//! proxy, and what came back.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use crate::{Attack, Verdict};

pub(crate) const ATTACKS: &[Attack] = &[("fetch", fetch), ("reach", reach)];

/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// `fetch (direct|proxy) NAME:PORT…`: what a server says, by its name: no attack.
fn fetch(arguments: &[String]) -> Verdict {
    let Some((way, servers)) = arguments.split_first() else {
        return Verdict::Broken("a way is needed".into());
    };
    let said: Vec<_> = servers
        .iter()
        .map(|server| {
            let said = match way.as_str() {
                "proxy" => by_proxy(server),
                _ => TcpStream::connect(server.as_str()).and_then(|stream| ask(stream, server)),
            };
            said.unwrap_or_else(|error| format!("no answer: {error}"))
        })
        .collect();
    Verdict::Held(said.join(" | "))
}

/// `reach TOKEN ADDRESS…`: whether somebody answers with the token at an address, or through the
/// proxy at it.
fn reach(arguments: &[String]) -> Verdict {
    let Some((token, addresses)) = arguments.split_first() else {
        return Verdict::Broken("a token is needed".into());
    };
    let mut escapes = Vec::new();
    let mut held = Vec::new();
    let mut judge = |what: String, said: std::io::Result<String>| match said {
        Ok(said) if said.contains(token) => escapes.push(what),
        Ok(said) => held.push(format!("{what}: {} bytes of somebody else", said.len())),
        Err(error) => held.push(format!("{what}: {error}")),
    };
    for address in addresses {
        if let Ok(direct) = address.parse::<SocketAddr>() {
            let connected = TcpStream::connect_timeout(&direct, PATIENCE);
            judge(address.clone(), connected.and_then(|stream| ask(stream, address)));
        }
        judge(format!("{address} by the proxy"), by_proxy(address));
        judge(format!("{address} by a request to the proxy"), by_request(address));
    }
    Verdict::unless(&escapes, held.join(", "))
}

fn ask(mut stream: TcpStream, host: &str) -> std::io::Result<String> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(
        format!("GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n").as_bytes(),
    )?;
    let mut said = Vec::new();
    stream.read_to_end(&mut said)?;
    Ok(String::from_utf8_lossy(&said).into_owned())
}

fn proxy() -> std::io::Result<TcpStream> {
    let variable = std::env::var("http_proxy").map_err(std::io::Error::other)?;
    let stream = TcpStream::connect(variable.trim_start_matches("http://"))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    Ok(stream)
}

fn by_proxy(target: &str) -> std::io::Result<String> {
    let mut stream = proxy()?;
    stream.write_all(format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n").as_bytes())?;
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte)? == 1 {
        head.push(byte[0]);
    }
    if head.starts_with(b"HTTP/1.1 200") {
        return ask(stream, target);
    }
    stream.read_to_end(&mut head)?;
    Ok(String::from_utf8_lossy(&head).into_owned())
}

fn by_request(target: &str) -> std::io::Result<String> {
    let mut stream = proxy()?;
    stream.write_all(
        format!("GET http://{target}/ HTTP/1.1\r\nHost: {target}\r\nConnection: close\r\n\r\n")
            .as_bytes(),
    )?;
    let mut said = Vec::new();
    stream.read_to_end(&mut said)?;
    Ok(String::from_utf8_lossy(&said).into_owned())
}
