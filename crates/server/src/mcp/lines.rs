//! The lines of the protocol, before they are parsed as such. A line that is not a message gets its
//! response here, and is not passed on: the protocol library would ignore it, and the client would
//! wait forever.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{
    AsyncBufRead, AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, AsyncWrite,
    AsyncWriteExt as _, BufReader, DuplexStream, duplex,
};
use tokio::sync::Mutex;
use tokio::task::JoinHandle;

/// The longest line, in bytes.
const LINE_BYTES: usize = 32 << 20;
/// The buffer size between two ends, in bytes.
const BUFFER_BYTES: usize = 64 << 10;
/// How long writing the last responses may take.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(5);

// JSON-RPC 2.0, section 5.1.
const PARSE_ERROR: i32 = -32700;
const INVALID_REQUEST: i32 = -32600;
const INVALID_PARAMS: i32 = -32602;

/// The tasks that carry lines between a client and the protocol library.
#[derive(Debug)]
pub(super) struct LineRelay {
    reader: JoinHandle<()>,
    writer: JoinHandle<()>,
}

impl LineRelay {
    /// Waits until all responses are written, and stops reading.
    pub(super) async fn end(self) {
        // A client that does not read misses its responses.
        let _ = tokio::time::timeout(FLUSH_TIMEOUT, self.writer).await;
        self.reader.abort();
    }
}

/// Streams that contain only messages, for the streams of a client.
pub(super) fn relay<I, O>(input: I, output: O) -> (DuplexStream, DuplexStream, LineRelay)
where
    I: AsyncRead + Send + Unpin + 'static,
    O: AsyncWrite + Send + Unpin + 'static,
{
    let (to_server, messages) = duplex(BUFFER_BYTES);
    let (answers, from_server) = duplex(BUFFER_BYTES);
    let output = Arc::new(Mutex::new(output));
    let reader = tokio::spawn(read_lines(input, to_server, Arc::clone(&output)));
    let writer = tokio::spawn(write_lines(from_server, output));
    (messages, answers, LineRelay { reader, writer })
}

/// Forwards messages, and responds to lines that are not messages.
async fn read_lines<O>(input: impl AsyncRead + Unpin, mut to: DuplexStream, output: Arc<Mutex<O>>)
where
    O: AsyncWrite + Unpin,
{
    let mut input = BufReader::new(input);
    let mut line = Vec::new();
    while let Ok(1..) = (&mut input).take(LINE_BYTES as u64).read_until(b'\n', &mut line).await {
        let is_whole = line.last() == Some(&b'\n');
        let fault = if !is_whole && line.len() == LINE_BYTES {
            skip_line(&mut input).await;
            Some(too_long())
        } else {
            fault(&line)
        };
        if !is_whole {
            line.push(b'\n');
        }
        let written = match fault {
            None => to.write_all(&line).await,
            Some(fault) => write(&output, format!("{fault}\n").as_bytes()).await,
        };
        if written.is_err() {
            return;
        }
        line.clear();
    }
}

/// Reads to the end of the line, and drops it.
async fn skip_line(input: &mut (impl AsyncBufRead + Unpin)) {
    while let Ok(bytes) = input.fill_buf().await {
        let (length, is_end) = match bytes.iter().position(|byte| *byte == b'\n') {
            Some(at) => (at + 1, true),
            None => (bytes.len(), bytes.is_empty()),
        };
        input.consume(length);
        if is_end {
            return;
        }
    }
}

/// The response to a line that is too long to be read. Its id is unknown.
fn too_long() -> Value {
    let message = format!("the message is longer than {LINE_BYTES} bytes");
    let error = json!({ "code": INVALID_REQUEST, "message": message });
    json!({ "jsonrpc": "2.0", "id": null, "error": error })
}

/// Writes responses, one line after the other.
async fn write_lines<O: AsyncWrite + Unpin>(from: DuplexStream, output: Arc<Mutex<O>>) {
    let mut from = BufReader::new(from);
    let mut line = Vec::new();
    while let Ok(1..) = from.read_until(b'\n', &mut line).await {
        if write(&output, &line).await.is_err() {
            return;
        }
        line.clear();
    }
}

