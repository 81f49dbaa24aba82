//! `execute_stream` and `read_output`: a command whose output is recorded as it is written, or stays in
//! its sandbox.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use stockade_api::{
    Caller, Execute, Items, OperationId, OperationInfo, OutputChunk, OutputEnd, OutputItem,
    ReadOutput,
};
use stockade_core::{Code, ExecId, Problem};
use stockade_durable::{Context, Failure, Step, StreamWriter, WorkflowId};
use stockade_runtime::{Event, Offsets, Stream};
use tokio::sync::mpsc;

use super::execute::{self, CommandEvent, ExecuteInput, Running, command};
use crate::failure::{invalid, runtime_problem, store_problem, to_failure};
use crate::handoff::Once;
use crate::inner::Inner;
use crate::operation::{self, Input};
use crate::service::Service;
use crate::text::Text;

/// The results here: problems for callers, failures for the engine.
type Result<T, E = Problem> = std::result::Result<T, E>;

/// The workflow's name.
pub(crate) const NAME: &str = "sandbox.execute_stream";

/// The stream's name.
const KEY: &str = "output";

/// How much output is recorded; later output is only counted.
const LIMIT_BYTES: u64 = 16 << 20;

/// How many items a reader may be behind before the sender waits for it.
const CHANNEL_CAPACITY: usize = 64;

/// How many items are read from the store at a time.
const PAGE: u32 = 256;

/// Starts a command.
pub(crate) async fn start(
    service: &Service,
    caller: &Caller,
    request: Execute,
) -> Result<OperationInfo> {
    let used = service.use_sandbox(caller, &request.sandbox_id).await?;
    command(&used, &request)?;
    let handle = execute::start_workflow(service, NAME, caller, request, used).await?;
    let id = OperationId(handle.workflow_id().as_str().to_owned());
    operation::info(&service.engine, caller, &id).await
}

/// The workflow.
pub(crate) async fn perform(
    inner: Arc<Inner>,
    context: Context,
    input: Input<ExecuteInput>,
) -> Result<OutputEnd, Failure> {
    let ended = follow(&inner, &context, input).await;
    // In every case readers of the stream reach its end.
    context.close_stream(KEY).await?;
    ended
}

async fn follow(
    inner: &Arc<Inner>,
    context: &Context,
    input: Input<ExecuteInput>,
) -> Result<OutputEnd, Failure> {
    let request = &input.request.execute;
    let mut handoff = inner.handoffs.take(context.id());
    let used = handoff.as_mut().and_then(|handed| handed.used.take());
    let handoff = Once::new(handoff);
    let owned = inner.use_in_workflow(context, &input.owner, &request.sandbox_id, used).await?;
    let (id, end): (ExecId, OutputEnd) = context
        .step_with("execute", super::record_with_next(), async |step: Step| {
            let recorded = read_recorded(context).await?;
            let exec = input.request.exec_id(&step)?;
            if let Some(end) = recorded.end {
                return Ok((exec, end));
            }
            let command = input.request.command(inner, &owned, &handoff, &step).await?;
            let exec = (exec, recorded.offsets);
            let mut running = Running::start(inner, context, &owned, command, exec, &step).await?;
            // Clients that join the command have its input.
            drop(running.input());
            let limit = if request.unrecorded { 0 } else { LIMIT_BYTES };
            let mut writer = Writer::new(context.stream_writer(KEY), recorded, limit);
            let end = loop {
                match running.next().await? {
                    CommandEvent::Bytes(stream, bytes) => writer.bytes(stream, bytes).await?,
                    CommandEvent::Lost(stream, length) => writer.lost(stream, length).await?,
                    CommandEvent::End(end) => break end,
                }
            };
            writer.end(&end).await?;
            Ok((running.exec_id().clone(), end))
        })
        .await?;
    execute::finish(inner, context, &owned, &id, &end);
    Ok(end)
}

/// One row of the stream: the public chunk, and for a process that resumes it, the offsets of the
/// command's own streams that had been received when it was written.
#[derive(Debug, Serialize, Deserialize)]
struct StoredOutput {
    #[serde(flatten)]
    chunk: OutputChunk,
    heard: Offsets,
}

/// What was recorded before this execution.
#[derive(Debug, Default)]
struct Recorded {
    offsets: Offsets,
    /// How many bytes of output are stored.
    stored_bytes: u64,
    end: Option<OutputEnd>,
}

