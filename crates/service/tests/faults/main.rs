//! Failures, races, hangs and leaks: each ends in a reported state, and nothing is lost.
#![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

#[path = "../harness/mod.rs"]
mod harness;
mod operations;
mod owners;
mod races;
mod records;
mod runtimes;
mod secrets;
mod time;

use harness::{Harness, caller};
use stockade_api::{ById, Problem, dispatch};
use stockade_core::SandboxId;
use stockade_runtime::Error;

fn by_id(id: &SandboxId) -> ById {
    ById { id: id.clone() }
}

fn unreachable() -> Error {
    let source = std::io::ErrorKind::ConnectionRefused.into();
    Error::Unreachable { what: "the keeper".to_owned(), source }
}

/// Requests an operation by its name.
async fn call(
    harness: &Harness,
    operation: &'static str,
    request: serde_json::Value,
) -> Result<serde_json::Value, Problem> {
    let request = serde_json::to_vec(&request).unwrap();
    let response = harness.run(move |service| async move {
        dispatch(&service, &caller("u1"), operation, &request).await
    });
    response.await
}
