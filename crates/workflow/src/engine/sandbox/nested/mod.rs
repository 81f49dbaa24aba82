//! Nested sandboxes (seed 001). No sandbox can be made in a sandbox: a child that comes to a `<Sandbox>`
//! writes a request and waits (`guest`). The host reads the request as untrusted input (`request`),
//! grants no more than the enclosing sandbox has (`grant`), makes the nested one beside it on a copy of
//! its workspace (`inner_sandbox`, `workspace_copy`), and hands the result back (`result`). The changes
//! are made by the child in the enclosing workspace (`changes`), and nowhere else. `host` is what the
//! host does while a child waits, and `cleanup` how nested sandboxes end.

mod changes;
mod cleanup;
mod guest;
mod host;
mod inner_sandbox;
mod request;
mod result;
mod workspace_copy;

pub(crate) use cleanup::NestedCleanup;
pub(super) use host::ChildStep;
