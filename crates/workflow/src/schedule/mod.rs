//! Plans what is next, from a rendering and from what was executed. Nothing is executed here.

mod index;
mod key;
mod plan;
#[cfg(test)]
mod tests;

pub use index::Index;
pub use key::Key;
pub use plan::{LoopState, LoopStep, Phase, Plan, Progress, plan};
