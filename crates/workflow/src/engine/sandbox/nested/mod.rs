//! Nested sandboxes. A process in a sandbox cannot create another sandbox: a child that
//! reaches a `<Sandbox>` writes a request and waits (`guest`). The host reads the request as untrusted
//! input (`request`), grants no more than the enclosing sandbox has (`grant`), creates the nested one
//! beside it on a copy of its workspace (`inner_sandbox`, `workspace_copy`), and hands the result back
//! (`result`). The child applies the changes to the enclosing workspace (`changes`), and nowhere else.
//! `host` is the work of the host while a child waits, and `cleanup` ends nested sandboxes.

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
