//! The table `run_sandboxes`: one row for each `<Sandbox>` and iteration of a run, with its last
//! attempt (upstream: "records … in the local database").

mod changes;
mod queries;
mod rows;

pub(crate) use changes::{
    decide, end, heartbeat, receive, request_review, resume, ship, start, wait,
};
pub(crate) use queries::{
    find, has_nested_review, list_info, list_nested, list_open, open_provider_attempt_names,
    pauses, waiting_names,
};
pub(crate) use rows::{NestedSandbox, OpenSandbox, Pause, Review, SandboxRow, Stage};
