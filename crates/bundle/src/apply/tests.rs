//! Tests of applying: what a selection takes, what is refused, what comes out, and that no
//! crash leaves a project in the middle.

#![expect(clippy::print_stderr, reason = "tests tell why they skip and how long they took")]

mod crash;
mod fixture;
mod outcome;
mod refusal;
mod selection;
