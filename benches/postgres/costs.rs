//! What the parts of a server's work cost the database: processor time of the PostgreSQL server for each of them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::Serialize;
use stockade_durable::{Recovery, Statement};

use crate::Failure;
use crate::database::Database;
use crate::stockade::{QUEUE, Stockade};

/// How long each part is repeated.
const TIME: Duration = Duration::from_secs(2);
/// How many listeners there are when the cost of a notification is measured.
const LISTENERS: usize = 24;

/// What one of something costs the database.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Cost {
    /// What it is, as `cargo xtask simulate` names it.
    pub(crate) name: &'static str,
    /// Processor time of all processes of the database server.
    pub(crate) microseconds: f64,
}

/// Measures all parts.
pub(crate) async fn measure(database: &Database, url: &str) -> Result<Vec<Cost>, Failure> {
    let stockade = Arc::new(Stockade::launch(url, "costs").await?);
    let executor = stockade.engine.executor().clone();
    let meter = Meter::new(database)?;
    let mut costs = Vec::new();
    let recovery = Recovery {
        executor: executor.clone(),
        silence_ms: 15_000,
        max_attempts: 50,
        strays: Vec::new(),
    };
    let lease = async || {
        stockade.store.heartbeat(&executor).await?;
        stockade.store.owned(&executor).await?;
        stockade.store.recover(recovery.clone()).await?;
        Ok(())
    };
    costs.push(meter.cost("lease", lease).await?);
    let queues = [QUEUE.to_owned()];
    let poll = async || {
        stockade.store.dequeue(&executor, &queues).await?;
        Ok(())
    };
    costs.push(meter.cost("queue", poll).await?);
    let read = async || {
        let sql = "SELECT executor_id FROM executors WHERE executor_id = ?1";
        stockade.store.query(Statement::new(sql, vec![executor.id.as_str().into()])).await?;
        Ok(())
    };
    costs.push(meter.cost("read", read).await?);
    costs.push(meter.cost("workflow", || stockade.steps(1, 1)).await?);
    costs.push(notification(&meter, &stockade, url).await?);
    let stockade = Arc::into_inner(stockade).ok_or("the engine is still used")?;
    stockade.end().await?;
    Ok(costs)
}

/// What one notification costs for each server that listens: the difference that more listeners make.
async fn notification(meter: &Meter, stockade: &Stockade, url: &str) -> Result<Cost, Failure> {
    // The commit that wakes others, without a row of its own.
    let wake = async || {
        let wake = Statement::new("SELECT 1", vec![]).notifying("bench");
        stockade.store.execute(vec![wake]).await?;
        Ok(())
    };
    let alone = meter.cost("notification", wake).await?;
    let mut listeners = Vec::new();
    for number in 0..LISTENERS {
        listeners.push(Stockade::launch(url, &format!("listener-{number}")).await?);
    }
    let together = meter.cost("notification", wake).await?;
    for listener in listeners {
        listener.end().await?;
    }
    #[expect(clippy::cast_precision_loss, reason = "a small count")]
    let microseconds = (together.microseconds - alone.microseconds) / LISTENERS as f64;
    Ok(Cost { name: alone.name, microseconds: microseconds.max(0.0) })
}

/// The costs as a Markdown table.
pub(crate) fn table(costs: &[Cost]) -> String {
    let mut table = "| of one | processor time of the database, µs |\n|---|---|\n".to_owned();
    for Cost { name, microseconds } in costs {
        table.push_str(&format!("| {name} | {microseconds:.0} |\n"));
    }
    table
}

/// Reads what the database server has used.
struct Meter {
    /// The id of its first process.
    server: String,
}

impl Meter {
    fn new(database: &Database) -> Result<Self, Failure> {
        let rows = database.sql("SELECT split_part(pg_read_file('postmaster.pid'), chr(10), 1)")?;
        let server = rows.into_iter().flatten().next().ok_or("the database has no process")?;
        Ok(Self { server })
    }

    /// Repeats something, and divides what the server has used meanwhile.
    async fn cost(
        &self,
        name: &'static str,
        mut work: impl AsyncFnMut() -> Result<(), Failure>,
    ) -> Result<Cost, Failure> {
        let microseconds = self.processor_time()?;
        let begun = Instant::now();
        let mut count = 0.0;
        while begun.elapsed() < TIME {
            work().await?;
            count += 1.0;
        }
        let microseconds = (self.processor_time()? - microseconds) / count;
        Ok(Cost { name, microseconds })
    }

    /// The processor time of the server and of its processes, also of those that have ended.
    fn processor_time(&self) -> Result<f64, Failure> {
        let ticks = rustix::param::clock_ticks_per_second();
        let mut used = 0;
        let server = &self.server;
        for entry in std::fs::read_dir("/proc")? {
            let Ok(text) = std::fs::read_to_string(entry?.path().join("stat")) else { continue };
            // The name may contain anything, and ends at the last parenthesis.
            let Some((head, rest)) = text.rsplit_once(')') else { continue };
            let fields: Vec<_> = rest.split_whitespace().collect();
            let number = |index: usize| fields.get(index).and_then(|text| text.parse::<u64>().ok());
            let is_server = head.split(' ').next().is_some_and(|id| id == server);
            if is_server {
                // With those of its children that have ended.
                used += [11, 12, 13, 14].into_iter().filter_map(number).sum::<u64>();
            } else if fields.get(1) == Some(&server.as_str()) {
                used += [11, 12].into_iter().filter_map(number).sum::<u64>();
            }
        }
        #[expect(clippy::cast_precision_loss, reason = "exact below 2^52")]
        Ok(used as f64 * 1e6 / ticks as f64)
    }
}
