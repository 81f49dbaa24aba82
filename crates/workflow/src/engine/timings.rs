//! The durations of the operations that create, use and end a sandbox (documentation of
//! `<Sandbox>`, "Delta transport"). The events of an attempt contain these times.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use serde_json::Value;

use crate::sync::lock;

/// One of the operations of upstream's `SandboxTransportService`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Operation {
    /// The sandbox is created.
    Create,
    /// The request is made available to the sandbox.
    Ship,
    /// The child, the command or the provider does its work.
    Execute,
    /// The result is copied to the host.
    Collect,
    /// The sandbox is ended.
    Cleanup,
}

impl Operation {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Ship => "ship",
            Self::Execute => "execute",
            Self::Collect => "collect",
            Self::Cleanup => "cleanup",
        }
    }
}

/// The times of one attempt that are not in an event yet. Its clones share the same state.
#[derive(Debug, Clone, Default)]
pub(crate) struct Timings(Arc<Mutex<BTreeMap<Operation, f64>>>);

impl Timings {
    /// Measures a part of an operation, even if it fails.
    pub(crate) async fn measure<T>(
        &self,
        operation: Operation,
        work: impl Future<Output = T>,
    ) -> T {
        let start = Instant::now();
        let output = work.await;
        *lock(&self.0).entry(operation).or_default() += start.elapsed().as_secs_f64() * 1e3;
        output
    }

    /// Takes the times in milliseconds, by operation; `None` if there are none.
    pub(crate) fn take(&self) -> Option<Value> {
        let times = std::mem::take(&mut *lock(&self.0));
        let rounded = |ms: f64| Value::from((ms * 1e3).round() / 1e3);
        let all = times.into_iter().map(|(it, ms)| (it.as_str().to_owned(), rounded(ms)));
        Some(Value::Object(all.collect()))
            .filter(|all| all.as_object().is_some_and(|it| !it.is_empty()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn each_time_is_taken_once() {
        let timings = Timings::default();
        assert_eq!(timings.take(), None);
        for operation in [Operation::Collect, Operation::Create, Operation::Collect] {
            timings.clone().measure(operation, async {}).await;
        }
        let durations = timings.take().unwrap();
        let names: Vec<&String> = durations.as_object().unwrap().keys().collect();
        assert_eq!(names, ["collect", "create"]);
        assert!(durations["collect"].as_f64().is_some_and(|ms| ms >= 0.0), "{durations}");
        assert_eq!(timings.take(), None);
    }
}
