//! The help of the whole program, with its commands in groups, wrapped to the terminal.

use clap::Command;

use super::examples::{ENVIRONMENT, GROUPS};

/// The template of the help of the whole program: the groups are the text after the options.
const TEMPLATE: &str = "\
{about-with-newline}
{usage-heading} {usage}

Options:
{options}{after-help}";

/// The widest help, also on wider terminals.
const MAX_WIDTH: usize = 100;
/// The narrowest column for descriptions. On a narrower terminal, they start on a line of their own.
const MIN_COLUMN: usize = 24;
const INDENT: &str = "  ";

/// The width of help texts for a terminal with this many columns.
pub(super) fn width(columns: Option<usize>) -> usize {
    columns.filter(|columns| *columns > 0).map_or(MAX_WIDTH, |columns| columns.min(MAX_WIDTH))
}

/// The definition with help texts for this width.
pub(super) fn with_help(definition: Command, width: usize) -> Command {
    let text = groups(&definition, width);
    definition.term_width(width).help_template(TEMPLATE).after_help(text)
}

/// All commands that are not hidden, in groups, and the environment variables.
fn groups(definition: &Command, width: usize) -> String {
    let about = |name: &str| {
        let command = definition.find_subcommand(name)?;
        Some((command.get_name().to_owned(), command.get_about()?.to_string()))
    };
    let mut text = String::new();
    for (title, names) in GROUPS {
        let rows: Vec<_> = names.iter().filter_map(|name| about(name)).collect();
        text += &section(title, &rows, width);
    }
    let is_listed = |name: &str| GROUPS.iter().any(|(_, names)| names.contains(&name));
    let others = definition.get_subcommands().filter(|command| !command.is_hide_set());
    let others = others.filter(|command| !is_listed(command.get_name()));
    let others: Vec<_> = others.filter_map(|command| about(command.get_name())).collect();
    if !others.is_empty() {
        text += &section("Others", &others, width);
    }
    let variables = ENVIRONMENT.map(|(name, about)| (name.to_owned(), about.to_owned()));
    text += &section("Environment variables", &variables, width);
    text + &wrap("`stockade help COMMAND` prints the help of a command.", "", width)
}

/// A title and rows of two columns.
fn section(title: &str, rows: &[(String, String)], width: usize) -> String {
    let names = rows.iter().map(|(name, _)| name.len()).max().unwrap_or_default();
    let column = INDENT.len() + names + INDENT.len();
    let mut text = format!("{title}:\n");
    for (name, about) in rows {
        if width < column + MIN_COLUMN {
            let indent = INDENT.repeat(3);
            text += &format!("{INDENT}{name}\n{indent}{}\n", wrap(about, &indent, width));
        } else {
            let indent = " ".repeat(column);
            text += &format!("{INDENT}{name:<names$}{INDENT}{}\n", wrap(about, &indent, width));
        }
    }
    text + "\n"
}

/// Wraps a text of which every line starts after `indent`; the first line is without it.
pub(crate) fn wrap(text: &str, indent: &str, width: usize) -> String {
    let room = width.saturating_sub(indent.chars().count()).max(1);
    let mut wrapped = String::new();
    let mut length = 0;
    for word in text.split_ascii_whitespace() {
        let word_length = word.chars().count();
        if length > 0 && length + 1 + word_length > room {
            wrapped.push('\n');
            wrapped.push_str(indent);
            length = 0;
        } else if length > 0 {
            wrapped.push(' ');
            length += 1;
        }
        wrapped.push_str(word);
        length += word_length;
    }
    wrapped
}
