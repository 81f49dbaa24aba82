//! Shell completions and manual pages, which the built program prints.

use std::path::Path;
use std::process::Command;

use anyhow::ensure;

use super::build::FRONT;
use super::layout;
use crate::workspace::output;

/// Writes them into the directory that the program lies in.
pub(super) fn write(directory: &Path) -> anyhow::Result<()> {
    let program = layout::program(directory, FRONT);
    for (shell, path) in layout::COMPLETIONS {
        let script = output(Command::new(&program).args(["completions", shell]))?;
        layout::write(directory, path, script.as_bytes())?;
    }
    let mut pending = vec![Vec::new()];
    while let Some(words) = pending.pop() {
        let page = output(Command::new(&program).arg("man").args(&words))?;
        let name = [&[FRONT.to_owned()], words.as_slice()].concat().join("-");
        pending.extend(commands(&page, &name).into_iter().map(|command| {
            let mut words = words.clone();
            words.push(command);
            words
        }));
        layout::write(directory, &format!("{}/{name}.1", layout::PAGES), page.as_bytes())?;
    }
    let count = layout::files(&directory.join(layout::PAGES))?.len();
    ensure!(count > 1, "the manual page of {FRONT} names no commands");
    Ok(())
}

/// The commands that a page refers to, each by the name of a page of its own: `stockade\-run(1)`.
fn commands(page: &str, name: &str) -> Vec<String> {
    let references = page.lines().filter_map(|line| line.strip_suffix("(1)"));
    let references = references.map(|reference| reference.replace('\\', ""));
    let own = format!("{name}-");
    let commands =
        references.filter_map(|reference| Some(reference.strip_prefix(&own)?.to_owned()));
    // `help` is made by clap, and has no page.
    commands.filter(|command| command != "help").collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_names_the_pages_of_its_commands() {
        let page = ".SH SUBCOMMANDS\n.TP\nstockade\\-run(1)\nRun\n.TP\nstockade\\-help(1)\nHelp\n";
        assert_eq!(commands(page, "stockade"), ["run"]);
        let page = ".TP\nstockade\\-snippet\\-check(1)\n.TP\nstockade\\-snippet\\-help(1)\n";
        assert_eq!(commands(page, "stockade-snippet"), ["check"]);
    }
}
