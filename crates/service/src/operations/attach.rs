//! `attach_command`: joins a command that was started before. Its output comes from the runtime
//! while it runs, and from the record afterwards; its input goes to the runtime.

use std::time::Duration;

use stockade_api::{
    AttachCommand, Caller, CommandInfo, Items, OperationStatus, OutputChunk, OutputEnd, ReadOutput,
    Result, Session, SessionEvent, SessionInput,
};
use stockade_core::{Code, ExecId, Problem};
use stockade_durable::WorkflowId;
use stockade_runtime::{Ending, Error, Event, Exec, Offsets, Stream};
use tokio::sync::mpsc;

use super::{AbortOnDrop, commands, execute, output, session};
use crate::attachments::Attachment;
use crate::failure::runtime_problem;
use crate::owned_sandbox::ActiveSandbox;
use crate::service::Service;

/// How many events may wait for a slow caller.
const CHANNEL_CAPACITY: usize = 16;

/// How long the record of a command may come after its end.
const RECORD: Duration = Duration::from_secs(30);

/// Joins a command.
pub(crate) async fn attach(
    service: &Service,
    caller: &Caller,
    request: AttachCommand,
) -> Result<Session> {
    let known = commands::find(service, caller, &request.workflow_id).await?;
    let workflow = commands::workflow(&request.workflow_id)?;
    let offsets = Offsets { output: request.stdout_offset, error: request.stderr_offset };
    let (events, event_receiver) = mpsc::channel(CHANNEL_CAPACITY);
    let (input_sender, mut input) = mpsc::channel(CHANNEL_CAPACITY);
    match join(service, caller, &known, &workflow, offsets).await? {
        Some(joined) => {
            let service = service.clone();
            tokio::spawn(relay(service, workflow, joined, offsets, events, input));
        }
        None if known.detached => {
            let read = ReadOutput {
                workflow_id: request.workflow_id.clone(),
                from: 0,
                follow: true,
                from_sandbox: false,
            };
            let items = output::read(service, caller, read).await?;
            // From the first moment on, the caller sees that nothing takes input.
            input.close();
            tokio::spawn(replay(items, offsets, events));
        }
        None => return Err(no_streams(&known)),
    }
    let workflow_id = request.workflow_id;
    Ok(Session { workflow_id, events: Items::new(event_receiver), input: input_sender })
}

/// A command that the runtime knows.
struct JoinedCommand {
    exec: Exec,
    id: ExecId,
    sandbox: ActiveSandbox,
    attachment: Attachment,
}

/// The streams of a command; `None` if the runtime does not have it now.
async fn join(
    service: &Service,
    caller: &Caller,
    known: &CommandInfo,
    workflow: &WorkflowId,
    offsets: Offsets,
) -> Result<Option<JoinedCommand>> {
    if known.status != OperationStatus::Running {
        return Ok(None);
    }
    let sandbox = match service.inner.use_sandbox(&caller.owner, &known.sandbox_id).await {
        Ok(sandbox) => sandbox,
        Err(problem) if known.detached && problem.code == Code::SandboxTerminated => {
            return Ok(None);
        }
        Err(problem) => return Err(problem),
    };
    let id = execute::exec_id_for(workflow)?;
    // Before the runtime is asked, so that nothing is discarded between.
    let attachment = service.inner.attachments.start(&id);
    let runtime = service.inner.runtime(&sandbox.runtime)?;
    match runtime.attach(&sandbox.id, &id, offsets).await {
        Ok(exec) => Ok(Some(JoinedCommand { exec, id, sandbox, attachment })),
        Err(Error::NoExec { .. } | Error::NoSandbox(_)) => Ok(None),
        Err(error) => Err(runtime_problem(&error)),
    }
}

/// The problem for a command without streams.
fn no_streams(known: &CommandInfo) -> Problem {
    let problem = Problem::new(Code::InvalidState, "the command cannot be joined");
    let reason = match known.status {
        OperationStatus::Running | OperationStatus::Waiting => "it is not started yet",
        _ => "it has ended, and the output of a command that is not detached is not stored",
    };
    problem.because(reason).remedied_by(format!("stockade ps --all {}", known.sandbox_id))
}

type Sender = mpsc::Sender<Result<SessionEvent>>;

