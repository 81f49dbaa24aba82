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

fn completions_know_ids(world: &World) {
    let script = world.path("bash");
    world.plant(&script, &call(world, &["completions", "bash"]).stdout);
    let complete = |line: &str| {
        let offered = "_init_completion() { :; }; . \"$0\"; COMP_WORDS=($1 $2); \
            [[ $2 == *' ' ]] && COMP_WORDS+=(''); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); \
            of=$(complete -p stockade | sed 's/.*-F \\([^ ]*\\).*/\\1/'); \
            $of stockade \"${COMP_WORDS[COMP_CWORD]}\" \"${COMP_WORDS[COMP_CWORD-1]}\"; \
            echo ${COMPREPLY[*]}";
        let binary = world.binary();
        let words = ["-c", offered, script.to_str().unwrap(), binary.to_str().unwrap(), line];
        let bash = world.on_host("/bin/bash".as_ref(), &words).finish();
        bash.succeeds();
        bash.stdout.trim_end().to_owned()
    };
    // No server is started only to complete a word.
    assert_eq!(complete("kill web"), "");
    assert!(servers(&world.data()).is_empty(), "there is a server");
    world.review("echo two > a.txt");
    let bundle = world.bundles()[0]["id"].as_str().unwrap()[..12].to_owned();
    assert_eq!(complete(&format!("apply {}", &bundle[..3])), bundle);
    create(world, &["--id", "webby"]);
    create(world, &["--id", "other"]);
    let started = call(world, &["exec", "--detach", "webby", "--", "sleep", "1000"]);
    let command = started.stdout.trim_end();
    call(world, &["snapshot", "other", "--as", "clean"]).succeeds();
    assert_eq!(complete("stop we"), "webby");
    assert_eq!(complete("kill we"), format!("webby {command}"));
    assert_eq!(complete("attach webby/"), command);
    assert_eq!(complete("restore cl"), "clean");
    assert_eq!(complete("snapshots --remove cl"), "clean");
    assert_eq!(complete("cp we"), "webby:/");
    let both = complete("exec --tty ");
    assert!(both.contains("webby") && both.contains("other"), "{both}");
    assert_eq!(complete("exec webby we"), "");
    assert_eq!(complete("exec --env we"), "");
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
    completions_know_ids,
    manual_pages_name_every_option,
];
