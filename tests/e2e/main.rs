//! The end-to-end tests: the built `stockade` binary, run as a person would run
//! it, as root and as an ordinary user.
//!
//! `escape/` attacks from inside a sandbox with the `probe` program; `held/` is about
//! sandboxes that live on and the server behind them; the other files hold the promises of
//! the command line. Nothing here calls into the product's crates: what is tested is what
//! is shipped.
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
