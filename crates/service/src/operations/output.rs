//! `execute_stream` and `read_output`: a command whose output is recorded as it is written.

use std::sync::Arc;

use stockade_api::{
    Caller, Execute, Items, OperationId, OperationInfo, OutputChunk, OutputEnd, OutputItem,
    ReadOutput, Result,
};
use stockade_core::{Code, ExecId, Operation, Problem};
use stockade_durable::{Context, Failure, Step, WorkflowId};
use stockade_runtime::{Offsets, Stream};
use tokio::sync::mpsc;

use super::execute::{self, Asked, Heard, Running, command};
use super::life;
use crate::failure::{of_store, to_failure};
use crate::operation::{self, Input};
use crate::pending::Once;
use crate::service::{Inner, Service};
use crate::text::Text;

/// The workflow's name.
pub(crate) const NAME: &str = "sandbox.execute_stream";

/// The stream's name.
const KEY: &str = "output";

/// How much output is recorded; what is written after that is counted only.
const LIMIT_BYTES: u64 = 16 << 20;

/// How many items a reader may be behind before its writer waits for it.
const AHEAD: usize = 64;

/// How many items are read from the store at a time.
const PAGE: u32 = 256;

/// Starts a command.
pub(crate) async fn start(
    service: &Service,
    caller: &Caller,
    request: Execute,
) -> Result<OperationInfo> {
    life::wake_up(service, caller, &request.sandbox_id).await?;
    let owned = service.owned(caller, &request.sandbox_id, Operation::Use).await?;
    command(&owned, &request)?;
    let handle = execute::begin(service, NAME, caller, request).await?;
    let id = OperationId(handle.workflow_id().as_str().to_owned());
    operation::info(&service.engine, caller, &id).await
}

/// The workflow.
pub(crate) async fn perform(
    inner: Arc<Inner>,
    context: Context,
    input: Input<Asked>,
) -> std::result::Result<OutputEnd, Failure> {
    let ended = follow(&inner, &context, input).await;
    // Whatever happened, whoever reads the stream comes to its end.
    context.close_stream(KEY).await?;
    ended
}

async fn follow(
    inner: &Arc<Inner>,
    context: &Context,
    input: Input<Asked>,
) -> std::result::Result<OutputEnd, Failure> {
    let request = &input.request.execute;
    let owned = inner.acl(context, &input.owner, &request.sandbox_id, Operation::Use).await?;
    let _in_use = inner.activity.begin(&owned.id);
    let stdin = Once::new(inner.pending.take(context.id()).and_then(|handed| handed.stdin));
    let (id, end): (ExecId, OutputEnd) = context
        .step_with("execute", super::with_next(), async |step: Step| {
            let mut command = command(&owned, request).map_err(to_failure)?;
            command.takes_input = input.request.stdin.is_some();
            let stdin = stdin.take();
            if command.takes_input && stdin.is_none() {
                execute::is_known(inner, &owned, &step).await?;
            }
            let (known, mut kept) = recorded(context).await?;
            let mut running = Running::start(inner, &owned, command, known, &step).await?;
            running.feed(stdin);
            let writer = context.stream_writer(KEY);
            let mut texts = [Text::default(), Text::default()];
            let mut lost = 0;
            let end = loop {
                match running.next().await {
                    Heard::Bytes(stream, bytes) if kept < LIMIT_BYTES => {
                        kept += bytes.len() as u64;
                        let data = texts[stream as usize].push(bytes);
                        if !data.is_empty() {
                            writer.write(&chunk(stream, data)).await?;
                        }
                    }
                    Heard::Bytes(_, bytes) => lost += bytes.len() as u64,
                    Heard::Lost(_, length) => lost += length,
                    Heard::End(end) => break end,
                }
            };
            for (stream, text) in [Stream::Output, Stream::Error].into_iter().zip(texts) {
                let data = text.rest();
                if !data.is_empty() {
                    writer.write(&chunk(stream, data)).await?;
                }
            }
            if lost > 0 {
                writer.write(&OutputChunk::Truncated { bytes: lost }).await?;
            }
            writer.write(&OutputChunk::Exit(end.clone())).await?;
            writer.flush().await?;
            Ok((running.exec_id().clone(), end))
        })
        .await?;
    execute::finish(inner, context, &owned, &id, &end);
    Ok(end)
}

fn chunk(stream: Stream, data: Vec<u8>) -> OutputChunk {
    match stream {
        Stream::Output => OutputChunk::Stdout { data: data.into() },
        Stream::Error => OutputChunk::Stderr { data: data.into() },
    }
}

/// How far the output was recorded before this process began: of each stream, and together.
async fn recorded(context: &Context) -> std::result::Result<(Offsets, u64), Failure> {
    let mut known = Offsets::default();
    let (store, mut from) = (context.engine().store(), 0);
    loop {
        let page = store.stream(context.id(), KEY, from, PAGE).await;
        let rows = page.map_err(|error| to_failure(of_store(error)))?.rows;
        let Some((last, _)) = rows.last() else { break };
        from = last + 1;
        for value in rows.into_iter().filter_map(|(_, value)| value) {
            match serde_json::from_value(value) {
                Ok(OutputChunk::Stdout { data }) => known.output += data.0.len() as u64,
                Ok(OutputChunk::Stderr { data }) => known.error += data.0.len() as u64,
                _ => {}
            }
        }
    }
    Ok((known, known.output + known.error))
}

/// What was recorded, and what is.
pub(crate) async fn read(
    service: &Service,
    caller: &Caller,
    request: ReadOutput,
) -> Result<Items<OutputItem>> {
    operation::info(&service.engine, caller, &request.workflow_id).await?;
    let id = WorkflowId::new(request.workflow_id.0).map_err(of_store)?;
    let (sender, receiver) = mpsc::channel(AHEAD);
    if request.follow {
        let mut reader = service.engine.read_stream(&id, KEY, request.from);
        tokio::spawn(async move {
            loop {
                let next = tokio::select! {
                    next = reader.next() => next,
                    () = sender.closed() => break,
                };
                let Some(item) = next.map_err(of_store).transpose() else { break };
                let last = item.is_err();
                let item = item.and_then(|(sequence, value)| told(sequence, value));
                if sender.send(item).await.is_err() || last {
                    break;
                }
            }
        });
    } else {
        let engine = service.engine.clone();
        tokio::spawn(async move {
            let mut from = request.from;
            loop {
                let page = engine.store().stream(&id, KEY, from, PAGE).await;
                let rows = match page {
                    Ok(page) => page.rows,
                    Err(error) => {
                        let _ = sender.send(Err(of_store(error))).await;
                        return;
                    }
                };
                let Some((last, _)) = rows.last() else { return };
                from = last + 1;
                for (sequence, value) in rows {
                    let Some(value) = value else { continue };
                    if sender.send(told(sequence, value)).await.is_err() {
                        return;
                    }
                }
            }
        });
    }
    Ok(Items::new(receiver))
}

fn told(sequence: u64, value: serde_json::Value) -> Result<OutputItem> {
    match serde_json::from_value(value) {
        Ok(chunk) => Ok(OutputItem { sequence, chunk }),
        Err(error) => Err(Problem::new(Code::DatabaseInvalid, "recorded output cannot be read")
            .because(error.to_string())),
    }
}
