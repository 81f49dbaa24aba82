//! Tests of applying: which entries a selection includes, what is refused, the resulting
//! project, and that no crash leaves a project in an intermediate state.

#![expect(clippy::print_stderr, reason = "tests tell why they skip and how long they took")]

mod crash;
mod fixture;
mod outcome;
mod refusal;
mod selection;
