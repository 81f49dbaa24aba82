//! The messages of `process.Process`.

use std::collections::BTreeMap;
use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use stockade_api::{Bytes, Ending, OutputEnd, Terminal};

use crate::e2b::connect::bytes_or_none;
use crate::e2b::failure::{RpcCode, RpcError};

/// The signals that clients send.
pub(super) const SIGKILL: i32 = 9;
const SIGTERM: i32 = 15;

#[derive(Debug, Default, Deserialize, JsonSchema)]
pub(super) struct Empty {}

/// The request for a process.
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct Start {
    pub(super) process: Config,
    #[serde(default)]
    pub(super) pty: Option<Pty>,
    #[serde(default)]
    pub(super) tag: Option<String>,
    /// Whether it has an input. Older clients, which do not say it, send input.
    #[serde(default)]
    pub(super) stdin: Option<bool>,
}

/// A command.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
pub(super) struct Config {
    pub(super) cmd: String,
    #[serde(default)]
    pub(super) args: Vec<String>,
    #[serde(default)]
    pub(super) envs: BTreeMap<String, String>,
    #[serde(default)]
    pub(super) cwd: Option<String>,
}

impl Config {
    pub(super) fn to_json(&self) -> Value {
        let mut value = json!({ "cmd": self.cmd, "args": self.args, "envs": self.envs });
        if let Some(cwd) = &self.cwd {
            value["cwd"] = cwd.as_str().into();
        }
        value
    }
}

#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct Pty {
    #[serde(default)]
    pub(super) size: Option<Size>,
}

#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
pub(super) struct Size {
    #[serde(default)]
    cols: u32,
    #[serde(default)]
    rows: u32,
}

impl Size {
    pub(super) fn terminal(self) -> Result<Terminal, RpcError> {
        // With 0, the size is not known, as for a client whose own terminal has none.
        match (u16::try_from(self.rows), u16::try_from(self.cols)) {
            (Ok(rows), Ok(columns)) => Ok(Terminal { rows, columns }),
            _ => {
                let message = "`cols` and `rows` of a terminal are at most 65535";
                Err(RpcError::new(RpcCode::InvalidArgument, message))
            }
        }
    }
}

/// Names a process.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
pub(super) struct Selector {
    #[serde(default)]
    pub(super) pid: Option<u32>,
    #[serde(default)]
    pub(super) tag: Option<String>,
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.pid, &self.tag) {
            (Some(pid), _) => write!(f, "pid {pid}"),
            (None, Some(tag)) => write!(f, "tag {tag}"),
            (None, None) => write!(f, "no name"),
        }
    }
}

/// A message about a process.
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct Select {
    #[serde(default)]
    pub(super) process: Selector,
}

/// A message for a process.
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct SendInput {
    #[serde(default)]
    pub(super) process: Selector,
    #[serde(default)]
    pub(super) input: Option<Input>,
}

/// Input.
#[derive(Debug, Default, Deserialize, JsonSchema)]
pub(super) struct Input {
    #[serde(default, deserialize_with = "bytes_or_none")]
    #[schemars(with = "Option<String>")]
    pub(super) stdin: Option<Vec<u8>>,
    #[serde(default, deserialize_with = "bytes_or_none")]
    #[schemars(with = "Option<String>")]
    pub(super) pty: Option<Vec<u8>>,
}

/// A change of the terminal.
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct Update {
    #[serde(default)]
    pub(super) process: Selector,
    #[serde(default)]
    pub(super) pty: Option<Pty>,
}

/// A message of a stream of input.
#[derive(Debug, Deserialize)]
pub(super) struct StreamInput {
    #[serde(default)]
    pub(super) start: Option<Select>,
    #[serde(default)]
    pub(super) data: Option<InputData>,
}

#[derive(Debug, Deserialize)]
pub(super) struct InputData {
    #[serde(default)]
    pub(super) input: Option<Input>,
}

/// A signal for a process.
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct Signal {
    #[serde(default)]
    pub(super) process: Selector,
    #[serde(default)]
    pub(super) signal: SignalName,
}

/// The name or the number of a signal.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(untagged)]
pub(super) enum SignalName {
    Number(i32),
    Name(String),
    #[default]
    None,
}

impl SignalName {
    pub(super) fn number(&self) -> Option<i32> {
        match self {
            Self::Number(number @ (SIGKILL | SIGTERM)) => Some(*number),
            Self::Name(name) if name == "SIGNAL_SIGKILL" => Some(SIGKILL),
            Self::Name(name) if name == "SIGNAL_SIGTERM" => Some(SIGTERM),
            _ => None,
        }
    }
}

