//! Standard output: with a pager and colours if it is a terminal, plain bytes if it is not.
//! Content from a sandbox cannot control the terminal.

use std::io::{self, BufWriter, Write};
use std::process::{Child, Command, Stdio};

use stockade_core::printable::{escaped_lines, visible};
use stockade_core::{Code, Problem};
use stockade_jail::Signals;

use crate::args::bundle::ColorWhen;

/// The style of a line of a diff.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Style {
    Plain,
    Heading,
    Hunk,
    Added,
    Removed,
}

/// The destination of data.
pub(crate) struct Output {
    to: Box<dyn Write>,
    pager: Option<Child>,
    is_terminal: bool,
    is_coloured: bool,
}

impl Output {
    /// Standard output without a pager.
    pub(crate) fn plain() -> Self {
        let to = Box::new(BufWriter::new(io::stdout()));
        Self { to, pager: None, is_terminal: false, is_coloured: false }
    }

    /// Standard output for reading: if it is a terminal, through `$GIT_PAGER`, `$PAGER`, else
    /// `less`.
    pub(crate) fn with_pager(color: ColorWhen) -> Self {
        let is_set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        let is_coloured = match color {
            ColorWhen::Always => true,
            ColorWhen::Never => false,
            ColorWhen::Auto => {
                !is_set("NO_COLOR") && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
            }
        };
        if !rustix::termios::isatty(io::stdout()) {
            // Colours are for a reader, even if a pager or a log is between.
            return match color {
                ColorWhen::Always => Self { is_terminal: true, is_coloured, ..Self::plain() },
                _ => Self::plain(),
            };
        }
        let mut pager = start_pager();
        let to: Box<dyn Write> = match pager.as_mut().and_then(|pager| pager.stdin.take()) {
            Some(input) => Box::new(BufWriter::new(input)),
            None => Box::new(BufWriter::new(io::stdout())),
        };
        Self { to, pager, is_terminal: true, is_coloured }
    }

    /// Writes one line; on a terminal in this style, with control characters made visible.
    pub(crate) fn line(&mut self, style: Style, line: &[u8]) -> io::Result<()> {
        if !self.is_terminal {
            self.to.write_all(line)?;
            return self.to.write_all(b"\n");
        }
        let visible = visible(line);
        let colour = match style {
            Style::Plain => "",
            Style::Heading => "\x1b[1m",
            Style::Hunk => "\x1b[36m",
            Style::Added => "\x1b[32m",
            Style::Removed => "\x1b[31m",
        };
        match (self.is_coloured, colour) {
            (false, _) | (_, "") => writeln!(self.to, "{visible}"),
            (true, colour) => writeln!(self.to, "{colour}{visible}\x1b[m"),
        }
    }

    /// Whether a reader sees it on a terminal.
    pub(crate) fn is_terminal(&self) -> bool {
        self.is_terminal
    }

    /// Writes Stockade's own text. Names in it may come from a sandbox.
    pub(crate) fn text(&mut self, text: &str) -> io::Result<()> {
        escaped_lines(text).lines().try_for_each(|line| self.line(Style::Plain, line.as_bytes()))
    }

    /// Writes the remaining output and waits for the pager.
    pub(crate) fn finish(mut self) -> io::Result<()> {
        let flushed = self.to.flush();
        drop(self.to);
        if let Some(mut pager) = self.pager {
            pager.wait()?;
        }
        flushed
    }
}

/// The problem that output could not be written.
pub fn output_problem(error: &std::io::Error) -> Problem {
    Problem::new(Code::Io, "cannot write the output").because(error.to_string())
}

/// Converts the result of writing to standard output; a reader that closed the pipe is not an
/// error.
pub fn check_written(result: io::Result<()>) -> Result<(), Problem> {
    match result {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(output_problem(&error)),
        _ => Ok(()),
    }
}

/// Prints Stockade's own text to standard output.
pub fn print(text: &str) -> Result<(), Problem> {
    let mut output = Output::plain();
    check_written(output.text(text).and_then(|()| output.finish()))
}

/// Prints JSON to standard output.
pub fn print_json(value: &serde_json::Value) -> Result<(), Problem> {
    print(&crate::json::text(value))
}

/// Prints a response to standard output as JSON.
pub fn print_answer(answer: &impl serde::Serialize) -> Result<(), Problem> {
    let value = serde_json::to_value(answer).map_err(|error| {
        Problem::new(Code::Io, "the answer cannot be written").because(error.to_string())
    })?;
    print_json(&value)
}

/// Starts the pager; `None` if the user wants none or has none.
fn start_pager() -> Option<Child> {
    // As in git, the pager for diffs comes first.
    let named = std::env::var_os("GIT_PAGER").or_else(|| std::env::var_os("PAGER"));
    let program = match named {
        Some(named) => named,
        None => {
            let path = std::env::var_os("PATH")?;
            std::env::split_paths(&path).map(|dir| dir.join("less")).find(|less| less.is_file())?;
            "less".into()
        }
    };
    if program.is_empty() || program == "cat" {
        return None;
    }
    let mut command = Command::new("sh");
    // As in git, the variable is a shell command.
    command.arg("-c").arg(program).stdin(Stdio::piped());
    if std::env::var_os("LESS").is_none() {
        command.env("LESS", "FRX");
    }
    let pager = command.spawn().ok()?;
    // Ctrl-C is for the pager, which would lose its input and the terminal if this process
    // ended. The signal is blocked only after the pager was started, because a program inherits
    // its parent's blocked signals. If it cannot be blocked, Ctrl-C ends both.
    let _ = Signals::block_keyboard();
    Some(pager)
}
