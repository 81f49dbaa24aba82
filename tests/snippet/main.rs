//! Snippets in workers: how calls end, what workers can access, and what is left of them.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests fail by panicking, as tests do"
)]

mod attacks;
mod fetches;
mod lifecycle;
mod support;
