//! What the tests of several crates share: finding the programs that a test starts,
//! how a program is hardened, what a test needs of its runner, and saying that a test did not run.
//!
//! Nothing here knows the product, and nothing of the product may use this.
#![expect(clippy::panic, reason = "helpers of tests fail by panicking, as tests do")]

mod elf;
mod nextest;
mod programs;
mod skips;

pub use elf::Elf;
pub use nextest::require_nextest;
pub use programs::{DIRECTORY, program};
pub use skips::{skip, skipped};
