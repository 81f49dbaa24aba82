//! What several commands print: data to stdout, messages to stderr.

use std::io::Write as _;

use serde::Serialize;
use stockade_core::{Code, Problem};

use crate::output;
use crate::problem::{Failure, caused};

/// Prints a response as JSON.
pub fn print(answer: &impl Serialize) -> Result<(), Failure> {
    let value = serde_json::to_value(answer).map_err(|error| caused(Code::Io, &error))?;
    Ok(output::print_json(&value)?)
}

/// Prints one line of JSON.
pub(super) fn print_line(answer: &impl Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string(answer).map_err(|error| caused(Code::Io, &error))?;
    print_text(&format!("{}\n", crate::json::escape_controls(text)))
}

/// Prints lines of text, in which names may come from a sandbox.
pub fn print_text(text: &str) -> Result<(), Failure> {
    print_bytes(stockade_core::printable::escaped_lines(text).as_bytes())
}

/// Prints bytes unchanged.
pub(super) fn print_bytes(bytes: &[u8]) -> Result<(), Failure> {
    let mut to = std::io::stdout();
    let written = to.write_all(bytes).and_then(|()| to.flush());
    written.map_err(|error| Failure::from_write_error(&error))
}

/// Prints a message about what was done.
pub(crate) fn notify(text: &str) {
    eprint_line!("stockade: {text}");
}

/// Asks a question on the terminal.
///
/// # Errors
/// [`Code::Cancelled`] for every answer but yes.
pub(super) fn ask(question: &str) -> Result<(), Problem> {
    let mut terminal = std::io::stderr();
    // Without a reader there is no answer either.
    let _ = write!(terminal, "stockade: {question} [y/N] ").and_then(|()| terminal.flush());
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer).map_err(|error| caused(Code::Io, &error))?;
    match answer.trim().to_ascii_lowercase().as_str() {
        "y" | "yes" => Ok(()),
        _ => Err(Problem::new(Code::Cancelled, "nothing was done")),
    }
}

/// Escapes hidden characters in a text, so that it can neither control a terminal nor mislead a reader.
pub fn escaped(text: &str) -> String {
    stockade_core::printable::escaped(text).into_owned()
}
