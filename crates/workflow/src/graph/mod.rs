//! The model of a workflow, as one rendering defines it. `tree` and `read` make it from a rendering of
//! TSX, and a workflow in Rust builds it with the functions of `build`. [`check`](check::check) rejects
//! graphs that can never be executed. Nothing is executed here.

mod agent;
mod budget;
mod build;
mod cache;
mod check;
mod fault;
mod function;
mod limits;
mod model;
mod nearest;
mod node;
mod read;
mod retry;
mod sandbox;
mod tree;
mod wait;

#[cfg(test)]
mod tests;

pub use agent::{Command, Program, Variables};
pub use budget::{Budget, Budgets, Exceeded};
pub use cache::{Cache, Depends, Scope};
pub use check::{check, unknown};
pub use fault::{Fault, SourceLocation};
pub use function::Function;
pub use limits::ToolLimits;
pub use model::{Graph, Group, Loop, Node, Order, Output, Prompt, Task, Work, Worktree};
pub use node::PortNode;
pub use retry::{Growth, Retry};
pub(crate) use sandbox::unknown_egress;
pub use sandbox::{OnLimit, Sandbox, Volume};
pub use wait::{Answer, Approval, Event, OnDeny, OnTimeout, Timer};

pub(crate) use nearest::{nearest, unknown_field};
pub(crate) use tree::{Error, RenderUpdate, Tree};
