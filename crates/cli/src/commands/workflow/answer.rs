//! `approve`, `deny`, `signal`, `cancel`: what runs are told from outside.

use serde::Serialize;
use stockade_api::{RunById, SendSignal};

use super::value;
use crate::args::workflow::{Decide, OneRun, Signal};
use crate::commands::held::{print, say};
use crate::problem::Failure;
use crate::remote;

/// Says yes.
pub(crate) fn approve(arguments: Decide) -> Result<u8, Failure> {
    decide(arguments, true)
}

/// Says no.
pub(crate) fn deny(arguments: Decide) -> Result<u8, Failure> {
    decide(arguments, false)
}

fn decide(arguments: Decide, approved: bool) -> Result<u8, Failure> {
    let Decide { id, task, note, json, way } = arguments;
    let words = if approved { "approved" } else { "denied" };
    let told = format!("{task} of run {id} is {words}");
    let done = remote::with(way, async |remote| {
        let request = stockade_api::Decide { id, task, approved, note };
        Ok(remote.workflows.decide(&remote.once(), request).await?)
    })?;
    tell(&done, &told, json)
}

/// Sends a signal.
pub(crate) fn signal(arguments: Signal) -> Result<u8, Failure> {
    let Signal { id, name, payload, correlation_id, json, way } = arguments;
    let payload = value(&payload, "payload")?;
    let told = format!("run {id} has the signal {name}");
    let done = remote::with(way, async |remote| {
        let request = SendSignal { id, name, correlation: correlation_id, payload };
        Ok(remote.workflows.signal(&remote.once(), request).await?)
    })?;
    tell(&done, &told, json)
}

/// Cancels a run.
pub(crate) fn cancel(arguments: OneRun) -> Result<u8, Failure> {
    let run = remote::with(arguments.way, async |remote| {
        let request = RunById { id: arguments.id.clone() };
        Ok(remote.workflows.cancel_run(&remote.once(), request).await?)
    })?;
    let told = format!("run {} is {}", run.id, run.status.as_str());
    tell(&run, &told, arguments.json)
}

fn tell(answer: &impl Serialize, text: &str, is_json: bool) -> Result<u8, Failure> {
    if is_json {
        print(answer)?;
    } else {
        say(text);
    }
    Ok(0)
}
