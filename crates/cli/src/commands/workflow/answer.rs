//! `approve`, `deny`, `signal`, `cancel`: what users send to runs.

use std::os::unix::ffi::OsStringExt as _;

use serde::Serialize;
use stockade_api::{RunById, SendSignal};

use super::holder::{self, RunName};
use super::{effect, find, follow, value};
use crate::args::workflow::{Approve, Decide, OneRun, Signal};
use crate::commands::print::{notify, print};
use crate::problem::Failure;

/// Approves a request.
pub(crate) fn approve(arguments: Approve) -> Result<u8, Failure> {
    let Approve { decide: decision, only, allow_executed } = arguments;
    let only = only.into_iter().map(|path| path.into_vec().into()).collect();
    decide(decision, |id, task, note| stockade_api::Decide {
        id,
        task,
        approved: true,
        note,
        only,
        allow_executed,
    })
}

/// Denies a request.
pub(crate) fn deny(arguments: Decide) -> Result<u8, Failure> {
    decide(arguments, |id, task, note| stockade_api::Decide {
        id,
        task,
        approved: false,
        note,
        only: Vec::new(),
        allow_executed: false,
    })
}

fn decide(
    arguments: Decide,
    request: impl FnOnce(String, String, Option<String>) -> stockade_api::Decide,
) -> Result<u8, Failure> {
    let Decide { id, task, note, json, server_mode: way } = arguments;
    let (done, text) = holder::with_run(way, RunName::Any(&id), async |remote| {
        let run = find(&remote, &id).await?;
        holder::give_key(&remote, &run).await?;
        let request = request(run.id, task, note);
        let words = if request.approved { "approved" } else { "denied" };
        let text = format!("{} of run {} is {words}", request.task, request.id);
        let (id, task) = (request.id.clone(), request.task.clone());
        let from = follow::next_event(&remote, &id).await?;
        let done = remote.workflows.decide(&remote.idempotent(), request).await?;
        effect::wait(&remote, (&id, &task), from).await?;
        Ok((done, text))
    })?;
    print_answer(&done, &text, json)
}

/// Sends a signal.
pub(crate) fn signal(arguments: Signal) -> Result<u8, Failure> {
    let Signal { id, name, payload, correlation_id, json, server_mode: way } = arguments;
    let payload = value(&payload, "payload")?;
    let (done, text) = holder::with_run(way, RunName::Any(&id), async |remote| {
        let run = find(&remote, &id).await?;
        holder::give_key(&remote, &run).await?;
        let id = run.id;
        let text = format!("signal {name} was sent to run {id}");
        let from = follow::next_event(&remote, &id).await?;
        let waiting = effect::receiver(&remote, &id, &name).await?;
        let request = SendSignal { id: id.clone(), name, correlation: correlation_id, payload };
        let done = remote.workflows.signal(&remote.idempotent(), request).await?;
        if let Some(task) = waiting {
            effect::wait(&remote, (&id, &task), from).await?;
        }
        Ok((done, text))
    })?;
    print_answer(&done, &text, json)
}

/// Cancels a run.
pub(crate) fn cancel(arguments: OneRun) -> Result<u8, Failure> {
    let run =
        holder::with_run(arguments.server_mode, RunName::Any(&arguments.id), async |remote| {
            let run = find(&remote, &arguments.id).await?;
            // Without the key, its sandboxes end there with their leases.
            let _ = holder::give_key(&remote, &run).await;
            let request = RunById { id: run.id };
            Ok(remote.workflows.cancel_run(&remote.idempotent(), request).await?)
        })?;
    let text = format!("run {} is {}", run.id, run.status.as_str());
    print_answer(&run, &text, arguments.json)
}

fn print_answer(answer: &impl Serialize, text: &str, is_json: bool) -> Result<u8, Failure> {
    if is_json {
        print(answer)?;
    } else {
        notify(text);
    }
    Ok(0)
}
