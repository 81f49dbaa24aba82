//! What the tests of several crates share: finding the programs that a test starts, checking how a
//! program is hardened, checking the test runner, recording that a test did not run, and comparing
//! texts with files.
//!
//! Nothing here depends on the product, and the product must not use this.
#![expect(clippy::panic, reason = "helpers of tests fail by panicking, as tests do")]

mod elf;
mod engine;
mod nextest;
mod postgres;
mod programs;
mod skips;
#[cfg(feature = "snapshots")]
mod snapshots;

pub use elf::Elf;
pub use engine::Engine;
pub use nextest::require_nextest;
pub use postgres::{Postgres, postgres_instead_of};
pub use programs::{DIRECTORY, program};
pub use skips::{skip, skipped};
#[cfg(feature = "snapshots")]
pub use snapshots::{Snapshots, assert_snapshot};
