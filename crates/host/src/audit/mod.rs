//! The audit records of the operations of this process.
//!
//! The record of an operation's start is committed together with the row of the operation, and is moved
//! from there to the file of records ([`stockade_audit`]) before the record of its end. So each
//! operation that has started has a record, also after a crash. `observer` sees the operations,
//! `details` chooses what a record says about a request.

mod details;
mod observer;

use std::collections::HashSet;
use std::fmt;
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use stockade_api::{Origin, Problem, RecordRefusal};
use stockade_audit::{Actor, Decision, Entry, KeyDirectory, Log, Reason, Records};
use stockade_bundle::data::DataDir;
use stockade_core::Code;
use stockade_service::Service;
use tokio::sync::Mutex;

pub(crate) use observer::Observer;

/// How many records of starts are moved at once.
const BATCH: i64 = 256;
/// After how many moved records their rows are removed. Until then a power failure loses none.
const REMOVE_AFTER: usize = 64;
/// The most records that wait for space in memory.
const MAX_WAITING: usize = 4096;
/// How much of the end of the file is read to find records that were moved before a crash.
const SEARCHED_BYTES: u64 = 8 << 20;
/// How many refused requests that change nothing are recorded in a period.
const REFUSALS: u32 = 60;
/// How often records that belong to no request are moved.
const MOVE_INTERVAL: Duration = Duration::from_secs(2);
/// The period.
const REFUSALS_PERIOD: Duration = Duration::from_secs(60);

/// The audit records of this process. Its clones are the same.
#[derive(Clone)]
pub(crate) struct Audit(Arc<Shared>);

struct Shared {
    log: Arc<Log>,
    service: Option<Service>,
    state: Mutex<State>,
    refusals: std::sync::Mutex<Refusals>,
}

#[derive(Default)]
struct State {
    /// The number of the last start that was moved.
    moved: i64,
    /// How many were moved since rows were removed.
    not_removed: usize,
    /// Records that could not be stored yet.
    waiting: Vec<Entry>,
    /// How many records were lost because too many waited.
    lost: u64,
}

/// The refused requests of the current period.
struct Refusals {
    since: Instant,
    recorded: u32,
    suppressed: u64,
}

impl fmt::Debug for Audit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Audit")
    }
}

impl Audit {
    /// Opens the records of a data directory, and completes what a crash has interrupted.
    ///
    /// # Errors
    /// If the records cannot be used.
    pub(crate) async fn open(data: &DataDir, service: Option<Service>) -> Result<Self, Problem> {
        let path = data.real_path().map_err(|error| Problem::caused(Code::Io, &error))?;
        let keys = KeyDirectory::from_environment(|name| std::env::var_os(name));
        let log = Log::open(data.as_fd(), &path, keys.as_ref()).map_err(|e| problem(&e))?;
        let audit = Self(Arc::new(Shared {
            log: Arc::new(log),
            service,
            state: Mutex::new(State::default()),
            refusals: std::sync::Mutex::new(Refusals {
                since: Instant::now(),
                recorded: 0,
                suppressed: 0,
            }),
        }));
        audit.recover(data).await?;
        audit.start_moving();
        Ok(audit)
    }

