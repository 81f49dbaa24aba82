//! The guarantees of the engine on every store. Each file tests one kind of guarantee; `place`
//! opens the store for the tests, and is the only file that depends on its type.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "helpers of tests fail by panicking, as tests do"
)]

mod cancellation;
mod children;
mod collection;
mod fencing;
mod messages;
mod mortal;
mod place;
mod places;
mod queues;
mod replay;
mod steps;
mod streams;
mod timers;
mod workflows;
mod world;
