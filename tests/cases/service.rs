//! The cases of durable, owned sandboxes: on a runtime in memory and a store in a temporary
//! directory.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests fail by panicking, as tests do"
)]

#[path = "../../crates/service/tests/harness/mod.rs"]
mod harness;
#[path = "service/lifecycle.rs"]
mod lifecycle;
#[path = "service/orbiter.rs"]
mod orbiter;
#[path = "service/owners.rs"]
mod owners;
#[path = "service/rules.rs"]
mod rules;
#[path = "service/states.rs"]
mod states;
mod support;
#[path = "service/tools.rs"]
mod tools;

use support::{Case, drive};

/// Runs the cases of a file that are given to a test, each with an async runtime of its own.
fn drive_async<F: Future<Output = Result<(), String>>>(
    test: &str,
    file: &str,
    driver: impl Fn(Case) -> F,
) {
    drive(test, file, |case| {
        let runtime = tokio::runtime::Builder::new_multi_thread();
        let runtime = { runtime }.worker_threads(1).enable_all().build().unwrap();
        runtime.block_on(driver(case.clone()))
    });
}

#[test]
fn ownership() {
    drive_async("tests/cases/service.rs::ownership", "ownership.json", owners::case);
}

#[test]
fn fireflow_lifecycle() {
    let test = "tests/cases/service.rs::fireflow_lifecycle";
    drive_async(test, "fireflow_lifecycle.json", lifecycle::case);
}

#[test]
fn orbiter_states() {
    drive("tests/cases/service.rs::orbiter_states", "state_machine.json", states::case);
}

#[test]
fn orbiter_objects() {
    drive_async("tests/cases/service.rs::orbiter_objects", "state_machine.json", orbiter::case);
}

#[test]
fn orbiter_tools() {
    drive_async("tests/cases/service.rs::orbiter_tools", "orbiter_tools.json", tools::case);
}

#[test]
fn access_rules() {
    drive_async("tests/cases/service.rs::access_rules", "access_rules.json", rules::case);
}

/// A code as the cases write it.
fn code(problem: &stockade_api::Problem) -> String {
    problem.code.as_str().to_lowercase()
}
