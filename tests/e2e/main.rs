//! The end-to-end tests: the built `stockade` binary, run as a user would run it, as root and as an
//! ordinary user.
//!
//! `escape/` attacks from inside a sandbox with the `probe` program; `held/` tests persistent
//! sandboxes and the server that manages them; the other files test the promises of the command
//! line. Nothing here calls the product's crates: the tests run the programs that are shipped.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "helpers of tests fail by panicking, as tests do"
)]

#[macro_use]
mod harness;

mod allowed_hosts;
mod audit;
mod authorities;
mod backups;
mod bundle;
mod call;
mod canary;
#[path = "../cases/support.rs"]
mod cases;
mod client_libraries;
mod codeplane;
mod command_line;
mod commits;
mod container_examples;
mod containers;
mod contract_rows;
mod crash;
mod credentials;
mod daemons;
mod data_directory;
mod decide;
mod devcontainers;
mod difftool;
mod directory_renames;
mod docker;
mod doctor;
mod documents;
mod early_end;
mod escape;
mod fireflow;
mod first_requests;
mod full_disk;
mod hints;
mod host;
mod images;
mod inside_sandbox;
mod kept_files;
mod killed_creations;
mod limits;
mod mcp;
mod models;
mod nested_sandboxes;
mod network;
mod no_network;
mod output;
mod persistent;
mod policies;
mod private_base;
mod profiles;
mod programs;
mod projects;
mod providers;
mod references;
mod refused_calls;
mod registry;
mod remote_providers;
mod run;
mod run_and_create;
mod run_held;
mod sandbox;
mod sandbox_patches;
mod served;
mod small_internet;
mod smithers_pages;
mod smithers_types;
mod snapshots;
mod snippet;
mod ssh_agent;
mod sync;
mod toolchains;
mod tools;
mod tty;
mod typing_errors;
mod upstream_proxy;
mod volumes;
mod waiting_children;
mod workflow;
