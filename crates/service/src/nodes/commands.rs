//! Nodes that run commands, and the splitter of their output.

use serde_json::{Map, Value, json};
use stockade_api::{
    Bytes, CommandLine, Ending, Execute, OperationId, OutputChunk, ReadOutput, Result,
};
use stockade_core::access::Level;

use super::ports::{Call, members};
use crate::streams::{
    Channel, Chunk, Cursor, Decoder, Encoding, Error, Item, Piece, Size, channel,
    split as split_stream,
};

/// How many bytes of each stream are kept.
const KEPT_BYTES: u64 = 16 << 20;

fn command(call: &Call<'_>) -> Result<Execute> {
    let ports = call.ports;
    let command: CommandLine = ports.required("command")?;
    let directory: Option<Bytes> = ports.optional("workingDirectory")?;
    if let Some(directory) = &directory {
        ports.check_path(Level::Execute, &directory.0)?;
    }
    if let CommandLine::Program(words) = &command
        && let Some(program) = words.first().filter(|word| word.starts_with('/'))
    {
        ports.check_path(Level::Execute, program.as_bytes())?;
    }
    Ok(Execute {
        environment: ports.or_default("env")?,
        working_directory: directory,
        uid: ports.optional("uid")?,
        gid: ports.optional("gid")?,
        user: ports.optional("user")?,
        stdin: ports.optional("stdin")?,
        timeout_seconds: ports.optional("timeoutSeconds")?,
        ..Execute::new(ports.sandbox()?, command)
    })
}

/// Runs a command to its end.
pub(super) async fn execute(call: &Call<'_>) -> Result<Map<String, Value>> {
    let request = command(call)?;
    let result = call.sandboxes.execute(&call.caller_of("execute"), request).await?;
    Ok(members(json!({
        "stdout": result.stdout,
        "stderr": result.stderr,
        "exitCode": result.end.exit_code,
        "timedOut": result.end.ending == Ending::TimedOut,
        "durationMs": result.end.duration_ms,
        "workflowId": result.workflow_id,
    })))
}

/// Starts a command, whose output is a stream.
pub(super) async fn execute_stream(call: &Call<'_>) -> Result<Map<String, Value>> {
    let request = command(call)?;
    let started = call.sandboxes.execute_stream(&call.caller_of("stream"), request).await?;
    Ok(members(json!({ "workflowId": started.workflow_id, "status": started.status })))
}

/// Splits the stream of a command. All three parts end in every case.
pub(super) async fn split(call: &Call<'_>) -> Result<Map<String, Value>> {
    let workflow_id: OperationId = call.ports.required("workflowId")?;
    let request = ReadOutput { workflow_id, from: 0, follow: true, from_sandbox: false };
    let mut items = call.sandboxes.read_output(call.caller, request).await?;
    let (writer, source) = channel(KEPT_BYTES);
    let parts = split_stream(&source, KEPT_BYTES);
    while let Some(item) = items.next().await {
        match item?.chunk {
            OutputChunk::Stdout { data } => {
                writer.send(Chunk::Stdout(data.0));
            }
            OutputChunk::Stderr { data } => {
                writer.send(Chunk::Stderr(data.0));
            }
            OutputChunk::Truncated { .. } => {}
            OutputChunk::Exit(end) => {
                if let Some(code) = end.exit_code {
                    writer.send(Chunk::Exit(code));
                }
            }
        }
    }
    writer.close();
    let (stdout, _) = all(&parts.stdout).await;
    let (stderr, _) = all(&parts.stderr).await;
    let (exit, error) = all(&parts.exit).await;
    Ok(members(json!({
        "stdout": texts(stdout),
        "stderr": texts(stderr),
        "exitCode": exit.first(),
        "exit": exit,
        "error": error.map(|error| error.to_string()),
    })))
}

/// All values of a part, and the error that it ends with.
async fn all<T: Clone>(channel: &Channel<Piece<T>>) -> (Vec<T>, Option<Error>)
where
    Piece<T>: Size,
{
    let mut reader = channel.subscribe(Cursor::default());
    let mut values = Vec::new();
    loop {
        match reader.next().await {
            Some(Ok(Item::Value { value, .. })) => values.push(value.value),
            Some(Ok(Item::Truncated { .. })) => {}
            Some(Err(error)) => return (values, Some(error)),
            None => return (values, None),
        }
    }
}

/// The chunks as text; no character is split.
fn texts(chunks: Vec<Vec<u8>>) -> Vec<String> {
    let mut decoder = Decoder::new(Encoding::Text);
    let mut texts: Vec<_> = chunks.iter().map(|chunk| decoder.push(chunk)).collect();
    texts.push(decoder.finish());
    texts.retain(|text| !text.is_empty());
    texts
}
