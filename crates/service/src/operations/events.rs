//! `read_events`: the events of an owner's sandboxes, from an offset on.

use stockade_api::{Caller, Items, ReadEvents, RecordedEvent, Result};
use stockade_core::{Code, Problem};
use tokio::sync::mpsc;

use crate::owned_sandbox::OwnedSandbox;
use crate::service::Service;
use crate::store::events;

/// How often the events of other servers are read.
const ELSEWHERE_INTERVAL: std::time::Duration = std::time::Duration::from_millis(500);
/// How many events are read from the store at a time.
const PAGE: usize = 256;

/// The existing events, and with `follow` also future ones.
pub(crate) async fn read(
    service: &Service,
    caller: &Caller,
    request: ReadEvents,
) -> Result<Items<RecordedEvent>> {
    if let Some(id) = &request.sandbox_id {
        OwnedSandbox::check(&*service.inner.store, &caller.owner, id).await?;
    }
    let (service, owner) = (service.clone(), caller.owner.clone());
    let (sender, receiver) = mpsc::channel(64);
    tokio::spawn(async move {
        let mut after = i64::try_from(request.after).unwrap_or(i64::MAX);
        // Subscribed before the first read, so that no event is missed.
        let mut changed = service.engine.subscribe(events::TOPIC);
        let mut stopped = service.inner.stopped();
        let is_clustered = service.inner.options.cluster.is_some();
        loop {
            let (store, sandbox) = (&*service.inner.store, request.sandbox_id.as_ref());
            let events = events::page(store, &owner, sandbox, after, PAGE).await;
            let events = match events {
                Ok(events) => events,
                Err(problem) => {
                    let _ = sender.send(Err(problem)).await;
                    break;
                }
            };
            let full = events.len() == PAGE;
            for event in events {
                after = i64::try_from(event.seq).unwrap_or(i64::MAX);
                if sender.send(Ok(event)).await.is_err() {
                    return;
                }
            }
            if full {
                continue;
            }
            if !request.follow {
                break;
            }
            let is_stopped = tokio::select! {
                _ = stopped.wait_for(|stopped| *stopped) => true,
                () = sender.closed() => break,
                _ = changed.changed() => false,
                // What other servers record wakes nobody here.
                () = tokio::time::sleep(ELSEWHERE_INTERVAL), if is_clustered => false,
            };
            if is_stopped {
                // An end without an error would look as if there were no more events.
                let gone = Problem::new(Code::Unreachable, "the server is shutting down")
                    .because("there may be more events; continue after the last one");
                let _ = sender.send(Err(gone)).await;
                break;
            }
        }
    });
    Ok(Items::new(receiver))
}
