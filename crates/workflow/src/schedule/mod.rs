//! Plans what is next, from what a rendering says and what was done. Nothing is executed here.

mod index;
mod key;
mod plan;
#[cfg(test)]
mod tests;

pub use index::Index;
pub use key::Key;
pub use plan::{LoopState, LoopStep, Phase, Plan, Progress, plan};