async fn write<O: AsyncWrite + Unpin>(output: &Mutex<O>, line: &[u8]) -> std::io::Result<()> {
    let mut output = output.lock().await;
    output.write_all(line).await?;
    output.flush().await
}

/// The response to a line that is not a message. An empty line gets none.
fn fault(line: &[u8]) -> Option<Value> {
    if line.trim_ascii().is_empty() {
        return None;
    }
    let (id, code, message) = match serde_json::from_slice::<Value>(line) {
        Err(error) => (Value::Null, PARSE_ERROR, format!("Parse error: {error}")),
        Ok(value) if is_message(&value) => {
            let message = format!("Invalid params: {}", wrong_call(&value)?);
            (value["id"].clone(), INVALID_PARAMS, message)
        }
        Ok(value) => {
            let id = Some(&value["id"]).filter(|id| id.is_string() || id.is_number()).cloned();
            (id.unwrap_or_default(), INVALID_REQUEST, "Invalid Request".to_owned())
        }
    };
    Some(json!({ "jsonrpc": "2.0", "id": id, "error": { "code": code, "message": message } }))
}

/// Why the parameters of a call of a tool are none; `None` for other messages and for a call that may be
/// one. The protocol library would say that it does not know the method.
fn wrong_call(value: &Value) -> Option<&'static str> {
    if value["method"] != "tools/call" || value.get("id").is_none() {
        return None;
    }
    let params = &value["params"];
    let arguments = params.get("arguments").filter(|arguments| !arguments.is_null());
    if !params.is_object() {
        Some("`params` must be an object")
    } else if !params["name"].is_string() {
        Some("`name` must be the name of a tool")
    } else if arguments.is_some_and(|arguments| !arguments.is_object()) {
        Some("`arguments` must be an object")
    } else {
        None
    }
}

/// Whether a value is a JSON-RPC 2.0 request, notification or response.
fn is_message(value: &Value) -> bool {
    let is_answer = value.get("result").is_some() || value.get("error").is_some();
    value["jsonrpc"] == "2.0" && (value["method"].is_string() || is_answer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_is_no_message_is_answered() {
        for (line, id, code) in [
            ("nonsense", Value::Null, PARSE_ERROR),
            ("{\"jsonrpc\":", Value::Null, PARSE_ERROR),
            ("\u{fffd}", Value::Null, PARSE_ERROR),
            ("[]", Value::Null, INVALID_REQUEST),
            ("7", Value::Null, INVALID_REQUEST),
            ("{}", Value::Null, INVALID_REQUEST),
            ("{\"jsonrpc\":\"1.0\",\"id\":3,\"method\":\"ping\"}", json!(3), INVALID_REQUEST),
            ("{\"jsonrpc\":\"2.0\",\"id\":\"a\"}", json!("a"), INVALID_REQUEST),
        ] {
            let fault = fault(line.as_bytes()).unwrap();
            assert_eq!((&fault["id"], &fault["error"]["code"]), (&id, &json!(code)), "{line}");
            assert!(fault.get("id").is_some(), "{fault}");
        }
    }

    #[test]
    fn a_call_with_wrong_parameters_is_answered() {
        for params in [
            "",
            ",\"params\":[]",
            ",\"params\":{}",
            ",\"params\":{\"name\":\"a\",\"arguments\":[]}",
        ] {
            let line =
                format!("{{\"jsonrpc\":\"2.0\",\"id\":4,\"method\":\"tools/call\"{params}}}");
            let fault = fault(line.as_bytes()).unwrap();
            assert_eq!(
                (&fault["id"], &fault["error"]["code"]),
                (&json!(4), &json!(INVALID_PARAMS))
            );
        }
        let good =
            "{\"jsonrpc\":\"2.0\",\"id\":4,\"method\":\"tools/call\",\"params\":{\"name\":\"a\"}}";
        assert_eq!(fault(good.as_bytes()), None);
    }

    #[test]
    fn a_message_is_left_to_the_protocol() {
        for line in [
            "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}",
            "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}",
            "{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}",
            "{\"jsonrpc\":\"2.0\",\"id\":null,\"error\":{\"code\":1,\"message\":\"\"}}",
            "\r",
        ] {
            assert_eq!(fault(line.as_bytes()), None, "{line}");
        }
    }
}
