//! A `<Sandbox>` that a provider executes: an object of the workflow file, or a program of the user.
//!
//! Reading order: `run` (the steps), `call` (one call of a provider, with its time limits), `result`
//! (its output), `external` (providers that are programs).

mod bundle_copy;
mod call;
mod external;
mod result;
mod run;
