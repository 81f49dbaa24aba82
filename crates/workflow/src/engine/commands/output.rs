//! The output of a command in a sandbox. No record of the service contains it, because it may contain
//! the values of the command's variables: it is read from the sandbox.

use serde_json::{Value, json};
use stockade_api::{Caller, OperationId, OutputChunk, OutputEnd, ReadOutput, Sandboxes};
use stockade_core::{Code, Problem};

use crate::schedule::Key;

/// How much of each stream of a command is stored for the logs of its run, in bytes.
const MAX_LOGGED_BYTES: usize = 64 << 10;

/// The event with what a command wrote to a stream; `None` if it wrote nothing. Of a long output only the
/// end is stored, and the event says so.
pub(crate) fn output_event(
    (key, attempt): (&Key, u32),
    stream: &str,
    bytes: &[u8],
) -> Option<Value> {
    if bytes.is_empty() {
        return None;
    }
    let from = bytes.len().saturating_sub(MAX_LOGGED_BYTES);
    let text = String::from_utf8_lossy(&bytes[from..]);
    let mut event = json!({
        "type": "TaskOutput", "nodeId": key.node, "iteration": key.iteration, "attempt": attempt,
        "stream": stream, "text": text,
    });
    if from > 0 {
        event["omittedBytes"] = from.into();
    }
    Some(event)
}

/// The output of a command that has ended.
#[derive(Debug, Clone)]
pub(crate) struct CommandOutput {
    /// How it ended.
    pub(crate) end: OutputEnd,
    /// The end of its standard output.
    pub(crate) stdout: Vec<u8>,
    /// The end of its standard error.
    pub(crate) stderr: Vec<u8>,
}

/// Reads the output of an operation that has succeeded, and retains at most this much of its standard
/// output and of its standard error.
///
/// # Errors
/// Those of the service, and [`Code::OutcomeUnknown`] if the sandbox has ended with the standard output
/// of a command that succeeded. That of a failed command is not needed.
pub(crate) async fn read_output(
    sandboxes: &dyn Sandboxes,
    caller: &Caller,
    operation: &OperationId,
    most_bytes: [usize; 2],
) -> Result<CommandOutput, Problem> {
    let request = |from_sandbox: bool| ReadOutput {
        workflow_id: operation.clone(),
        from: 0,
        follow: !from_sandbox,
        from_sandbox,
    };
    match read(sandboxes, caller, request(true), most_bytes).await {
        Ok(output) => Ok(output),
        Err(problem) => {
            let recorded = read(sandboxes, caller, request(false), most_bytes).await;
            recorded.ok().filter(|output| output.end.exit_code != Some(0)).ok_or(problem)
        }
    }
}

async fn read(
    sandboxes: &dyn Sandboxes,
    caller: &Caller,
    request: ReadOutput,
    [most_output, most_errors]: [usize; 2],
) -> Result<CommandOutput, Problem> {
    let mut items = sandboxes.read_output(caller, request).await?;
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    while let Some(item) = items.next().await {
        match item?.chunk {
            OutputChunk::Stdout { data } => append_bounded(&mut stdout, &data.0, most_output),
            OutputChunk::Stderr { data } => append_bounded(&mut stderr, &data.0, most_errors),
            OutputChunk::Truncated { .. } => {}
            OutputChunk::Exit(end) => return Ok(CommandOutput { end, stdout, stderr }),
        }
    }
    let message = "the command's output ended early";
    Err(Problem { retryable: true, ..Problem::new(Code::OutcomeUnknown, message) })
}

/// Appends to the retained bytes, and drops the first bytes beyond the limit.
fn append_bounded(buffer: &mut Vec<u8>, more: &[u8], most: usize) {
    buffer.extend_from_slice(more);
    if buffer.len() > most.saturating_mul(2) {
        buffer.drain(..buffer.len() - most);
    }
}