/// Passes on the streams of a running command until it has ended or the caller has left.
async fn relay(
    service: Service,
    workflow: WorkflowId,
    joined: JoinedCommand,
    known: Offsets,
    events: Sender,
    input: mpsc::Receiver<SessionInput>,
) {
    let JoinedCommand { mut exec, id, sandbox, attachment } = joined;
    let stdin = exec.input.take();
    // The command's input stays open for the next client.
    let forwarding = session::forward_input(&service.inner, &sandbox, id, stdin, input, false);
    let listener = AbortOnDrop(tokio::spawn(forwarding));
    let mut stopped = service.inner.stopped();
    let mut received = known.output.saturating_add(known.error);
    let mut refused_calls = Vec::new();
    let ending = loop {
        let event = tokio::select! {
            event = exec.events.next() => Some(event.unwrap_or(Event::Ended(Ending::Unknown))),
            () = events.closed() => return,
            _ = stopped.wait_for(|stopped| *stopped) => None,
        };
        let Some(event) = event else {
            let _ = events.send(Err(shutting_down())).await;
            return;
        };
        let event = match event {
            Event::Output { stream, bytes, .. } => {
                received = received.saturating_add(bytes.len() as u64);
                let data = bytes.into();
                match stream {
                    Stream::Output => SessionEvent::Stdout { data },
                    Stream::Error => SessionEvent::Stderr { data },
                }
            }
            Event::Lost { length, .. } => {
                received = received.saturating_add(length);
                SessionEvent::Lost { bytes: length }
            }
            Event::RefusedCalls(names) => {
                refused_calls = names;
                continue;
            }
            Event::Ended(ending) => break ending,
        };
        if events.send(Ok(event)).await.is_err() {
            return;
        }
    };
    drop((listener, attachment, sandbox));
    let handle = service.engine.handle(&workflow);
    let recorded = tokio::time::timeout(RECORD, handle.get_result::<OutputEnd>()).await;
    let end = match recorded {
        Ok(Ok(end)) => end,
        // It was cancelled, or its record cannot be read: this is what the runtime knows.
        _ => OutputEnd { refused_calls, ..unrecorded(&ending) },
    };
    let missing = end.stdout_bytes.saturating_add(end.stderr_bytes).saturating_sub(received);
    if missing > 0 {
        let _ = events.send(Ok(SessionEvent::Lost { bytes: missing })).await;
    }
    let _ = events.send(Ok(SessionEvent::Ended(end))).await;
}

fn unrecorded(ending: &Ending) -> OutputEnd {
    OutputEnd {
        ending: ending.kind(),
        exit_code: ending.exit_code().map(i32::from),
        signal: ending.signal(),
        reason: ending.reason(None, None),
        duration_ms: 0,
        stdout_bytes: 0,
        stderr_bytes: 0,
        refused_calls: Vec::new(),
    }
}

fn shutting_down() -> Problem {
    Problem::new(Code::Unreachable, "the server is shutting down")
        .because("the command continues; join it again")
}

/// Passes on stored output, without the part that the caller knows.
async fn replay(mut items: Items<stockade_api::OutputItem>, mut known: Offsets, events: Sender) {
    while let Some(item) = items.next().await {
        let event = item.map(|item| match item.chunk {
            OutputChunk::Stdout { mut data } => {
                skip(&mut data.0, &mut known.output);
                SessionEvent::Stdout { data }
            }
            OutputChunk::Stderr { mut data } => {
                skip(&mut data.0, &mut known.error);
                SessionEvent::Stderr { data }
            }
            OutputChunk::Truncated { bytes } => SessionEvent::Lost { bytes },
            OutputChunk::Exit(end) => SessionEvent::Ended(end),
        });
        let is_empty = match &event {
            Ok(SessionEvent::Stdout { data } | SessionEvent::Stderr { data }) => data.0.is_empty(),
            _ => false,
        };
        if !is_empty && events.send(event).await.is_err() {
            return;
        }
    }
}

/// Removes the first bytes, as many as are known.
fn skip(data: &mut Vec<u8>, known: &mut u64) {
    let length = data.len().min(usize::try_from(*known).unwrap_or(usize::MAX));
    data.drain(..length);
    *known -= length as u64;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn known_output_is_not_repeated() {
        let (sender, items) = mpsc::channel(8);
        let out = |text: &str| OutputChunk::Stdout { data: text.as_bytes().into() };
        let err = OutputChunk::Stderr { data: b"bad".into() };
        for (sequence, chunk) in (0..).zip([out("one"), err, out("two")]) {
            sender.send(Ok(stockade_api::OutputItem { sequence, chunk })).await.unwrap();
        }
        drop(sender);
        let (events, mut seen) = mpsc::channel(8);
        let known = Offsets { output: 4, error: 3 };
        replay(Items::new(items), known, events).await;
        let event = seen.recv().await.unwrap().unwrap();
        assert_eq!(event, SessionEvent::Stdout { data: b"wo".into() });
        assert!(seen.recv().await.is_none());
    }
}
