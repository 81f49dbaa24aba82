//! `execute_stream` and `read_output`: a command whose output is recorded as it is written.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use stockade_api::{
    Caller, Execute, Items, OperationId, OperationInfo, OutputChunk, OutputEnd, OutputItem,
    ReadOutput,
};
use stockade_core::{Code, ExecId, Problem};
use stockade_durable::{Context, Failure, Step, StreamWriter, WorkflowId};
use stockade_runtime::{Offsets, Stream};
use tokio::sync::mpsc;

use super::execute::{self, Asked, Heard, Running, command};
use crate::failure::{of_store, to_failure};
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
const AHEAD: usize = 64;

/// How many items are read from the store at a time.
const PAGE: u32 = 256;

/// Starts a command.
pub(crate) async fn start(
    service: &Service,
    caller: &Caller,
    request: Execute,
) -> Result<OperationInfo> {
    let used = service.used(caller, &request.sandbox_id).await?;
    command(&used, &request)?;
    let handle = execute::begin(service, NAME, caller, request, used).await?;
    let id = OperationId(handle.workflow_id().as_str().to_owned());
    operation::info(&service.engine, caller, &id).await
}

/// The workflow.
pub(crate) async fn perform(
    inner: Arc<Inner>,
    context: Context,
    input: Input<Asked>,
) -> Result<OutputEnd, Failure> {
    let ended = follow(&inner, &context, input).await;
    // In every case readers of the stream reach its end.
    context.close_stream(KEY).await?;
    ended
}

