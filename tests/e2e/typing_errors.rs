//! Invalid arguments: the error names the mistake and what to type instead.

use crate::call::Outcome;
use crate::harness::World;

fn call(world: &World, words: &[&str]) -> Outcome {
    world.stockade(words).finish()
}

#[track_caller]
fn assert_message(outcome: &Outcome, code: i32, texts: &[&str]) {
    outcome.ends_with(code);
    for text in texts {
        assert!(outcome.stderr.contains(text), "not {text:?}: {outcome}");
    }
}

fn a_name_that_nothing_has(world: &World) {
    // A name that is searched for, and one in the form of an id, which is not.
    for name in ["typo", "0123456789ab"] {
        let nothing = format!("there is no workflow run and no sandbox {name} [NOT_FOUND]");
        for command in ["resume", "events"] {
            assert_message(&call(world, &[command, name]), 4, &[&nothing, "hint: stockade runs"]);
        }
    }
}

fn paths_that_cannot_be_meant(world: &World) {
    let relative = world.stockade(&["ls"]).env("STOCKADE_DATA_DIR", "below").finish();
    let whole = world.project.join("below");
    let whole = format!("export STOCKADE_DATA_DIR={}", whole.display());
    assert_message(
        &relative,
        2,
        &["STOCKADE_DATA_DIR is below, which is not an absolute path", &whole],
    );
    assert_message(&call(world, &["up", "src"]), 4, &["src is a directory"]);
    assert_message(&call(world, &["up", "nowhere.tsx"]), 4, &["there is no file nowhere.tsx"]);
    let copy = call(world, &["cp", "a.txt", "box:file"]);
    assert_message(&copy, 1, &["there is no sandbox box"]);
    assert_message(&call(world, &["cp", "a.txt", "b.txt"]), 2, &["must be on different sides"]);
}

fn a_paused_sandbox_can_be_resumed(world: &World) {
    call(world, &["create", "--id", "box"]).succeeds();
    call(world, &["pause", "box"]).succeeds();
    let refused = call(world, &["exec", "box", "--", "true"]);
    assert_message(&refused, 125, &["the sandbox is paused", "hint: stockade resume box"]);
    call(world, &["resume", "box"]).succeeds();
    call(world, &["exec", "box", "--", "true"]).succeeds();
}

as_root_and_as_user![
    a_name_that_nothing_has,
    paths_that_cannot_be_meant,
    a_paused_sandbox_can_be_resumed,
];
