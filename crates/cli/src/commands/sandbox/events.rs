//! `stockade events`: the events of sandboxes, one line each.

use stockade_api::ReadEvents;
use stockade_core::Code;

use super::find;
use crate::args::sandbox::Events;
use crate::commands::print::{print_line, print_text};
use crate::commands::workflow::events::{EventFilter, is_of_kind, print_events};
use crate::commands::workflow::holder::{RunName, with_run};
use crate::commands::workflow::or_no_run_or_sandbox;
use crate::problem::Failure;
use crate::remote::{self, Remote};

/// Prints them, and with `--follow` also future ones.
pub(crate) fn run(arguments: Events) -> Result<u8, Failure> {
    let name = arguments.id.as_deref().map(RunName::Exact);
    let mode = arguments.server_mode;
    let print = async |remote: Remote| {
        if let Some(id) = &arguments.id {
            let from = i64::try_from(arguments.after).unwrap_or(i64::MAX);
            let Events { follow, json, ref kind, .. } = arguments;
            let kind = kind.as_deref();
            let wanted = EventFilter { from, follow, console: false, kind, task: None, json };
            if print_events(&remote, id, wanted).await? {
                return Ok(0);
            }
        }
        let sandbox_id = match &arguments.id {
            Some(name) => {
                let found = find(&remote, name).await;
                Some(found.map_err(|failure| or_no_run_or_sandbox(failure, name))?)
            }
            None => None,
        };
        let mut request =
            ReadEvents { sandbox_id, after: arguments.after, follow: arguments.follow };
        let events = remote.sandboxes.read_events(remote.caller(), request.clone()).await;
        let mut events = events.map_err(|problem| match &arguments.id {
            Some(name) => or_no_run_or_sandbox(problem.into(), name),
            None => problem.into(),
        })?;
        let mut asked_again_at = None;
        while let Some(event) = events.next().await {
            let event = match event {
                Ok(event) => event,
                // The server has ended. The next server has the remaining events.
                Err(gone)
                    if gone.code == Code::Unreachable && asked_again_at != Some(request.after) =>
                {
                    asked_again_at = Some(request.after);
                    events = remote.sandboxes.read_events(remote.caller(), request.clone()).await?;
                    continue;
                }
                Err(problem) => return Err(problem.into()),
            };
            request.after = event.seq;
            if arguments
                .kind
                .as_deref()
                .is_some_and(|kind| !is_of_kind(&event.payload.kind().to_string(), kind))
            {
                continue;
            }
            if arguments.json {
                print_line(&event)?;
            } else {
                let payload = serde_json::to_value(&event.payload).unwrap_or_default();
                let kind = event.payload.kind();
                let data = crate::json::escape_controls(payload["data"].to_string());
                let line = format!(
                    "{:>6}  {:.0}  {}  {kind}  {data}\n",
                    event.seq, event.at, event.sandbox_id
                );
                print_text(&line)?;
            }
        }
        Ok(0)
    };
    match name {
        Some(name) => with_run(mode, name, print),
        None => remote::with(mode, print),
    }
}