async fn follow(
    inner: &Arc<Inner>,
    context: &Context,
    input: Input<Asked>,
) -> Result<OutputEnd, Failure> {
    let request = &input.request.execute;
    let mut handed = inner.handoffs.take(context.id());
    let used = handed.as_mut().and_then(|handed| handed.used.take());
    let handed = Once::new(handed);
    let owned = inner.using(context, &input.owner, &request.sandbox_id, used).await?;
    let (id, end): (ExecId, OutputEnd) = context
        .step_with("execute", super::with_next(), async |step: Step| {
            let recorded = recorded(context).await?;
            if let Some(end) = recorded.end {
                return Ok((execute::exec_of(context.id()).map_err(to_failure)?, end));
            }
            let command = input.request.command(inner, &owned, &handed, &step).await?;
            let known = recorded.known;
            let mut running = Running::start(inner, context, &owned, command, known, &step).await?;
            let mut writer = Writer::new(context.stream_writer(KEY), recorded);
            let end = loop {
                match running.next().await? {
                    Heard::Bytes(stream, bytes) => writer.bytes(stream, bytes).await?,
                    Heard::Lost(stream, length) => writer.lost(stream, length).await?,
                    Heard::End(end) => break end,
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
struct Kept {
    #[serde(flatten)]
    chunk: OutputChunk,
    heard: Offsets,
}

/// What was recorded before this execution.
#[derive(Debug, Default)]
struct Recorded {
    known: Offsets,
    /// How many bytes of output are stored.
    kept: u64,
    end: Option<OutputEnd>,
}

async fn recorded(context: &Context) -> Result<Recorded, Failure> {
    let mut recorded = Recorded::default();
    if context.run_number() == 1 {
        return Ok(recorded);
    }
    let (store, mut from) = (context.engine().store(), 0);
    loop {
        let page = store.stream(context.id(), KEY, from, PAGE).await;
        let rows = page.map_err(|error| to_failure(of_store(error)))?.rows;
        let Some((last, _)) = rows.last() else { break };
        from = last + 1;
        for value in rows.into_iter().filter_map(|(_, value)| value) {
            let Kept { chunk, heard } = serde_json::from_value(value)?;
            recorded.known = heard;
            match chunk {
                OutputChunk::Stdout { data } | OutputChunk::Stderr { data } => {
                    recorded.kept += data.0.len() as u64;
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
    /// The offsets of the command's streams that the rows cover.
    heard: Offsets,
    kept: u64,
    /// Incomplete characters that wait for their remaining bytes.
    texts: [Text; 2],
    /// The output beyond the limit.
    excess: Offsets,
}

impl Writer {
    fn new(stream: StreamWriter, recorded: Recorded) -> Self {
        let Recorded { known, kept, .. } = recorded;
        let texts = [Text::default(), Text::default()];
        Self { stream, heard: known, kept, texts, excess: Offsets::default() }
    }

    async fn bytes(&mut self, stream: Stream, bytes: Vec<u8>) -> Result<(), Failure> {
        let length = bytes.len() as u64;
        if self.kept >= LIMIT_BYTES {
            *of(&mut self.excess, stream) += length;
            return Ok(());
        }
        self.kept += length;
        let data = self.texts[stream as usize].push(bytes);
        self.data(stream, data).await
    }

    async fn data(&mut self, stream: Stream, data: Vec<u8>) -> Result<(), Failure> {
        if data.is_empty() {
            return Ok(());
        }
        *of(&mut self.heard, stream) += data.len() as u64;
        let data = data.into();
        self.row(match stream {
            Stream::Output => OutputChunk::Stdout { data },
            Stream::Error => OutputChunk::Stderr { data },
        })
        .await
    }

    async fn lost(&mut self, stream: Stream, length: u64) -> Result<(), Failure> {
        let rest = std::mem::take(&mut self.texts[stream as usize]).rest();
        self.data(stream, rest).await?;
        *of(&mut self.heard, stream) += length;
        self.row(OutputChunk::Truncated { bytes: length }).await
    }

    async fn end(&mut self, end: &OutputEnd) -> Result<(), Failure> {
        for stream in [Stream::Output, Stream::Error] {
            let rest = std::mem::take(&mut self.texts[stream as usize]).rest();
            self.data(stream, rest).await?;
        }
        let bytes = self.excess.output + self.excess.error;
        if bytes > 0 {
            self.heard.output += self.excess.output;
            self.heard.error += self.excess.error;
            self.row(OutputChunk::Truncated { bytes }).await?;
        }
        self.row(OutputChunk::Exit(end.clone())).await?;
        self.stream.flush().await
    }

    async fn row(&mut self, chunk: OutputChunk) -> Result<(), Failure> {
        self.stream.write(&Kept { chunk, heard: self.heard }).await
    }
}

const fn of(offsets: &mut Offsets, stream: Stream) -> &mut u64 {
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
    let id = id.map_err(|error| of_store(error.into()))?;
    let (sender, receiver) = mpsc::channel(AHEAD);
    let (service, caller) = (service.clone(), caller.clone());
    tokio::spawn(async move {
        let told = if request.follow {
            follow_rows(&service, &caller, &id, &request, &sender).await
        } else {
            tell_rows(&service, &id, request.from, &sender).await
        };
        if let Err(problem) = told {
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
            next = reader.next() => next.map_err(of_store)?,
            () = sender.closed() => return Ok(()),
            _ = stopped.wait_for(|stopped| *stopped) => {
                return Err(Problem::new(Code::Unreachable, "the server is shutting down")
                    .because("the output continues; continue reading after the last item"));
            }
        };
        let Some((sequence, value)) = next else { break };
        let item = told(sequence, value)?;
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

/// Sends the recorded output.
async fn tell_rows(service: &Service, id: &WorkflowId, from: u64, sender: &Sender) -> Result<()> {
    let mut from = from;
    loop {
        let page = service.engine.store().stream(id, KEY, from, PAGE).await.map_err(of_store)?;
        let Some((last, _)) = page.rows.last() else { return Ok(()) };
        from = last + 1;
        for (sequence, value) in page.rows {
            let Some(value) = value else { continue };
            if sender.send(told(sequence, value)).await.is_err() {
                return Ok(());
            }
        }
    }
}

fn told(sequence: u64, value: serde_json::Value) -> Result<OutputItem> {
    match serde_json::from_value(value) {
        Ok(chunk) => Ok(OutputItem { sequence, chunk }),
        Err(error) => Err(Problem::new(Code::DatabaseInvalid, "recorded output cannot be read")
            .because(error.to_string())),
    }
}