    /// Moves what the server records without a request, until the process ends.
    fn start_moving(&self) {
        let shared = Arc::downgrade(&self.0);
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(MOVE_INTERVAL).await;
                let Some(shared) = shared.upgrade() else { return };
                let audit = Self(shared);
                let mut state = audit.0.state.lock().await;
                // A failure refuses the next change: see `check`.
                let _ = audit.flush(&mut state).await;
            }
        });
    }

    /// Moves the starts that an earlier process has left, without those that it has moved.
    async fn recover(&self, data: &DataDir) -> Result<(), Problem> {
        let Some(service) = &self.0.service else { return Ok(()) };
        let mut state = self.0.state.lock().await;
        let mut known: Option<HashSet<String>> = None;
        loop {
            let starts = service.start_records(state.moved, BATCH).await?;
            let Some((last, _)) = starts.last() else { break };
            let last = *last;
            if known.is_none() {
                let records = Records::open_end(data.as_fd(), SEARCHED_BYTES);
                let records = records.map_err(|error| problem(&error))?;
                let ids = records.into_iter().flatten().flatten().map(|record| record.entry.id);
                known = Some(ids.collect());
            }
            let is_new = |entry: &Entry| !known.as_ref().is_some_and(|ids| ids.contains(&entry.id));
            let entries: Vec<_> =
                starts.iter().filter_map(|(_, start)| parse(&start.text)).filter(is_new).collect();
            self.append(entries).await?;
            state.moved = last;
            state.not_removed += starts.len();
        }
        self.remove_rows(&mut state, 1).await
    }

    /// Stores a record, after those of the starts that were committed before. If there is no space,
    /// it waits in memory.
    async fn record(&self, entry: Entry) {
        let mut state = self.0.state.lock().await;
        if state.waiting.len() < MAX_WAITING {
            state.waiting.push(entry);
        } else {
            state.lost += 1;
        }
        // A failure refuses the next change: see `check`.
        let _ = self.flush(&mut state).await;
    }

    /// Fails if the records that wait cannot be stored: then no further change is allowed.
    async fn check(&self) -> Result<(), Problem> {
        let mut state = self.0.state.lock().await;
        if state.waiting.is_empty() { Ok(()) } else { self.flush(&mut state).await }
    }

    /// Stores the record of an operation that has no row.
    async fn record_start(&self, entry: &Entry) -> Result<(), Problem> {
        let mut state = self.0.state.lock().await;
        self.flush(&mut state).await?;
        self.append(vec![entry.clone()]).await
    }

    async fn flush(&self, state: &mut State) -> Result<(), Problem> {
        let mut entries = Vec::new();
        let mut moved = state.moved;
        let mut count = 0;
        if let Some(service) = &self.0.service {
            for (number, start) in service.start_records(moved, BATCH).await? {
                entries.extend(parse(&start.text));
                moved = number;
                count += 1;
            }
        }
        if let (lost @ 1.., Some(first)) = (state.lost, state.waiting.first()) {
            entries.push(Entry::new("audit.lost", first.actor.clone()).with("records", lost));
        }
        entries.extend(state.waiting.iter().cloned());
        self.append(entries).await?;
        state.waiting.clear();
        state.lost = 0;
        state.moved = moved;
        state.not_removed += count;
        self.remove_rows(state, REMOVE_AFTER).await
    }

    /// Removes the rows of starts once their records are on the disk, if there are that many.
    async fn remove_rows(&self, state: &mut State, at_least: usize) -> Result<(), Problem> {
        let Some(service) = self.0.service.as_ref().filter(|_| state.not_removed >= at_least)
        else {
            return Ok(());
        };
        let log = Arc::clone(&self.0.log);
        blocking(move || log.sync()).await?;
        service.remove_start_records(state.moved).await?;
        state.not_removed = 0;
        Ok(())
    }

    async fn append(&self, entries: Vec<Entry>) -> Result<(), Problem> {
        if entries.is_empty() {
            return Ok(());
        }
        let log = Arc::clone(&self.0.log);
        blocking(move || log.append(&entries)).await
    }

    /// Whether a refused request is recorded, and how many were not since the last one.
    fn admit_refusal(&self) -> Option<u64> {
        let mut refusals =
            self.0.refusals.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if refusals.since.elapsed() >= REFUSALS_PERIOD {
            refusals.since = Instant::now();
            refusals.recorded = 0;
        }
        if refusals.recorded >= REFUSALS {
            refusals.suppressed += 1;
            return None;
        }
        refusals.recorded += 1;
        Some(std::mem::take(&mut refusals.suppressed))
    }

    /// Records a refused request that would have changed nothing.
    async fn record_refused(&self, entry: &Entry, problem: &Problem) {
        let Some(suppressed) = self.admit_refusal() else { return };
        let mut entry = entry.ended(Decision::Refused, Some(reason(problem)));
        entry.details.remove("of");
        let entry = if suppressed > 0 { entry.with("suppressed", suppressed) } else { entry };
        self.record(entry).await;
    }

    /// Stores what waits when the process ends.
    pub(crate) async fn end(&self) {
        let mut state = self.0.state.lock().await;
        if self.flush(&mut state).await.is_ok() {
            let _ = self.remove_rows(&mut state, 1).await;
        }
    }
}

#[async_trait]
impl RecordRefusal for Audit {
    async fn record_refusal(&self, origin: &Origin, request: &str, problem: &Problem) {
        let actor = Actor {
            owner: None,
            uid: origin.uid,
            key_id: origin.key_id.clone(),
            address: origin.address.clone(),
            door: origin.door,
            request_id: origin.request_id.clone(),
        };
        let entry =
            Entry::new("request", actor).with("request", stockade_audit::redact::text(request));
        self.record_refused(&entry, problem).await;
    }
}

fn parse(text: &str) -> Option<Entry> {
    serde_json::from_str(text).ok()
}

fn reason(problem: &Problem) -> Reason {
    Reason { code: problem.code.to_string(), message: problem.message.clone() }
}

async fn blocking(
    act: impl FnOnce() -> Result<(), stockade_audit::Error> + Send + 'static,
) -> Result<(), Problem> {
    match tokio::task::spawn_blocking(act).await {
        Ok(done) => done.map_err(|error| problem(&error)),
        Err(error) => Err(Problem::caused(Code::Io, &error)),
    }
}

/// The problem of records that cannot be used.
fn problem(error: &stockade_audit::Error) -> Problem {
    stockade_cli::audit::audit_problem(error)
}
