//! The command line as users of other tools type it, and hints that work when they are pasted.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{PermissionsExt, symlink};

use crate::harness::World;

as_root_and_as_user! {
    variables_are_set_passed_on_and_read_from_a_file,
    arguments_need_not_be_text,
    a_hint_for_a_missing_program_names_everything_at_once,
    a_sandbox_says_that_it_is_one,
    a_command_that_outlives_its_sandbox_learns_why,
    a_diff_has_names_and_colours_on_request,
    codes_are_explained_and_the_data_directory_is_shown,
}

fn variables_are_set_passed_on_and_read_from_a_file(world: &World) {
    let file = world.write("variables", "# a comment\nFILE=of the file\nBOTH=file\nMINE\n");
    let file = file.to_str().unwrap();
    let script = "echo $FILE,$BOTH,$MINE,$NOT_SET";
    let flags = ["--env-file", file, "-e", "BOTH=flag", "-e", "NOT_SET"];
    let run = [&["run", "--discard"], &flags[..], &["--", "sh", "-c", script]].concat();
    let expected = "of the file,flag,passed on,\n";
    let outcome = world.stockade(&run).env("MINE", "passed on").finish();
    assert_eq!(outcome.succeeds().stdout, expected);
    let create = [&["create", "--id", "c", "--ttl", "1d"], &flags[..]].concat();
    world.stockade(&create).env("MINE", "passed on").finish().succeeds();
    let exec = ["exec", "c", "--", "sh", "-c", script];
    assert_eq!(world.stockade(&exec).finish().succeeds().stdout, expected);
    let exec =
        [&["exec", "-w", "/tmp"], &flags[..], &["c", "sh", "-c", "pwd; echo $BOTH"]].concat();
    assert_eq!(world.stockade(&exec).finish().succeeds().stdout, "/tmp\nflag\n");
    world.stockade(&["renew", "c", "2d"]).finish().succeeds();
    world.stockade(&["renew", "c", "none"]).finish().succeeds();
    let shown = world.stockade(&["show", "c", "--json"]).finish().json();
    assert!(shown["expiresAt"].is_null(), "{shown}");
}

fn arguments_need_not_be_text(world: &World) {
    world.stockade(&["create", "--id", "b"]).finish().succeeds();
    let bytes = |text: &'static [u8]| OsStr::from_bytes(text);
    let word = |text: &'static str| OsStr::new(text);
    let made = [word("exec"), word("b"), word("--"), word("mkdir"), bytes(b"/tmp/\xff")];
    world.stockade(&made).finish().succeeds();
    let place = [word("exec"), word("-w"), bytes(b"/tmp/\xff"), word("b")];
    let value = [word("-e"), bytes(b"V=\xfe")];
    let script =
        "pwd | od -An -tx1; printf %s \"$V\" | od -An -tx1; printf %s \"$1\" | od -An -tx1";
    let tail = [word("--"), word("sh"), word("-c"), word(script), word("sh"), bytes(b"\xfd")];
    let line = [&place[..], &tail].concat();
    let line = [&line[..1], &value, &line[1..]].concat();
    let outcome = world.stockade(&line).finish();
    let lines: Vec<_> = outcome.succeeds().stdout.lines().map(str::trim).collect();
    assert_eq!(lines, ["2f 74 6d 70 2f ff 0a", "fe", "fd"], "{outcome}");
    let run = [word("run"), word("--discard"), value[0], value[1]];
    let outcome = world.stockade(&[&run[..], &tail].concat()).finish();
    assert!(outcome.succeeds().stdout.contains("fe"), "{outcome}");
}

