//! What the tests of several crates share: finding the programs that a test starts.
//!
//! Nothing here knows the product, and nothing of the product may use this.
#![expect(clippy::panic, reason = "helpers of tests fail by panicking, as tests do")]

mod programs;

pub use programs::{DIRECTORY, program};
