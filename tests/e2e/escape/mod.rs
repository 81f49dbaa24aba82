//! The escape suite: each test attacks from inside a sandbox and fails when the attack works.
//! SECURITY.md lists them.
//!
//! A wall is only proven if the attack works without it: wherever it is harmless, the same attack
//! is first made without a sandbox and must succeed there.

mod agents;
mod descriptors;
mod egress;
mod identity;
mod images;
mod kernel;
mod knobs;
mod mounts;
mod network;
mod outlive;
mod paths;
mod processes;
mod project;
mod resources;
mod reviewed;
mod runtimes;
mod secrets;
mod swaps;

use crate::harness::{Identity, World};

/// The users who can carry out an attack without a sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Comparison {
    /// Any user.
    Anyone,
    /// Root only.
    Root,
    /// Any user who has every capability in temporary namespaces.
    Unshared,
    /// No user, or not without harm: the test states the reason.
    None,
}

/// Proves the attack without a sandbox where possible, then expects it to fail in one.
#[track_caller]
fn assert_blocked(world: &World, proof: Comparison, words: &[&str]) {
    let proven = match proof {
        Comparison::Anyone => Some(world.attack_bare(words)),
        Comparison::Root if world.identity == Identity::Root => Some(world.attack_bare(words)),
        Comparison::Unshared => Some(world.attack_unshared(words)),
        Comparison::Root | Comparison::None => None,
    };
    if let Some(outcome) = proven {
        // Attacks on features that this kernel lacks cannot be proven, and need not be.
        let lacking = ["ENOSYS", "1 knobs refused, 1 of them absent"];
        if !lacking.iter().any(|reason| outcome.stdout.contains(reason)) {
            outcome.escaped();
        }
    }
    world.attack(words).is_blocked();
}
