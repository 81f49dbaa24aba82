//! Metrics of the sandboxes of runs. They are computed from the stored events, so that a restart loses
//! none of them. Only the time that it took to end the sandboxes of this host is counted in memory,
//! because they are ended while their last events are written.

use std::collections::{BTreeMap, HashMap};
use std::sync::Mutex;
use std::time::Duration;

use serde_json::Value as Json;
use stockade_api::Measurements;
use stockade_api::measurement::{Histogram, Kind, Measurement, Number, Series};
use stockade_durable::{Error, Store};

use crate::engine::timings::Operation;
use crate::store::events::{self, SandboxEvent};
use crate::sync::lock;

/// How many events are read in one query.
const PAGE: usize = 4_096;
/// Bucket bounds in milliseconds, from an operation on this host to a long child.
const TIMES_MS: [f64; 13] = [1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1e3, 3e3, 1e4, 3e4, 1e5, 3e5, 1e6];
/// Bucket bounds in bytes, up to the largest bundle (100 MiB).
const SIZES: [f64; 7] =
    [1024.0, 4096.0, 16384.0, 65536.0, 1_048_576.0, 16_777_216.0, 104_857_600.0];
/// Bucket bounds for files, up to the most that a bundle may change.
const COUNTS: [f64; 7] = [0.0, 1.0, 3.0, 10.0, 30.0, 100.0, 1000.0];

/// The times that it took to end the sandboxes that ended in this process, by owner and runtime.
#[derive(Debug, Default)]
pub(crate) struct CleanupTimes(Mutex<BTreeMap<(String, String), Histogram>>);

impl CleanupTimes {
    /// Adds a time.
    pub(crate) fn count(&self, owner: &str, runtime: &str, took: Duration) {
        let of = (owner.to_owned(), runtime.to_owned());
        let mut all = lock(&self.0);
        let times = all.entry(of).or_insert_with(|| Histogram::new(&TIMES_MS));
        times.observe(took.as_secs_f64() * 1e3);
    }

    /// The times of an owner's sandboxes, by runtime.
    fn of(&self, owner: &str) -> Vec<(String, Histogram)> {
        let all = lock(&self.0);
        let own = all.iter().filter(|((of, _), _)| of == owner);
        own.map(|((_, runtime), times)| (runtime.clone(), times.clone())).collect()
    }
}

/// A sandbox that was created and has not ended.
#[derive(Debug)]
struct Open {
    runtime: String,
    /// Whether its changes wait for a decision.
    is_in_review: bool,
}

/// The counts of the events that were read.
#[derive(Debug)]
struct Tally {
    /// The open sandboxes of the current run, by task and iteration.
    open: HashMap<(String, u64), Open>,
    created: BTreeMap<String, u64>,
    /// Counts by runtime and status.
    completed: BTreeMap<(String, &'static str), u64>,
    active: BTreeMap<String, u64>,
    in_review: BTreeMap<String, u64>,
    durations: Histogram,
    sizes: Histogram,
    patches: Histogram,
    /// Times by operation and runtime.
    transport: BTreeMap<(String, String), Histogram>,
}

/// The metrics of the sandboxes of an owner's runs.
pub(crate) async fn collect(
    store: &dyn Store,
    cleanup_times: &CleanupTimes,
    owner: &str,
) -> Result<Measurements, Error> {
    let mut tally = Tally::new();
    let mut last = (String::new(), -1, false);
    loop {
        let page = events::list_sandbox_events(store, owner, (&last.0, last.1), PAGE).await?;
        for SandboxEvent { run, seq, run_has_ended, event } in &page {
            if *run != last.0 {
                tally.end_run(last.2);
            }
            last = (run.clone(), *seq, *run_has_ended);
            tally.take(event);
        }
        if page.len() < PAGE {
            break;
        }
    }
    tally.end_run(last.2);
    for (runtime, times) in cleanup_times.of(owner) {
        tally.transport.insert((Operation::Cleanup.as_str().to_owned(), runtime), times);
    }
    Ok(tally.finish())
}

impl Tally {
    fn new() -> Self {
        Self {
            open: HashMap::new(),
            created: BTreeMap::new(),
            completed: BTreeMap::new(),
            active: BTreeMap::new(),
            in_review: BTreeMap::new(),
            durations: Histogram::new(&TIMES_MS),
            sizes: Histogram::new(&SIZES),
            patches: Histogram::new(&COUNTS),
            transport: BTreeMap::new(),
        }
    }