async fn read_recorded(context: &Context) -> Result<Recorded, Failure> {
    let mut recorded = Recorded::default();
    if context.run_number() == 1 {
        return Ok(recorded);
    }
    let (store, mut from) = (context.engine().store(), 0);
    loop {
        let page = store.stream(context.id(), KEY, from, PAGE).await;
        let rows = page.map_err(|error| to_failure(store_problem(error)))?.rows;
        let Some((last, _)) = rows.last() else { break };
        from = last + 1;
        for value in rows.into_iter().filter_map(|(_, value)| value) {
            let StoredOutput { chunk, heard } = serde_json::from_value(value)?;
            recorded.offsets = heard;
            match chunk {
                OutputChunk::Stdout { data } | OutputChunk::Stderr { data } => {
                    recorded.stored_bytes += data.0.len() as u64;
                }
                OutputChunk::Truncated { .. } => {}
                OutputChunk::Exit(end) => recorded.end = Some(end),
            }
        }
    }
    Ok(recorded)
}

/// Writes a command's output to the stream.
struct Writer {
    stream: StreamWriter,
    /// How many bytes of output are stored at most.
    limit_bytes: u64,
    /// The offsets of the command's streams that the rows cover.
    offsets: Offsets,
    stored_bytes: u64,
    /// Incomplete characters that wait for their remaining bytes.
    partial_texts: [Text; 2],
    /// The output beyond the limit.
    excess: Offsets,
}

impl Writer {
    fn new(stream: StreamWriter, recorded: Recorded, limit_bytes: u64) -> Self {
        let Recorded { offsets: known, stored_bytes: kept, .. } = recorded;
        let texts = [Text::default(), Text::default()];
        Self {
            stream,
            limit_bytes,
            offsets: known,
            stored_bytes: kept,
            partial_texts: texts,
            excess: Offsets::default(),
        }
    }

    async fn bytes(&mut self, stream: Stream, bytes: Vec<u8>) -> Result<(), Failure> {
        let length = bytes.len() as u64;
        if self.stored_bytes >= self.limit_bytes {
            *offset_mut(&mut self.excess, stream) += length;
            return Ok(());
        }
        self.stored_bytes += length;
        let data = self.partial_texts[stream as usize].push(bytes);
        self.data(stream, data).await
    }

    async fn data(&mut self, stream: Stream, data: Vec<u8>) -> Result<(), Failure> {
        if data.is_empty() {
            return Ok(());
        }
        *offset_mut(&mut self.offsets, stream) += data.len() as u64;
        let data = data.into();
        self.row(match stream {
            Stream::Output => OutputChunk::Stdout { data },
            Stream::Error => OutputChunk::Stderr { data },
        })
        .await
    }

    async fn lost(&mut self, stream: Stream, length: u64) -> Result<(), Failure> {
        if self.stored_bytes >= self.limit_bytes {
            *offset_mut(&mut self.excess, stream) += length;
            return Ok(());
        }
        let rest = std::mem::take(&mut self.partial_texts[stream as usize]).finish();
        self.data(stream, rest).await?;
        *offset_mut(&mut self.offsets, stream) += length;
        self.row(OutputChunk::Truncated { bytes: length }).await
    }

    async fn end(&mut self, end: &OutputEnd) -> Result<(), Failure> {
        for stream in [Stream::Output, Stream::Error] {
            let rest = std::mem::take(&mut self.partial_texts[stream as usize]).finish();
            self.data(stream, rest).await?;
        }
        let bytes = self.excess.output + self.excess.error;
        if bytes > 0 {
            self.offsets.output += self.excess.output;
            self.offsets.error += self.excess.error;
            self.row(OutputChunk::Truncated { bytes }).await?;
        }
        self.row(OutputChunk::Exit(end.clone())).await?;
        self.stream.flush().await
    }

    async fn row(&mut self, chunk: OutputChunk) -> Result<(), Failure> {
        self.stream.write(&StoredOutput { chunk, heard: self.offsets }).await
    }
}

const fn offset_mut(offsets: &mut Offsets, stream: Stream) -> &mut u64 {
    match stream {
        Stream::Output => &mut offsets.output,
        Stream::Error => &mut offsets.error,
    }
}

/// The recorded output, and future output.
pub(crate) async fn read(
    service: &Service,
    caller: &Caller,
    request: ReadOutput,
) -> Result<Items<OutputItem>> {
    operation::info(&service.engine, caller, &request.workflow_id).await?;
    let id = WorkflowId::new(request.workflow_id.0.clone());
    let id = id.map_err(|error| store_problem(error.into()))?;
    let (sender, receiver) = mpsc::channel(CHANNEL_CAPACITY);
    let (service, caller) = (service.clone(), caller.clone());
    tokio::spawn(async move {
        let sent = if request.from_sandbox {
            send_from_sandbox(&service, &caller, &id, &request, &sender).await
        } else if request.follow {
            follow_rows(&service, &caller, &id, &request, &sender).await
        } else {
            send_rows(&service, &id, request.from, &sender).await
        };
        if let Err(problem) = sent {
            // The reader may have stopped.
            let _ = sender.send(Err(problem)).await;
        }
    });
    Ok(Items::new(receiver))
}

type Sender = mpsc::Sender<Result<OutputItem>>;

