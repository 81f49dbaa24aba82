//! The stream of a command's output: one JSON object for each event, and an empty line after it. The
//! first event has the id of the command; each line of output is an event; the last event is the
//! command's end.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use axum::body::{Body, Bytes};
use axum::http::header;
use axum::response::{IntoResponse as _, Response};
use serde_json::{Value, json};
use stockade_api::{Ending, KillCommand, OutputEnd, Problem, Session, SessionEvent};
use tokio::sync::mpsc;

use super::super::target::{PortState, Target};
use crate::inside::Channel;

/// How many events may wait for a slow client; then the command waits.
const CHANNEL_CAPACITY: usize = 64;
/// How often a silent stream shows that it is alive.
const PING_INTERVAL: Duration = Duration::from_secs(3);
/// The longest line of output that is one event, in bytes.
const LINE_BYTES: usize = 16 << 20;

/// The name of the error of a command that did not succeed.
const COMMAND_ERROR: &str = "CommandExecError";

/// The response that streams a session. If the client disconnects, the command is ended.
pub(super) fn stream(state: PortState, target: Target, session: Session) -> Response {
    let (sender, receiver) = mpsc::channel(CHANNEL_CAPACITY);
    tokio::spawn(relay(state, target, session, sender));
    event_stream(Body::new(Channel(receiver)))
}

/// The response for a command that continues without this client.
pub(super) fn detached(id: &str) -> Response {
    let mut text = event(init(id));
    text.extend(event(json!({ "type": "execution_complete", "execution_time": 0 })));
    event_stream(Body::from(text))
}

/// The response with a stream of events.
pub(super) fn event_stream(body: Body) -> Response {
    let headers = [
        (header::CONTENT_TYPE, "text/event-stream"),
        (header::CACHE_CONTROL, "no-cache"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ];
    (headers, body).into_response()
}

type Sender = mpsc::Sender<Bytes>;

async fn relay(state: PortState, target: Target, session: Session, to: Sender) {
    let id = session.workflow_id.clone();
    // The input ends here: the command reads nothing.
    let Session { mut events, input, .. } = session;
    drop(input);
    let is_complete = async {
        send(&to, init(&id.0)).await?;
        let (mut out, mut err) = (Lines::new("stdout"), Lines::new("stderr"));
        let started = Instant::now();
        loop {
            let next = tokio::select! {
                next = tokio::time::timeout(PING_INTERVAL, events.next()) => next,
                () = to.closed() => return None,
            };
            match next {
                Err(_) => send(&to, json!({ "type": "ping", "text": "pong" })).await?,
                Ok(Some(Ok(SessionEvent::Stdout { data }))) => out.push(&data.0, &to).await?,
                Ok(Some(Ok(SessionEvent::Stderr { data }))) => err.push(&data.0, &to).await?,
                Ok(Some(Ok(SessionEvent::Lost { bytes }))) => {
                    let text = format!("{bytes} bytes of output were lost");
                    send(&to, json!({ "type": "status", "text": text })).await?;
                }
                Ok(Some(Ok(SessionEvent::Ended(end)))) => {
                    out.finish(&to).await?;
                    err.finish(&to).await?;
                    send(&to, ended(&end)).await?;
                    // After the end of the stream, the status of the command is its end.
                    let _ = state.sandboxes.wait_operation(&target.caller, id.clone()).await;
                    return Some(());
                }
                Ok(Some(Err(problem))) => {
                    out.finish(&to).await?;
                    err.finish(&to).await?;
                    send(&to, failed(&problem)).await?;
                    return Some(());
                }
                Ok(None) => {
                    let problem = Problem::new(
                        stockade_core::Code::OutcomeUnknown,
                        format!("the stream ended after {:?}", started.elapsed()),
                    );
                    send(&to, failed(&problem)).await?;
                    return Some(());
                }
            }
        }
    };
    if is_complete.await.is_none() {
        let kill = KillCommand { workflow_id: id, signal: None };
        // It has ended already, or its sandbox has.
        let _ = state.sandboxes.kill_command(&target.caller, kill).await;
    }
}

/// Sends an event; `None` if the client has disconnected.
async fn send(to: &Sender, value: Value) -> Option<()> {
    to.send(Bytes::from(event(value))).await.ok()
}

/// An event, with the time.
pub(super) fn event(mut value: Value) -> Vec<u8> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    value["timestamp"] = json!(u64::try_from(now.as_millis()).unwrap_or(u64::MAX));
    let mut text = value.to_string().into_bytes();
    text.extend(b"\n\n");
    text
}

