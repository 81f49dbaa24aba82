//! The table `run_sandboxes`: one row for each `<Sandbox>` and iteration of a run, with its last
//! attempt (upstream: "records … in the local database").

mod changes;
mod queries;
mod rows;

pub(crate) use changes::{
    begin, decide, end, heartbeat, receive, request_review, resume, ship, wait,
};
pub(crate) use queries::{
    find, has_nested_review, list_info, list_nested, list_open, names_of_open_provider_tries,
    names_of_waiting, pauses,
};
pub(crate) use rows::{NestedSandbox, OpenSandbox, Pause, Review, SandboxRow, Stage};