fn a_hint_for_a_missing_program_names_everything_at_once(world: &World) {
    let home = world.home();
    let programs = home.join(".local/bin");
    let tool = home.join(".local/share/tool/v1");
    let runner = home.join("runners/v2/bin");
    for directory in [&programs, &tool, &runner] {
        std::fs::create_dir_all(directory).unwrap();
    }
    std::fs::write(tool.join("tool"), "#!/usr/bin/env runner\necho 'it works'\n").unwrap();
    std::fs::write(runner.join("runner"), "#!/bin/sh\nexec sh \"$@\"\n").unwrap();
    for file in [tool.join("tool"), runner.join("runner")] {
        std::fs::set_permissions(file, PermissionsExt::from_mode(0o755)).unwrap();
    }
    symlink(tool.join("tool"), programs.join("mytool")).unwrap();
    world.chown_tree(&home, |_| world.identity.uid());
    let path = format!("{}:{}:/usr/bin:/bin", programs.display(), runner.display());
    let run = |flags: &[String]| {
        let words = ["run", "--discard"].map(str::to_owned).into_iter().chain(flags.to_vec());
        let words: Vec<_> = words.chain(["--".to_owned(), "mytool".to_owned()]).collect();
        world.stockade(&words).env("PATH", &path).finish()
    };
    let refused = run(&[]);
    let hint = refused.stderr.split_once("; add ").expect(&refused.stderr).1;
    let flags: Vec<_> = hint.lines().next().unwrap().split(' ').map(str::to_owned).collect();
    let outcome = run(&flags);
    assert_eq!(outcome.succeeds().stdout, "it works\n");
}

fn a_sandbox_says_that_it_is_one(world: &World) {
    let mount = format!("{}:/s/stockade:ro", world.binary().display());
    let outcome =
        world.run(&["--discard", "--mount", &mount], &["/s/stockade", "run", "--", "true"]);
    assert!(outcome.stderr.contains("runs inside a sandbox already"), "{outcome}");
    assert!(outcome.stderr.contains("hint: run the command itself"), "{outcome}");
}

fn a_command_that_outlives_its_sandbox_learns_why(world: &World) {
    world.stockade(&["create", "--id", "e", "--ttl", "2s"]).finish().succeeds();
    let outcome = world.stockade(&["exec", "e", "--", "sleep", "60"]).finish();
    assert!(outcome.stderr.contains("the time to live of the sandbox (2 s)"), "{outcome}");
    assert!(outcome.stderr.contains("stockade renew e"), "{outcome}");
}

fn a_diff_has_names_and_colours_on_request(world: &World) {
    world.review("echo two > a.txt; echo b > b.txt").succeeds();
    let diff = |flags: &[&str]| world.stockade(&[&["diff", "latest"], flags].concat()).finish();
    assert_eq!(diff(&["--name-only"]).succeeds().stdout, "a.txt\nb.txt\n");
    assert!(diff(&["--color", "always"]).succeeds().stdout.contains("\x1b[32m+two"));
    for flags in [&[][..], &["--color", "never"], &["--color", "auto"]] {
        assert!(!diff(flags).succeeds().stdout.contains('\x1b'));
    }
}

fn codes_are_explained_and_the_data_directory_is_shown(world: &World) {
    let explained = world.stockade(&["explain", "bundle_conflict"]).finish();
    assert!(explained.succeeds().stdout.starts_with("BUNDLE_CONFLICT\n"), "{explained}");
    assert!(world.stockade(&["explain"]).finish().succeeds().stdout.contains("STORAGE_FULL"));
    world.review("echo two > a.txt").succeeds();
    let data = world.data();
    let data = data.to_str().unwrap();
    let shown = world.stockade(&["df"]).finish();
    assert!(shown.succeeds().stdout.starts_with(data), "{shown}");
    assert!(shown.stdout.contains("bundles"), "{shown}");
    assert!(world.stockade(&["doctor"]).finish().stdout.contains(data));
    let help = world.stockade(&["help"]).finish();
    assert!(help.succeeds().stdout.contains("STOCKADE_DATA_DIR"), "{help}");
    world.stockade(&["help", "run"]).finish().succeeds();
    world.stockade(&["man", "tool", "run"]).finish().succeeds();
}
