//! What must not be stored in the data directory: variables, inputs and contents that the test
//! passes to each command that carries one.

use std::path::PathBuf;

use super::{call, create, sh};
use crate::daemons::wait_until;
use crate::harness::World;

/// The files of the data directory that contain a text, except for the sandbox's own files.
fn holders(world: &World, token: &str) -> Vec<PathBuf> {
    let mut found = world.files_with(&world.data(), token);
    found.retain(|path| !path.components().any(|part| part.as_os_str() == "layers"));
    found
}

fn nothing_that_is_handed_to_a_command_is_kept(world: &World) {
    let id = create(world, &[]);
    let nowhere = |token: &str, what: &str| {
        let found = holders(world, token);
        assert!(found.is_empty(), "{what} is in {found:?}");
    };
    for how in [&[][..], &["--json"], &["--detach"]] {
        let test = "test $(printenv TOKEN | wc -c) = 17";
        let command = ["--env", "TOKEN=pl4nted-variable", id.as_str(), "--", "sh", "-c", test];
        let outcome = call(world, &[&["exec"], how, &command].concat());
        outcome.succeeds();
        if how == ["--detach"] {
            call(world, &["logs", "-f", outcome.stdout.trim()]).succeeds();
        }
        nowhere("pl4nted-variable", &format!("a variable of exec {how:?}"));
    }
    let words = ["exec", id.as_str(), "--", "sh", "-c", "test $(wc -c) = 13"];
    world.stockade(&words).input("pl4nted-input").finish().succeeds();
    nowhere("pl4nted-input", "the input of a command");
    let file = world.outside().join("planted");
    world.plant(&file, "pl4nted-content");
    call(world, &["cp", file.to_str().unwrap(), &format!("{id}:/tmp/planted")]).succeeds();
    assert_eq!(sh(world, &id, "wc -c < /tmp/planted").stdout.trim(), "15");
    nowhere("pl4nted-content", "a file that was copied");
    let arguments = r#"{"path": "/tmp/tool", "content": "pl4nted-argument"}"#;
    call(world, &["tool", "run", &id, "file_write", arguments]).succeeds();
    nowhere("pl4nted-argument", "what a tool was called with");
    call(world, &["kill", &id]).succeeds();

    // A sandbox's own variables are its configuration, and are stored as long as it can be started.
    let id = create(world, &["--env", "OWN=pl4nted-own"]);
    assert_eq!(sh(world, &id, "echo $OWN").stdout, "pl4nted-own\n");
    call(world, &["kill", &id]).succeeds();
    wait_until("its files are gone", || {
        holders(world, "pl4nted-own")
            .iter()
            .all(|path| !path.starts_with(world.data().join("runtime")))
    });
}

as_root_and_as_user![nothing_that_is_handed_to_a_command_is_kept];
