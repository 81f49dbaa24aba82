//! `GET /metrics`: what a sandbox uses now; `GET /metrics/watch`: the same each second.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::response::Response;
use axum::{Extension, Json};
use serde_json::{Value, json};
use stockade_api::{GetSandbox, Metrics};

use super::super::target::{PortState, Target};
use super::events::{Channel, event_stream};
use crate::failure::Failure;

/// How long the use of processors is measured.
const INTERVAL: Duration = Duration::from_millis(100);
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
    let first = measure(state, target).await?;
    let begin = Instant::now();
    tokio::time::sleep(INTERVAL).await;
    let second = measure(state, target).await?;
    let elapsed = begin.elapsed().as_secs_f64() * 1000.0;
    let used = match (first.cpu_ms, second.cpu_ms) {
        (Some(before), Some(after)) => Duration::from_millis(after.saturating_sub(before)),
        _ => Duration::ZERO,
    };
    let limits = &target.sandbox.limits;
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let cpu_count = match limits.cpu_millis {
        Some(millis) => Duration::from_millis(millis).as_secs_f64(),
        None => f64::from(u32::try_from(processors).unwrap_or(u32::MAX)),
    };
    let total = limits.memory_bytes.or_else(machine_memory).unwrap_or(0);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Ok(json!({
        "cpu_count": cpu_count,
        // The two measurements are not taken at exact times.
        "cpu_used_pct": (used.as_secs_f64() * 1000.0 / elapsed / cpu_count * 100.0).min(100.0),
        "mem_total_mib": mib(total),
        "mem_used_mib": mib(second.memory_bytes.unwrap_or(0).min(total)),
        "timestamp": u64::try_from(now.as_millis()).unwrap_or(u64::MAX),
    }))
}

async fn measure(state: &PortState, target: &Target) -> Result<Metrics, Failure> {
    let request = GetSandbox { id: target.sandbox.id.clone(), metrics: true };
    let sandbox = state.sandboxes.get_status(&target.caller, request).await?;
    Ok(sandbox.metrics.unwrap_or_default())
}

fn mib(bytes: u64) -> f64 {
    let kib = u32::try_from(bytes >> 10).unwrap_or(u32::MAX);
    f64::from(kib) * 1024.0 / MIB
}

/// The memory of the machine, in bytes.
fn machine_memory() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}
