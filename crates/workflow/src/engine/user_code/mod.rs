//! The user's code of a run, in any supported language: a workflow file in its realm (`script`), or a
//! workflow in Rust (`rust`). It renders the graph, and executes the functions and providers that tasks
//! refer to.

mod attempt;
mod calls;
mod code;
mod models;
mod provider;
mod rust;
mod script;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;

pub(crate) use attempt::attempt;
pub(crate) use calls::{Interface, Rendering, TaskCall};
pub(crate) use code::UserCode;
pub(crate) use models::ModelHost;
pub(crate) use provider::{ActiveGuard, ChildResult, ProviderHost, ProviderName};
