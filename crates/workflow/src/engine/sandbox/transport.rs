//! How long the operations take by which a sandbox is made, used and ended (seed 000, "Delta
//! transport"). A try's events tell it, so that it is known as long as they are.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use serde_json::Value;

use crate::sync::lock;

/// One of the operations of seed 000's `SandboxTransportService`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Operation {
    /// What executes is made.
    Create,
    /// The request is put where it is found there.
    Ship,
    /// The child, the command or the provider does its work.
    Execute,
    /// The result comes back.
    Collect,
    /// What executed is ended.
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

/// How long the operations of one try took that were not told yet. Its clones are the same.
#[derive(Debug, Clone, Default)]
pub(crate) struct Transport(Arc<Mutex<BTreeMap<Operation, f64>>>);

impl Transport {
    /// Does a part of an operation. One that fails has taken its time as well.
    pub(crate) async fn timed<T>(&self, operation: Operation, work: impl Future<Output = T>) -> T {
        let begun = Instant::now();
        let done = work.await;
        *lock(&self.0).entry(operation).or_default() += begun.elapsed().as_secs_f64() * 1e3;
        done
    }

    /// Milliseconds by operation, if there is something that was not told; from then on it was.
    pub(crate) fn told(&self) -> Option<Value> {
        let times = std::mem::take(&mut *lock(&self.0));
        let rounded = |ms: f64| Value::from((ms * 1e3).round() / 1e3);
        let told = times.into_iter().map(|(it, ms)| (it.as_str().to_owned(), rounded(ms)));
        Some(Value::Object(told.collect()))
            .filter(|told| told.as_object().is_some_and(|it| !it.is_empty()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn each_operation_is_told_once() {
        let transport = Transport::default();
        assert_eq!(transport.told(), None);
        for operation in [Operation::Collect, Operation::Create, Operation::Collect] {
            transport.clone().timed(operation, async {}).await;
        }
        let told = transport.told().unwrap();
        let names: Vec<&String> = told.as_object().unwrap().keys().collect();
        assert_eq!(names, ["collect", "create"]);
        assert!(told["collect"].as_f64().is_some_and(|ms| ms >= 0.0), "{told}");
        assert_eq!(transport.told(), None);
    }
}