    fn take(&mut self, event: &Json) {
        let text = |name: &str| event[name].as_str().unwrap_or_default().to_owned();
        let key = (text("nodeId"), event["iteration"].as_u64().unwrap_or_default());
        let known = self.open.get(&key).map(|open| open.runtime.clone());
        let runtime = known.unwrap_or_else(|| text("runtime"));
        for (operation, ms) in event["transportMs"].as_object().into_iter().flatten() {
            let of = (operation.clone(), runtime.clone());
            let times = self.transport.entry(of).or_insert_with(|| Histogram::new(&TIMES_MS));
            observe(times, ms);
        }
        match event["type"].as_str().unwrap_or_default() {
            "SandboxCreated" => {
                *self.created.entry(text("runtime")).or_default() += 1;
                let open = Open { runtime: text("runtime"), is_in_review: false };
                // A resumed run has no event for the attempt that it gave up.
                if let Some(given_up) = self.open.insert(key, open) {
                    self.complete(given_up.runtime, "cancelled");
                }
            }
            "SandboxShipped" => observe(&mut self.sizes, &event["bundleSizeBytes"]),
            "SandboxBundleReceived" => {
                observe(&mut self.sizes, &event["bundleSizeBytes"]);
                observe(&mut self.patches, &event["patchCount"]);
            }
            "SandboxDiffReviewRequested" => self.review(&key, true),
            "SandboxDiffAccepted" | "SandboxDiffRejected" => self.review(&key, false),
            "SandboxCompleted" => {
                observe(&mut self.durations, &event["durationMs"]);
                self.open.remove(&key);
                self.complete(runtime, "finished");
            }
            "SandboxFailed" => {
                self.open.remove(&key);
                self.complete(runtime, "failed");
            }
            _ => {}
        }
    }

    fn review(&mut self, key: &(String, u64), is_in_review: bool) {
        if let Some(open) = self.open.get_mut(key) {
            open.is_in_review = is_in_review;
        }
    }

    fn complete(&mut self, runtime: String, status: &'static str) {
        *self.completed.entry((runtime, status)).or_default() += 1;
    }

    /// Counts the sandboxes that a run has left open.
    fn end_run(&mut self, has_ended: bool) {
        for Open { runtime, is_in_review } in std::mem::take(&mut self.open).into_values() {
            if has_ended {
                self.complete(runtime, "cancelled");
            } else {
                let place = if is_in_review { &mut self.in_review } else { &mut self.active };
                *place.entry(runtime).or_default() += 1;
            }
        }
    }

