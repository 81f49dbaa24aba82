//! From what contenders gave in each round to a table with ratios and goals. Every benchmark uses
//! it, so that a ratio means the same in each; what is measured belongs to the benchmark.
//!
//! The contenders of a benchmark take turns, so that whatever else the machine does hits them
//! alike: only ratios between contenders of the same run say something on another machine.

mod report;
mod series;

pub use report::{Report, Unit};
pub use series::{Goal, Series};
