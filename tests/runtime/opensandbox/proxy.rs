//! A proxy between a client and its server, which records requests and breaks some of them.

use std::collections::VecDeque;
use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// What happens to a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// It is answered with this status, and does not reach the server.
    Status(u16),
    /// The server gets it, and its answer is lost.
    LoseAnswer,
    /// Nobody answers.
    Silence,
}

/// The faults of the next requests whose first line contains a text, and all requests so far.
#[derive(Debug, Default)]
struct State {
    faults: VecDeque<(String, Fault)>,
    requests: Vec<String>,
}

/// A proxy. Each request comes over a connection of its own.
#[derive(Debug, Clone)]
pub(crate) struct Proxy {
    pub(crate) domain: String,
    state: Arc<Mutex<State>>,
}

impl Proxy {
    /// Starts a proxy to a server.
    pub(crate) fn start(server: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let domain = listener.local_addr().unwrap().to_string();
        let state = Arc::new(Mutex::new(State::default()));
        let (server, shared) = (server.to_owned(), Arc::clone(&state));
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let (server, state) = (server.clone(), Arc::clone(&shared));
                // A connection that ends early is what is tested.
                std::thread::spawn(move || drop(serve(client, &server, &state)));
            }
        });
        Self { domain, state }
    }

    /// Lets the next request whose first line contains a text fail.
    pub(crate) fn fail(&self, line: &str, fault: Fault) {
        self.state.lock().unwrap().faults.push_back((line.to_owned(), fault));
    }

    /// Whether all faults have happened.
    pub(crate) fn is_done(&self) -> bool {
        self.state.lock().unwrap().faults.is_empty()
    }

    /// The heads of all requests.
    pub(crate) fn requests(&self) -> Vec<String> {
        self.state.lock().unwrap().requests.clone()
    }
}

fn serve(mut client: TcpStream, server: &str, state: &Mutex<State>) -> std::io::Result<()> {
    let mut sent = Vec::new();
    let mut buffer = [0; 16 << 10];
    let end = loop {
        let length = client.read(&mut buffer)?;
        if length == 0 {
            return Ok(());
        }
        sent.extend(&buffer[..length]);
        if let Some(end) = sent.windows(4).position(|part| part == b"\r\n\r\n") {
            break end + 4;
        }
    };
    let head = String::from_utf8_lossy(&sent[..end]).into_owned();
    let line = head.lines().next().unwrap_or_default();
    let fault = {
        let mut state = state.lock().unwrap();
        state.requests.push(head.clone());
        let place = state.faults.iter().position(|(text, _)| line.contains(text.as_str()));
        place.and_then(|place| state.faults.remove(place)).map(|(_, fault)| fault)
    };
    match fault {
        Some(Fault::Status(status)) => {
            let body = r#"{"code":"BROKEN","message":"for a test"}"#;
            let answer = format!(
                "HTTP/1.1 {status} Broken\r\ncontent-length: {}\r\nretry-after: 0\r\n\r\n{body}",
                body.len()
            );
            client.write_all(answer.as_bytes())
        }
        Some(Fault::Silence) => {
            std::thread::sleep(Duration::from_secs(30));
            Ok(())
        }
        fault => {
            let mut upstream = TcpStream::connect(server)?;
            upstream.write_all(&sent)?;
            let (mut from, mut to) = (client.try_clone()?, upstream.try_clone()?);
            std::thread::spawn(move || {
                let _ = std::io::copy(&mut from, &mut to);
                to.shutdown(Shutdown::Write)
            });
            if fault == Some(Fault::LoseAnswer) {
                // The server has acted when its answer begins.
                let _ = upstream.read(&mut buffer)?;
                return client.shutdown(Shutdown::Both);
            }
            std::io::copy(&mut upstream, &mut client)?;
            client.shutdown(Shutdown::Both)
        }
    }
}
