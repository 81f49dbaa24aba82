//! The help texts of both programs match their snapshots, and every command with `--json` has one of
//! its JSON.

use std::path::Path;

use clap::{ColorChoice, Command, CommandFactory as _};
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

#[test]
fn each_help_starts_as_the_list_of_commands_says() {
    let help = |line: &str| {
        let words = line.split(' ').map(|word| if word.starts_with('<') { "id" } else { word });
        let mut definition = super::help::with_help(Arguments::command(), usize::MAX);
        let help = definition.try_get_matches_from_mut(words.chain(["--help"])).unwrap_err();
        help.render().to_string()
    };
    for command in visible(&whole()) {
        let line = command.get_bin_name().unwrap();
        let (parent, name) = line.rsplit_once(' ').unwrap();
        let own = help(line);
        let listed = format!("  {name} ");
        let list = help(parent);
        let row = list.lines().find(|row| row.starts_with(&listed));
        let about = row.unwrap_or_else(|| panic!("{line} is in no list: {list}"));
        let about = about.strip_prefix(&listed).unwrap().split(" [alias").next().unwrap().trim();
        assert_eq!(own.lines().next(), Some(about), "{line}");
    }
}

/// All commands below this one that are not hidden.
fn visible(command: &Command) -> Vec<&Command> {
    let below = command.get_subcommands().filter(|command| !command.is_hide_set());
    below.flat_map(|command| std::iter::once(command).chain(visible(command))).collect()
}

fn whole() -> Command {
    let mut all = Arguments::definition(FRONT);
    all.build();
    all
}

#[test]
fn each_command_describes_itself() {
    let all = whole();
    let mut seen = std::collections::BTreeMap::new();
    for command in visible(&all) {
        let about = command.get_about().unwrap().to_string();
        let name = command.get_bin_name().unwrap().to_owned();
        let help = command.clone().render_help().to_string();
        assert!(help.starts_with(&about), "{name}: {help}");
        let mut page = Vec::new();
        clap_mangen::Man::new(command.clone()).render(&mut page).unwrap();
        let page = String::from_utf8(page).unwrap().replace("\\-", "-");
        let own = name.replace(' ', "-");
        assert!(page.contains(&format!("{own} - ")), "the page of {own}: {page}");
        assert_eq!(seen.insert(about, name.clone()), None, "{name}");
    }
}

#[test]
fn every_command_is_in_one_group_and_has_an_example_that_is_valid() {
    let all = whole();
    for command in all.get_subcommands().filter(|command| !command.is_hide_set()) {
        let name = command.get_name();
        let groups = super::examples::GROUPS.iter().filter(|(_, names)| names.contains(&name));
        assert_eq!(groups.count(), 1, "{name}");
    }
    for command in visible(&all) {
        let name = command.get_bin_name().unwrap();
        let after = command.get_after_help().map(ToString::to_string).unwrap_or_default();
        let lines = after.lines().skip(1).take_while(|line| line.starts_with("  stockade "));
        let examples: Vec<_> = lines.map(str::trim).collect();
        let own = format!("stockade {}", first(name));
        let is_shown = examples.iter().any(|example| example.starts_with(&own));
        assert!(after.starts_with("Example") && is_shown, "{name}: {after}");
        for example in examples {
            // The shell reads what follows `<`.
            let words = words(example.split(" < ").next().unwrap_or_default());
            let words: Vec<_> = words.iter().skip(1).map(std::ffi::OsString::from).collect();
            if let Err(error) = Arguments::parse(FRONT, &words) {
                assert_eq!(error.exit_code(), 0, "{example}: {error}");
            }
        }
    }
}

/// The first word of a command's name after the program's.
fn first(name: &str) -> &str {
    name.split(' ').nth(1).unwrap_or_default()
}

/// The words of a line as a shell reads them, without escapes.
fn words(line: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut quote = None;
    for letter in line.chars() {
        match letter {
            '\'' | '"' if quote == Some(letter) => quote = None,
            '\'' | '"' if quote.is_none() => quote = Some(letter),
            ' ' if quote.is_none() => words.push(String::new()),
            letter => words.last_mut().unwrap().push(letter),
        }
    }
    words
}

#[test]
fn every_help_fits_its_terminal() {
    let names: Vec<String> = visible(&whole())
        .iter()
        .map(|command| command.get_bin_name().unwrap().to_owned())
        .collect();
    for width in [40, 60, 80, 100] {
        for name in names.iter().map(String::as_str).chain(["stockade"]) {
            let words = name.split(' ').map(|word| if word.starts_with('<') { "id" } else { word });
            let definition = Arguments::command();
            let mut definition = super::help::with_help(definition, width);
            let help = definition.try_get_matches_from_mut(words.chain(["--help"])).unwrap_err();
            let help = help.render().to_string();
            // A single word may be longer, and an example must stay one line.
            let is_wide = |line: &&str| {
                let words = line.split_whitespace().count();
                line.chars().count() > width
                    && words > 1
                    && !line.starts_with("Usage:")
                    && (width >= 80 || !line.contains("stockade "))
                    && (width >= 80 || words > 3)
            };
            assert_eq!(help.lines().find(is_wide), None, "{name} at {width}:\n{help}");
        }
    }
}

#[test]
fn help_is_a_command_too() {
    for (words, part) in [
        (vec!["help"], "Persistent sandboxes:"),
        (vec!["help", "run"], " run [OPTIONS] [CMD]"),
        (vec!["help", "tool", "run"], " tool run "),
        (vec!["help", "--help"], " help "),
    ] {
        let words: Vec<_> = words.into_iter().map(std::ffi::OsString::from).collect();
        let help = Arguments::parse(FRONT, &words).unwrap_err();
        assert_eq!(help.exit_code(), 0, "{words:?}");
        assert!(help.to_string().contains(part), "{words:?}: {help}");
    }
    let unknown = ["help", "nosuch"].map(std::ffi::OsString::from);
    assert_ne!(Arguments::parse(FRONT, &unknown).unwrap_err().exit_code(), 0);
}

#[test]
fn the_short_flags_of_container_engines_have_the_same_meaning() {
    for (short, long) in [
        (
            "run -it -e A=b -w /tmp -u 7 -v /a:/b:ro -m 1g -l x=y -- true",
            "run --interactive --tty --env A=b --cwd /tmp --user 7 --volume /a:/b:ro --memory 1g --label x=y -- true",
        ),
        (
            "exec -it -e A=b -w /tmp -u 7:8 s -- sh",
            "exec --interactive --tty --env A=b --cwd /tmp --user 7:8 s -- sh",
        ),
        ("exec -d s -- sh", "exec --detach s -- sh"),
        ("exec -itw /tmp s sh", "exec --interactive --tty --workdir /tmp s -- sh"),
        (
            "create -e A=b -w /tmp -u 7 -v /a:/b -m 1g",
            "create --env A=b --workdir /tmp --user 7 --volume /a:/b --memory 1g",
        ),
        ("create --name x", "create --id x"),
        ("shell -u 7 -w /tmp -e A=b s", "shell --user 7 --cwd /tmp --env A=b s"),
        ("up -d -e A=b x.tsx", "up --detach --env A=b x.tsx"),
        ("ls -aq", "ls --all --quiet"),
        ("logs -f x", "logs --follow x"),
    ] {
        let parse = |line: &str| {
            let words: Vec<_> = line.split(' ').map(std::ffi::OsString::from).collect();
            format!("{:?}", Arguments::parse(FRONT, &words).unwrap().command)
        };
        assert_eq!(parse(short), parse(long), "{short}");
    }
}
