//! What a person has typed and cannot be meant: it is said what, and what to type instead.

use crate::call::Outcome;
use crate::harness::World;

fn call(world: &World, words: &[&str]) -> Outcome {
    world.stockade(words).finish()
}

#[track_caller]
fn says(outcome: &Outcome, code: i32, texts: &[&str]) {
    outcome.ends_with(code);
    for text in texts {
        assert!(outcome.stderr.contains(text), "not {text:?}: {outcome}");
    }
}

fn a_name_that_nothing_has(world: &World) {
    // One that is searched for, and one in the form of an id, which is not.
    for name in ["typo", "0123456789ab"] {
        let nothing = format!("there is no run and no sandbox {name} [NOT_FOUND]");
        for command in ["resume", "events"] {
            says(&call(world, &[command, name]), 4, &[&nothing, "hint: stockade runs"]);
        }
    }
}

as_root_and_as_user![a_name_that_nothing_has];
