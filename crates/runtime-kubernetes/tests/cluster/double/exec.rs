//! Exec: runs a command in the namespaces of a container, with its streams over a WebSocket.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::process::{Command, Stdio};
use std::sync::Arc;

use axum::extract::ws::{Message, WebSocket, WebSocketUpgrade};
use axum::response::Response;
use futures_util::{SinkExt as _, StreamExt as _};
use serde_json::json;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::mpsc;

use super::kubelet::{PATH, Process};
use super::server::failure;
use super::store::{Key, Store};

/// Answers a request for exec.
pub(crate) fn serve(
    store: &Arc<Store>,
    pod: &Key,
    query: &[(String, String)],
    upgrade: WebSocketUpgrade,
    cut: Option<usize>,
) -> Response {
    let Some(process) = store.processes.lock().unwrap().get(pod).cloned() else {
        return match store.get(pod) {
            None => failure(404, "NotFound", "there is no such pod"),
            Some(_) => failure(500, "InternalError", "the container is not running"),
        };
    };
    let all = |name: &str| -> Vec<String> {
        query.iter().filter(|(key, _)| key == name).map(|(_, value)| value.clone()).collect()
    };
    if all("container") != ["sandbox"] {
        return failure(400, "BadRequest", "there is no such container");
    }
    let command = all("command");
    upgrade
        .protocols(["v5.channel.k8s.io", "v4.channel.k8s.io"])
        .on_upgrade(move |socket| run(socket, process, command, cut))
}

async fn run(socket: WebSocket, process: Arc<Process>, command: Vec<String>, cut: Option<usize>) {
    let mut enter = Command::new("nsenter");
    enter.args(["-t", &process.pid.to_string(), "-m", "-p", "-n", "-i", "-u"]);
    enter.args(["-S", &process.user.0.to_string(), "-G", &process.user.1.to_string(), "--"]);
    enter.args(command).env_clear().env("PATH", PATH);
    enter.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = enter.spawn().unwrap();
    let mut input = child.stdin.take().map(|input| stream(input.into()));
    let (sender, mut output) = mpsc::channel(4);
    let streams: [(u8, Box<dyn AsyncRead + Send + Unpin>); 2] = [
        (1, Box::new(stream(child.stdout.take().unwrap().into()))),
        (2, Box::new(stream(child.stderr.take().unwrap().into()))),
    ];
    let pumps = streams.map(|(number, stream)| tokio::spawn(pump(number, stream, sender.clone())));
    drop(sender);
    let (mut to, mut from) = socket.split();
    let mut left = cut.unwrap_or(usize::MAX);
    loop {
        tokio::select! {
            message = from.next() => match message {
                Some(Ok(Message::Binary(bytes))) => match bytes.split_first() {
                    Some((0, bytes)) => {
                        if let Some(input) = &mut input {
                            // The command may have closed it.
                            let _ = input.write_all(bytes).await;
                            let _ = input.flush().await;
                        }
                    }
                    Some((255, [0])) => input = None,
                    _ => {}
                },
                Some(Ok(Message::Close(_)) | Err(_)) | None => break,
                Some(Ok(_)) => {}
            },
            piece = output.recv() => {
                let Some(piece) = piece else {
                    let ended = tokio::task::spawn_blocking(move || child.wait());
                    let status = ended.await.unwrap().unwrap();
                    let status = if status.success() { "Success" } else { "Failure" };
                    let mut last = vec![3];
                    last.extend(json!({ "status": status }).to_string().bytes());
                    let _ = to.send(Message::Binary(last.into())).await;
                    return;
                };
                match left.checked_sub(piece.len()) {
                    Some(rest) => left = rest,
                    // The connection is dropped without a word.
                    None => break,
                }
                if to.send(Message::Binary(piece.into())).await.is_err() {
                    break;
                }
            }
        }
    }
    drop(input);
    for pump in pumps {
        pump.abort();
    }
    tokio::task::spawn_blocking(move || child.wait());
}

fn stream(descriptor: OwnedFd) -> tokio::fs::File {
    tokio::fs::File::from_std(File::from(descriptor))
}

async fn pump(
    number: u8,
    mut stream: Box<dyn AsyncRead + Send + Unpin>,
    to: mpsc::Sender<Vec<u8>>,
) {
    loop {
        let mut piece = vec![0; 32 << 10];
        piece[0] = number;
        match stream.read(&mut piece[1..]).await {
            Ok(0) | Err(_) => return,
            Ok(read) => piece.truncate(read + 1),
        }
        if to.send(piece).await.is_err() {
            return;
        }
    }
}
