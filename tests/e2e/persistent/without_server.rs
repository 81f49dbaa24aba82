//! Features beside the server: `--in-process`, which needs no server, completions and manual pages.

use std::fs;

use super::{call, create, refused, sh, state};
use crate::daemons::servers;
use crate::harness::World;

fn a_command_can_do_without_a_server(world: &World) {
    let made = call(world, &["create", "--in-process"]);
    made.succeeds();
    let id = made.stdout.trim_end();
    assert!(servers(&world.data()).is_empty(), "there is a server");
    let words = ["exec", "--in-process", id, "--", "sh", "-c", "cat; echo kept > /tmp/f; exit 5"];
    let ran = world.stockade(&words).input("typed\n").finish();
    ran.ends_with(5);
    assert_eq!(ran.stdout, "typed\n", "{ran}");
    assert_eq!(call(world, &["ls", "-q", "--in-process"]).stdout, format!("{id}\n"));
    assert!(servers(&world.data()).is_empty(), "there is a server");
    // A server takes over what was created without one, and then it alone uses the directory.
    assert_eq!(sh(world, id, "cat /tmp/f").stdout, "kept\n");
    let second = call(world, &["ls", "--in-process"]);
    refused(&second, 1, "CONFLICT");
    assert!(second.stderr.contains("--in-process"), "{second}");
    assert_eq!(state(world, id), "running");
    create(world, &[]);
}

fn completions_are_ones_of_the_shell(world: &World) {
    for shell in ["bash", "zsh", "fish"] {
        let printed = call(world, &["completions", shell]);
        printed.succeeds();
        assert!(printed.stdout.contains("snapshots"), "{shell}: {printed}");
        let path = world.path("completions");
        fs::write(&path, &printed.stdout).unwrap();
        if std::path::Path::new("/usr/bin").join(shell).exists() {
            let path = path.to_str().unwrap();
            let program = std::path::Path::new("/usr/bin").join(shell);
            world.on_host(&program, &["-n", path]).finish().succeeds();
        }
    }
    let offered = "_init_completion() { :; }; . \"$0\"; COMP_WORDS=(stockade sna); \
        COMP_CWORD=1; _stockade stockade sna stockade; echo ${COMPREPLY[*]}";
    let script = world.path("bash");
    world.plant(&script, &call(world, &["completions", "bash"]).stdout);
    let words = ["-c", offered, script.to_str().unwrap()];
    let bash = world.on_host("/bin/bash".as_ref(), &words).finish();
    assert_eq!(bash.stdout, "snapshot snapshots\n", "{bash}");
    call(world, &["completions", "no-shell"]).ends_with(2);
}

fn manual_pages_name_every_option(world: &World) {
    let page = call(world, &["man"]);
    page.succeeds();
    assert!(page.stdout.starts_with(".ie") && page.stdout.contains(".TH stockade 1"), "{page}");
    assert!(page.stdout.contains("snapshots"), "{page}");
    let page = call(world, &["man", "create"]);
    page.succeeds();
    assert!(page.stdout.contains(".TH stockade-create 1"), "{page}");
    for part in ["\\-\\-workspace", "Create a persistent sandbox"] {
        assert!(page.stdout.contains(part), "{part}: {page}");
    }
    let page = call(world, &["man", "snippet", "check"]);
    page.succeeds();
    assert!(page.stdout.contains(".TH stockade-snippet-check 1"), "{page}");
    call(world, &["man", "no-such-command"]).ends_with(2);
    call(world, &["man", "snippet", "no-such-command"]).ends_with(2);
}

as_root_and_as_user![
    a_command_can_do_without_a_server,
    completions_are_ones_of_the_shell,
    manual_pages_name_every_option,
];