/// The recorded and future output, up to the command's end or the failure of the operation.
async fn follow_rows(
    service: &Service,
    caller: &Caller,
    id: &WorkflowId,
    request: &ReadOutput,
    sender: &Sender,
) -> Result<()> {
    let mut reader = service.engine.read_stream(id, KEY, request.from);
    let mut stopped = service.inner.stopped();
    let mut ended = false;
    loop {
        let next = tokio::select! {
            next = reader.next() => next.map_err(store_problem)?,
            () = sender.closed() => return Ok(()),
            _ = stopped.wait_for(|stopped| *stopped) => {
                return Err(Problem::new(Code::Unreachable, "the server is shutting down")
                    .because("the output continues; continue reading after the last item"));
            }
        };
        let Some((sequence, value)) = next else { break };
        let item = to_item(sequence, value)?;
        ended = matches!(item.chunk, OutputChunk::Exit(_));
        if sender.send(Ok(item)).await.is_err() {
            return Ok(());
        }
    }
    if !ended {
        // The stream is closed before the operation's end is recorded.
        let handle = service.engine.handle(id);
        let _ = handle.get_result::<serde_json::Value>().await;
        let info = operation::info(&service.engine, caller, &request.workflow_id).await?;
        if let Some(problem) = info.error {
            return Err(problem);
        }
    }
    Ok(())
}

/// Sends the output of a command that is not recorded, from its sandbox, and the command's end.
async fn send_from_sandbox(
    service: &Service,
    caller: &Caller,
    id: &WorkflowId,
    request: &ReadOutput,
    sender: &Sender,
) -> Result<()> {
    let info = service.engine.info(id).await.map_err(store_problem)?;
    let input = info.filter(|info| info.name == NAME).map(|info| info.input);
    let input = input.and_then(|input| serde_json::from_value::<Input<ExecuteInput>>(input).ok());
    let execute = input.map(|input| input.request.execute).filter(|execute| execute.unrecorded);
    let Some(execute) = execute else {
        return Err(invalid("the output of the operation is recorded")
            .remedied_by("read it without `fromSandbox`"));
    };
    if request.from != 0 {
        return Err(invalid("output that is not recorded is read from its beginning"));
    }
    // In any state: the output remains as long as the sandbox's files.
    let used = service.inner.start_use(&caller.owner, &execute.sandbox_id).await?;
    let exec = execute::unrecorded_exec_id_for(id)?;
    let runtime = service.inner.runtime(&used.runtime)?;
    let attached = runtime.attach(&used.id, &exec, Offsets::default()).await;
    let mut events = attached.map_err(|error| runtime_problem(&error))?.events;
    let mut stopped = service.inner.stopped();
    let mut sequence = 0;
    loop {
        let event = tokio::select! {
            event = events.next() => event,
            () = sender.closed() => return Ok(()),
            _ = stopped.wait_for(|stopped| *stopped) => {
                return Err(Problem::new(Code::Unreachable, "the server is shutting down"));
            }
        };
        let chunk = match event {
            Some(Event::Output { stream: Stream::Output, bytes, .. }) => {
                OutputChunk::Stdout { data: bytes.into() }
            }
            Some(Event::Output { stream: Stream::Error, bytes, .. }) => {
                OutputChunk::Stderr { data: bytes.into() }
            }
            Some(Event::Lost { length, .. }) => OutputChunk::Truncated { bytes: length },
            // The end has them.
            Some(Event::RefusedCalls(_)) => continue,
            None | Some(Event::Ended(_)) => break,
        };
        if sender.send(Ok(OutputItem { sequence, chunk })).await.is_err() {
            return Ok(());
        }
        sequence += 1;
    }
    let end = service.engine.handle(id).get_result().await.map_err(store_problem)?;
    // The reader may have stopped.
    let _ = sender.send(Ok(OutputItem { sequence, chunk: OutputChunk::Exit(end) })).await;
    Ok(())
}

/// Sends the recorded output.
async fn send_rows(service: &Service, id: &WorkflowId, from: u64, sender: &Sender) -> Result<()> {
    let mut from = from;
    loop {
        let page =
            service.engine.store().stream(id, KEY, from, PAGE).await.map_err(store_problem)?;
        let Some((last, _)) = page.rows.last() else { return Ok(()) };
        from = last + 1;
        for (sequence, value) in page.rows {
            let Some(value) = value else { continue };
            if sender.send(to_item(sequence, value)).await.is_err() {
                return Ok(());
            }
        }
    }
}

fn to_item(sequence: u64, value: serde_json::Value) -> Result<OutputItem> {
    match serde_json::from_value(value) {
        Ok(chunk) => Ok(OutputItem { sequence, chunk }),
        Err(error) => Err(Problem::new(Code::DatabaseInvalid, "recorded output cannot be read")
            .because(error.to_string())),
    }
}
