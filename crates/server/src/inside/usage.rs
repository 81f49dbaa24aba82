//! What a sandbox uses now, and what it has.

use std::time::{Duration, Instant};

use stockade_api::{Caller, GetSandbox, Metrics, Sandbox, Sandboxes};

use crate::failure::Failure;

/// How long the use of processors is measured.
const INTERVAL: Duration = Duration::from_millis(100);

/// The use of resources. What cannot be measured is 0.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Usage {
    /// The processors that the sandbox may use.
    pub(crate) cpu_count: f64,
    /// In percent of them.
    pub(crate) cpu_used: f64,
    pub(crate) memory_bytes: u64,
    pub(crate) memory_total_bytes: u64,
    pub(crate) disk_bytes: u64,
}

/// Measures a sandbox.
pub(crate) async fn measure(
    sandboxes: &dyn Sandboxes,
    caller: &Caller,
    sandbox: &Sandbox,
) -> Result<Usage, Failure> {
    let first = values(sandboxes, caller, sandbox).await?;
    let begin = Instant::now();
    tokio::time::sleep(INTERVAL).await;
    let second = values(sandboxes, caller, sandbox).await?;
    let elapsed = begin.elapsed().as_secs_f64() * 1000.0;
    let used = match (first.cpu_ms, second.cpu_ms) {
        (Some(before), Some(after)) => Duration::from_millis(after.saturating_sub(before)),
        _ => Duration::ZERO,
    };
    let cpu_count = cpu_count(sandbox);
    let total = memory_bytes(sandbox);
    Ok(Usage {
        cpu_count,
        // The two measurements are not taken at exact times.
        cpu_used: (used.as_secs_f64() * 1000.0 / elapsed / cpu_count * 100.0).min(100.0),
        memory_bytes: second.memory_bytes.unwrap_or(0).min(total),
        memory_total_bytes: total,
        disk_bytes: second.disk_bytes.unwrap_or(0),
    })
}

async fn values(
    sandboxes: &dyn Sandboxes,
    caller: &Caller,
    sandbox: &Sandbox,
) -> Result<Metrics, Failure> {
    let request = GetSandbox { id: sandbox.id.clone(), metrics: true };
    Ok(sandboxes.get_status(caller, request).await?.metrics.unwrap_or_default())
}

/// How many processors a sandbox may use.
pub(crate) fn cpu_count(sandbox: &Sandbox) -> f64 {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    match sandbox.limits.cpu_millis {
        Some(millis) => Duration::from_millis(millis).as_secs_f64(),
        None => f64::from(u32::try_from(processors).unwrap_or(u32::MAX)),
    }
}

/// How much memory a sandbox may use.
pub(crate) fn memory_bytes(sandbox: &Sandbox) -> u64 {
    sandbox.limits.memory_bytes.or_else(machine_memory).unwrap_or(0)
}

/// The memory of the machine, in bytes.
fn machine_memory() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}