    fn finish(self) -> Measurements {
        let mut all = Report::default();
        let runtime = |runtime| vec![("runtime", runtime)];
        let by_runtime = |counts: BTreeMap<String, u64>| -> Vec<_> {
            counts.into_iter().map(|(name, count)| (runtime(name), plain(count))).collect()
        };
        all.add(
            "sandboxActive",
            ("smithers_sandbox_active", Kind::Gauge),
            "Sandboxes that are being executed",
            by_runtime(self.active),
        );
        all.add(
            "sandboxInReview",
            ("stockade_sandbox_in_review", Kind::Gauge),
            "Sandboxes whose changes wait for a decision",
            by_runtime(self.in_review),
        );
        all.add(
            "sandboxCreatedTotal",
            ("smithers_sandbox_created_total", Kind::Counter),
            "Attempts of sandboxes that were started",
            by_runtime(self.created),
        );
        let completed = self.completed.into_iter().map(|((name, status), count)| {
            (vec![("runtime", name), ("status", status.to_owned())], plain(count))
        });
        all.add(
            "sandboxCompletedTotal",
            ("smithers_sandbox_completed_total", Kind::Counter),
            "Attempts of sandboxes that ended: finished, failed or cancelled",
            completed.collect(),
        );
        for (word, name, help, histogram) in [
            (
                "sandboxDurationMs",
                "smithers_sandbox_duration_ms",
                "Milliseconds from the start of a sandbox to its end, including its review",
                self.durations,
            ),
            (
                "sandboxBundleSizeBytes",
                "smithers_sandbox_bundle_size_bytes",
                "Bytes of request and result bundles",
                self.sizes,
            ),
            (
                "sandboxPatchCount",
                "smithers_sandbox_patch_count",
                "Files that a result changes",
                self.patches,
            ),
        ] {
            all.add(
                word,
                (name, Kind::Histogram),
                help,
                vec![(Vec::new(), distribution(histogram))],
            );
        }
        let transport = self.transport.into_iter().map(|((operation, runtime), histogram)| {
            (vec![("operation", operation), ("runtime", runtime)], distribution(histogram))
        });
        all.add(
            "sandboxTransportDurationMs",
            ("smithers_sandbox_transport_duration_ms", Kind::Histogram),
            "Duration of transport operations in milliseconds: create, ship, execute, collect and cleanup",
            transport.collect(),
        );
        all.0
    }
}

fn observe(histogram: &mut Histogram, value: &Json) {
    if let Some(value) = value.as_f64() {
        histogram.observe(value);
    }
}

const fn plain(value: u64) -> Number {
    Number::Plain { value }
}

const fn distribution(histogram: Histogram) -> Number {
    Number::Histogram(histogram)
}

/// The measurements of a report, in the order in which they are added.
#[derive(Debug, Default)]
struct Report(Measurements);

impl Report {
    /// `word` is upstream's name, and `kind` its kind there; `name` is the name for monitoring
    /// systems.
    fn add(
        &mut self,
        word: &str,
        (name, kind): (&str, Kind),
        help: &str,
        series: Vec<(Vec<(&str, String)>, Number)>,
    ) {
        let one = |(labels, number): (Vec<(&str, String)>, Number)| {
            let labels = labels.into_iter().map(|(name, value)| (name.to_owned(), value));
            Series { labels: labels.collect(), number }
        };
        let (name, help) = (name.to_owned(), help.to_owned());
        let series = series.into_iter().map(one).collect();
        self.0.0.insert(word.to_owned(), Measurement { name, help, kind, series });
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn event(kind: &str, node: &str, more: &Json) -> Json {
        let mut event = json!({ "type": kind, "nodeId": node, "iteration": 0 });
        event.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        event
    }

    fn series(report: &Measurements, word: &str) -> Json {
        json!(report.0[word].series)
    }

    #[test]
    fn every_try_is_counted_once_however_it_ended() {
        let mut tally = Tally::new();
        let native = json!({ "runtime": "native" });
        let done = json!({ "runtime": "native", "durationMs": 40,
            "transportMs": { "cleanup": 2.5, "execute": 31 } });
        for (kind, node, more) in [
            ("SandboxCreated", "a", &native),
            ("SandboxShipped", "a", &json!({ "bundleSizeBytes": 2000 })),
            ("SandboxBundleReceived", "a", &json!({ "bundleSizeBytes": 10, "patchCount": 2 })),
            ("SandboxDiffReviewRequested", "a", &json!({})),
            ("SandboxDiffAccepted", "a", &json!({})),
            ("SandboxCompleted", "a", &done),
            ("SandboxCreated", "b", &native),
            ("SandboxFailed", "b", &native),
            // The limit was reached, so no sandbox was created.
            ("SandboxFailed", "c", &json!({ "runtime": "p" })),
            // A run that was cancelled and resumed.
            ("SandboxCreated", "d", &native),
            ("SandboxCreated", "d", &native),
        ] {
            tally.take(&event(kind, node, more));
        }
        tally.end_run(false);
        for (kind, node) in [("SandboxCreated", "e"), ("SandboxDiffReviewRequested", "e")] {
            tally.take(&event(kind, node, &native));
        }
        tally.end_run(false);
        tally.take(&event("SandboxCreated", "f", &native));
        tally.end_run(true);
        let report = tally.finish();
        let of = |count: u64| json!([{ "labels": { "runtime": "native" }, "value": count }]);
        assert_eq!(series(&report, "sandboxCreatedTotal"), of(6));
        assert_eq!(series(&report, "sandboxActive"), of(1));
        assert_eq!(series(&report, "sandboxInReview"), of(1));
        let completed = |runtime: &str, status: &str, count: u64| json!({ "labels": { "runtime": runtime, "status": status }, "value": count });
        assert_eq!(
            series(&report, "sandboxCompletedTotal"),
            json!([
                completed("native", "cancelled", 2),
                completed("native", "failed", 1),
                completed("native", "finished", 1),
                completed("p", "failed", 1),
            ])
        );
        let sizes = &series(&report, "sandboxBundleSizeBytes")[0];
        assert_eq!((&sizes["count"], &sizes["sum"]), (&json!(2), &json!(2010.0)));
        let transport = series(&report, "sandboxTransportDurationMs");
        assert_eq!(transport[0]["labels"], json!({ "operation": "cleanup", "runtime": "native" }));
        assert_eq!(transport[1]["sum"], json!(31.0));
        assert_eq!(transport.as_array().unwrap().len(), 2);
    }
}
