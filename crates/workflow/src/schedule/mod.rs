//! Plans the next tasks, from a rendering and from the states of earlier tasks. Nothing is executed
//! here.

mod index;
mod key;
mod plan;
#[cfg(test)]
mod tests;

pub use index::Index;
pub use key::Key;
pub use plan::{LoopState, LoopStep, Phase, Plan, Progress, plan};
