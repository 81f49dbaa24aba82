//! The help texts of both programs match their snapshots, and every command with `--json` has one of
//! its JSON.

use std::path::Path;

use clap::{ColorChoice, Command};
use stockade_test_support::Snapshots;

use super::Arguments;
use crate::programs::{FRONT, SERVER};

/// One file for each program, and one for each command, with the help of its own commands.
#[test]
fn help_texts_match_their_snapshots() {
    let mut snapshots = Snapshots::new("help");
    let mut all = Arguments::definition(FRONT);
    all.build();
    // Both programs have the same commands.
    for program in [FRONT, SERVER] {
        snapshots.assert(program, &help_of(program, program));
    }
    for command in all.get_subcommands() {
        snapshots.assert(command.get_name(), &help(command));
    }
    snapshots.finish();
}

/// The help of a command and of all commands below it.
fn help(command: &Command) -> String {
    let own = help_of(FRONT, command.get_bin_name().unwrap());
    let below = command.get_subcommands().map(|command| format!("\n{}", help(command)));
    std::iter::once(own).chain(below).collect()
}

/// The output of a command line with `--help`, as on every terminal.
fn help_of(program: &'static str, line: &str) -> String {
    // A line contains `<ID>` where the argument precedes the command.
    let words = line.split(' ').map(|word| if word.starts_with('<') { "id" } else { word });
    let mut definition = Arguments::definition(program).color(ColorChoice::Never).term_width(100);
    let help = definition.try_get_matches_from_mut(words.chain(["--help"])).unwrap_err();
    assert_eq!(help.exit_code(), 0, "{line}: {help}");
    format!("$ {line} --help\n{}", help.render())
}

#[test]
fn every_command_with_json_has_a_snapshot() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/snapshots/json");
    let mut calls = Vec::new();
    for below in std::fs::read_dir(directory).unwrap() {
        for file in std::fs::read_dir(below.unwrap().path()).unwrap() {
            let text = std::fs::read_to_string(file.unwrap().path()).unwrap();
            let call = text.lines().find(|line| line.starts_with("$ "));
            calls.push(format!("{} ", call.unwrap_or_default()));
        }
    }
    let mut all = Arguments::definition(FRONT);
    all.build();
    for command in with_json(&all) {
        let start = format!("$ {command} ");
        let has = calls.iter().any(|call| call.starts_with(&start) && call.contains(" --json "));
        // `debug` is for the developers of Stockade.
        assert!(has || command.starts_with("stockade debug "), "tests/snapshots/json: {command}");
    }
}

/// The commands at and below a command that have `--json`.
fn with_json(command: &Command) -> Vec<String> {
    let has = command.get_arguments().any(|argument| argument.get_id() == "json");
    let own = command.get_bin_name().filter(|_| has).map(str::to_owned);
    own.into_iter().chain(command.get_subcommands().flat_map(with_json)).collect()
}
