//! One attempt of a `<Sandbox>`: a request bundle is written, a child workflow or a
//! command is executed in a sandbox, its result is validated, its changes are reviewed, and its outputs
//! become the outputs of the task. An attempt that a crash interrupted continues from the stage in its
//! row: finished work is not repeated.
//!
//! Reading order: `attempt` (the data of an attempt), `steps` (what it does, in order), `start` (its
//! row and its request), `local` and `provider` (the two ways to execute it), `collect` (its result),
//! `settle` (its review). `at_server` places the sandboxes of a run at a server elsewhere. `child_wait` handles a child that waits, `nested` the sandboxes that a child
//! requests.

mod at_server;
mod attempt;
mod child_runs;
mod child_wait;
mod collect;
mod directory;
mod enclosing;
mod end;
mod grant;
mod handle;
mod local;
mod nested;
mod provider;
mod recorder;
mod remote;
mod request;
mod result;
mod review;
mod settle;
mod slots;
mod start;
mod steps;
mod tidy;

pub(in crate::engine) use at_server::impossible_node;
pub(in crate::engine) use request::impossible;

pub(crate) use attempt::{AttemptOutcome, SandboxAttempt};
pub(crate) use child_runs::ChildRuns;
pub(crate) use child_wait::WAIT_LEASE;
pub(crate) use enclosing::{EnclosingSandbox, Lineage};
pub(crate) use end::end_all;
pub(crate) use grant::Grant;
pub(crate) use handle::{SandboxHandle, sandbox_id};
pub(crate) use nested::NestedCleanup;
pub(crate) use recorder::{Record, Recorder};
pub(crate) use slots::slots;
pub(crate) use tidy::tidy;
