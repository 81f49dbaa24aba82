//! `GET /metrics`: what a sandbox uses now; `GET /metrics/watch`: the same each second.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::response::Response;
use axum::{Extension, Json};
use serde_json::{Value, json};

use super::super::target::{PortState, Target};
use super::events::event_stream;
use crate::failure::Failure;
use crate::inside::{Channel, usage};

/// How long it takes to the next values.
const WATCH_INTERVAL: Duration = Duration::from_millis(900);
const MIB: f64 = 1_048_576.0;

/// `GET /metrics`. Values that cannot be measured are 0, for the form has no other way to say that.
pub(super) async fn current(
    State(state): State<PortState>,
    Extension(target): Extension<Target>,
) -> Result<Json<Value>, Failure> {
    value(&state, &target).await.map(Json)
}

/// `GET /metrics/watch`, until the client disconnects or the sandbox has ended.
pub(super) async fn watch(
    State(state): State<PortState>,
    Extension(target): Extension<Target>,
) -> Response {
    let (sender, receiver) = tokio::sync::mpsc::channel(1);
    tokio::spawn(async move {
        loop {
            let value = value(&state, &target).await;
            let is_last = value.is_err();
            let value =
                value.unwrap_or_else(|Failure(problem)| json!({ "error": problem.message }));
            let text = Bytes::from(format!("{value}\n\n"));
            if sender.send(text).await.is_err() || is_last {
                return;
            }
            tokio::time::sleep(WATCH_INTERVAL).await;
        }
    });
    event_stream(Body::new(Channel(receiver)))
}

async fn value(state: &PortState, target: &Target) -> Result<Value, Failure> {
    let used = usage::measure(&*state.sandboxes, &target.caller, &target.sandbox).await?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Ok(json!({
        "cpu_count": used.cpu_count,
        "cpu_used_pct": used.cpu_used,
        "mem_total_mib": mib(used.memory_total_bytes),
        "mem_used_mib": mib(used.memory_bytes),
        "timestamp": u64::try_from(now.as_millis()).unwrap_or(u64::MAX),
    }))
}

fn mib(bytes: u64) -> f64 {
    let kib = u32::try_from(bytes >> 10).unwrap_or(u32::MAX);
    f64::from(kib) * 1024.0 / MIB
}