fn init(id: &str) -> Value {
    json!({ "type": "init", "text": id })
}

/// The last event of a command.
fn ended(end: &OutputEnd) -> Value {
    if end.ending == Ending::Exited && end.exit_code == Some(0) {
        return json!({ "type": "execution_complete", "execution_time": end.duration_ms });
    }
    // Clients read the exit code from here.
    let value = end.exit_code.map_or_else(|| "unknown".to_owned(), |code| code.to_string());
    let mut traceback = vec![format!("exit status {value}")];
    traceback.extend(end.reason.clone());
    json!({
        "type": "error",
        "error": { "ename": COMMAND_ERROR, "evalue": value, "traceback": traceback },
    })
}

fn failed(problem: &Problem) -> Value {
    let traceback: Vec<_> = problem.cause.iter().cloned().collect();
    json!({
        "type": "error",
        "error": {
            "ename": problem.code,
            "evalue": problem.message,
            "traceback": traceback,
        },
    })
}

/// Splits one stream of output into lines.
struct Lines {
    kind: &'static str,
    rest: Vec<u8>,
    /// Whether the last byte ended a line as `\r`, so that a following `\n` belongs to it.
    after_return: bool,
}

impl Lines {
    const fn new(kind: &'static str) -> Self {
        Self { kind, rest: Vec::new(), after_return: false }
    }

    async fn push(&mut self, data: &[u8], to: &Sender) -> Option<()> {
        for line in self.split(data) {
            send(to, self.line(&line)).await?;
        }
        Some(())
    }

    /// Sends what follows the last end of a line.
    async fn finish(&mut self, to: &Sender) -> Option<()> {
        if self.rest.is_empty() {
            return Some(());
        }
        let line = std::mem::take(&mut self.rest);
        send(to, self.line(&line)).await
    }

    fn line(&self, line: &[u8]) -> Value {
        json!({ "type": self.kind, "text": String::from_utf8_lossy(line) })
    }

    fn split(&mut self, data: &[u8]) -> Vec<Vec<u8>> {
        let mut lines = Vec::new();
        for &byte in data {
            match byte {
                b'\n' if std::mem::take(&mut self.after_return) => {}
                b'\n' => lines.push(std::mem::take(&mut self.rest)),
                b'\r' => {
                    self.after_return = true;
                    lines.push(std::mem::take(&mut self.rest));
                }
                byte => {
                    self.after_return = false;
                    self.rest.push(byte);
                    if self.rest.len() >= LINE_BYTES {
                        lines.push(std::mem::take(&mut self.rest));
                    }
                }
            }
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(parts: &[&str]) -> (Vec<String>, String) {
        let mut lines = Lines::new("stdout");
        let found = parts.iter().flat_map(|part| lines.split(part.as_bytes()));
        let found = found.map(|line| String::from_utf8(line).unwrap()).collect();
        (found, String::from_utf8(lines.rest).unwrap())
    }

    #[test]
    fn output_is_split_at_each_end_of_a_line() {
        let expect = |lines: &[&str], rest: &str| {
            (lines.iter().map(|line| (*line).to_owned()).collect::<Vec<_>>(), rest.to_owned())
        };
        assert_eq!(split(&["a\nb"]), expect(&["a"], "b"));
        assert_eq!(split(&["a", "b\n", "\n"]), expect(&["ab", ""], ""));
        assert_eq!(split(&["a\r\nb\r", "\nc\rd"]), expect(&["a", "b", "c"], "d"));
        assert_eq!(split(&["\r\r\n\n"]), expect(&["", "", ""], ""));
    }

    #[test]
    fn the_end_has_the_exit_code() {
        let mut end = OutputEnd {
            ending: Ending::Exited,
            exit_code: Some(0),
            signal: None,
            reason: None,
            duration_ms: 7,
            stdout_bytes: 0,
            stderr_bytes: 0,
            refused_calls: Vec::new(),
        };
        assert_eq!(ended(&end), json!({ "type": "execution_complete", "execution_time": 7 }));
        end.exit_code = Some(3);
        let error = ended(&end)["error"].clone();
        assert_eq!((&error["ename"], &error["evalue"]), (&json!("CommandExecError"), &json!("3")));
        assert_eq!(error["traceback"], json!(["exit status 3"]));
    }
}
