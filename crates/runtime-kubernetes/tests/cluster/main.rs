//! The runtime under the suite of all backends and under faults: against a double of a cluster, whose pods are real
//! processes, and against a real API server where `STOCKADE_TEST_KUBECONFIG` names one.
#![expect(clippy::unwrap_used, clippy::panic, reason = "tests and their helpers fail by panicking")]

mod agents;
mod copies;
mod double;
mod doubled;
mod faults;
mod inside;
mod manifests;
mod real;
mod workflows;
