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

mod beginning;
mod bundle;
mod call;
mod crash;
mod credentials;
mod doctor;
mod documents;
mod doors;
mod escape;
mod held;
mod host;
mod limits;
mod mcp;
mod nested;
mod nesting;
mod network;
mod output;
mod programs;
mod providers;
mod run;
mod sandbox;
mod seed_types;
mod seeds;
mod servants;
mod snippet;
mod tools;
mod tty;
mod waits;
mod within;
mod words;
mod workflow;
