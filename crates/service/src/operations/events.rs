//! `read_events`: the events of an owner's sandboxes, from an offset on.

use serde_json::json;
use stockade_api::{Caller, Items, ReadEvents, RecordedEvent, Result};
use stockade_core::{Code, Problem};
use stockade_durable::{Row, Statement, Value};
use tokio::sync::mpsc;

use crate::clock::timestamp;
use crate::events::TOPIC;
use crate::failure::of_store;
use crate::guard::Owned;
use crate::service::Service;

/// How many events are read at a time.
const PAGE: usize = 256;

/// The events that there are, and with `follow` those that come.
pub(crate) async fn read(
    service: &Service,
    caller: &Caller,
    request: ReadEvents,
) -> Result<Items<RecordedEvent>> {
    if let Some(id) = &request.sandbox_id {
        Owned::check(&*service.inner.store, &caller.owner, id).await?;
    }
    let (service, owner) = (service.clone(), caller.owner.clone());
    let (sender, receiver) = mpsc::channel(64);
    tokio::spawn(async move {
        let page = i64::try_from(PAGE).unwrap_or(i64::MAX);
        let mut after = i64::try_from(request.after).unwrap_or(i64::MAX);
        // Subscribed before the first look, so that nothing falls between.
        let mut changed = service.engine.subscribe(TOPIC);
        let mut stopped = service.inner.stopped();
        loop {
            let mut parameters: Vec<Value> = vec![owner.as_str().into(), after.into(), page.into()];
            let mut sql = "SELECT seq, id, type, sandbox_id, owner_id, execution_id, at, data \
                FROM sandbox_events WHERE owner_id = ?1 AND seq > ?2"
                .to_owned();
            if let Some(id) = &request.sandbox_id {
                parameters.push(id.as_str().into());
                sql.push_str(" AND sandbox_id = ?4");
            }
            sql.push_str(" ORDER BY seq LIMIT ?3");
            let rows = service.inner.store.query(Statement::new(sql, parameters)).await;
            let events = rows
                .map_err(of_store)
                .and_then(|rows| rows.iter().map(event).collect::<Result<Vec<_>>>());
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
            tokio::select! {
                _ = stopped.wait_for(|stopped| *stopped) => break,
                () = sender.closed() => break,
                _ = changed.changed() => {}
            }
        }
    });
    Ok(Items::new(receiver))
}

fn event(row: &Row) -> Result<RecordedEvent> {
    let damaged = |error: &dyn std::fmt::Display| {
        Problem::new(Code::DatabaseInvalid, "an event's record cannot be read")
            .because(error.to_string())
    };
    let text = |index| row.text(index).map_err(of_store);
    let data: serde_json::Value = serde_json::from_str(text(7)?).map_err(|e| damaged(&e))?;
    serde_json::from_value(json!({
        "seq": row.integer(0).map_err(of_store)?,
        "id": text(1)?,
        "type": text(2)?,
        "sandboxId": text(3)?,
        "ownerId": text(4)?,
        "executionId": row.optional_text(5).map_err(of_store)?,
        "at": timestamp(row.integer(6).map_err(of_store)?),
        "data": data,
    }))
    .map_err(|error| damaged(&error))
}