/// The message that a process has started.
pub(super) fn started(pid: u32) -> Value {
    json!({ "event": { "start": { "pid": pid } } })
}

/// The message of a silent process.
pub(super) fn keepalive() -> Value {
    json!({ "event": { "keepalive": {} } })
}

/// The message with output.
pub(super) fn output(stream: &str, data: &Bytes) -> Value {
    json!({ "event": { "data": { stream: STANDARD.encode(&data.0) } } })
}

/// The message that a process has ended; an error where clients expect one.
pub(super) fn ended(end: &OutputEnd) -> Result<Value, RpcError> {
    match end.ending {
        Ending::TimedOut => {
            return Err(RpcError::new(RpcCode::DeadlineExceeded, "context deadline exceeded"));
        }
        // The clients then ask whether the sandbox is still there.
        Ending::SandboxEnded | Ending::Unknown => {
            let message = "the connection to the sandbox ended before the process";
            return Err(RpcError::new(RpcCode::Unavailable, message));
        }
        Ending::NotRun => {
            let reason = end.reason.clone().unwrap_or_else(|| "it did not start".to_owned());
            return Err(RpcError::new(
                RpcCode::InvalidArgument,
                format!("error starting process: {reason}"),
            ));
        }
        _ => {}
    }
    let code = end.exit_code.unwrap_or(-1);
    let signal = match (end.ending, end.signal) {
        (Ending::Killed | Ending::OutOfMemory | Ending::OutputExceeded, None) => Some(SIGKILL),
        (_, signal) => signal,
    };
    let status = match signal {
        Some(signal) => format!("signal: {}", signal_name(signal)),
        None => format!("exit status {code}"),
    };
    let mut event = json!({ "exitCode": code, "exited": signal.is_none(), "status": status });
    if code != 0 {
        let reason = end.reason.as_ref().map(|reason| format!("{status}: {reason}"));
        event["error"] = reason.unwrap_or(status).into();
    }
    Ok(json!({ "event": { "end": event } }))
}

fn signal_name(signal: i32) -> String {
    match signal {
        1 => "hangup",
        2 => "interrupt",
        3 => "quit",
        6 => "aborted",
        9 => "killed",
        11 => "segmentation fault",
        13 => "broken pipe",
        14 => "alarm clock",
        15 => "terminated",
        other => return format!("signal {other}"),
    }
    .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn end(ending: Ending, exit_code: Option<i32>, signal: Option<i32>) -> OutputEnd {
        OutputEnd {
            ending,
            exit_code,
            signal,
            reason: None,
            duration_ms: 0,
            stdout_bytes: 0,
            stderr_bytes: 0,
            refused_calls: Vec::new(),
        }
    }

    #[test]
    fn the_end_of_a_process_has_its_code() {
        let event = |end: &OutputEnd| ended(end).unwrap()["event"]["end"].clone();
        let success = event(&end(Ending::Exited, Some(0), None));
        assert_eq!(success, json!({ "exitCode": 0, "exited": true, "status": "exit status 0" }));
        let failure = event(&end(Ending::Exited, Some(3), None));
        assert_eq!((&failure["exitCode"], &failure["error"]), (&json!(3), &json!("exit status 3")));
        let killed = event(&end(Ending::Killed, Some(137), None));
        assert_eq!(
            (&killed["exited"], &killed["error"]),
            (&json!(false), &json!("signal: killed"))
        );
        let code = |ending| ended(&end(ending, None, None)).unwrap_err().code;
        assert_eq!(code(Ending::TimedOut), RpcCode::DeadlineExceeded);
        assert_eq!(code(Ending::SandboxEnded), RpcCode::Unavailable);
    }

    #[test]
    fn the_size_of_a_terminal_may_be_unknown() {
        let size = |rows, cols| Size { rows, cols }.terminal().map(|it| (it.rows, it.columns));
        assert_eq!(size(0, 0).unwrap(), (0, 0));
        assert_eq!(size(24, 80).unwrap(), (24, 80));
        assert!(size(24, 65536).is_err());
    }

    #[test]
    fn a_signal_has_a_name_or_a_number() {
        let number = |value: Value| serde_json::from_value::<SignalName>(value).unwrap().number();
        assert_eq!(number(json!("SIGNAL_SIGKILL")), Some(9));
        assert_eq!(number(json!(15)), Some(15));
        assert_eq!(number(json!("SIGNAL_UNSPECIFIED")), None);
        assert_eq!(number(json!(1)), None);
    }
}
