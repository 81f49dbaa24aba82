//! Persistent sandboxes: the commands on them, and the local server that executes their requests.
//!
//! `lifecycle` follows a sandbox from its creation to its end, `kept` ends sandboxes in every way and
//! looks for what is lost, `exec` runs commands in it, `live_commands` lists, ends and joins them,
//! `copy` moves files, `bundles` decides about changes and `collect` collects them,
//! `copied_workspace` tests hosts without overlays, `network` connects to what the policy allows,
//! `ports` leads from the host inside, `credentials` is about `--secret`, `secrets` looks for values that must not be stored, `vault` for those
//! of stored secrets, `ssh_agent` for the agent that lives as long as the sandbox, `server`
//! kills, overloads and deceives the server, `without_server` is about `--in-process`, completions
//! and manual pages, and `words` about ids, answers and names.

mod bundles;
mod collect;
mod copied_workspace;
mod copy;
mod credentials;
mod exec;
mod kept;
mod lifecycle;
mod live_commands;
mod mirror;
mod network;
mod ports;
mod secrets;
mod server;
mod ssh_agent;
mod start_of_workspace;
mod vault;
mod without_server;
mod words;

use serde_json::Value;

use crate::call::Outcome;
use crate::harness::World;

/// Runs `stockade WORDS` until it ends.
fn call(world: &World, words: &[&str]) -> Outcome {
    world.stockade(words).finish()
}

/// Creates a sandbox and returns its id, which is all that is printed as data.
fn create(world: &World, options: &[&str]) -> String {
    let outcome = call(world, &[&["create"], options].concat());
    outcome.succeeds();
    let id = outcome.stdout.trim_end().to_owned();
    assert_eq!(outcome.stdout, format!("{id}\n"), "{outcome}");
    assert!(outcome.stderr.contains(&id), "nothing is said about it: {outcome}");
    id
}

/// Runs a shell script in a sandbox until it ends.
fn sh(world: &World, id: &str, script: &str) -> Outcome {
    call(world, &["exec", id, "--", "sh", "-c", script])
}

/// The description of a sandbox.
fn show(world: &World, id: &str) -> Value {
    let outcome = call(world, &["show", id, "--json"]);
    outcome.succeeds();
    outcome.json()
}

fn state(world: &World, id: &str) -> String {
    show(world, id)["state"].as_str().unwrap().to_owned()
}

/// Stockade refused, with this exit code and this error code.
#[track_caller]
fn refused(outcome: &Outcome, exit: i32, code: &str) {
    outcome.ends_with(exit);
    assert!(outcome.stderr.contains(&format!("[{code}]")), "not {code}: {outcome}");
}
