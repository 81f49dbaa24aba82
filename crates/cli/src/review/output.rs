//! Standard output: a pager and colours where it is a terminal, plain bytes
//! where it is not. What a sandbox wrote cannot steer the terminal.

use std::io::{self, BufWriter, Write};
use std::process::{Child, Command, Stdio};

use stockade_core::{Code, Problem};
use stockade_jail::Signals;

use crate::problem::of_output;

/// How a line of a diff is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Style {
    Plain,
    Heading,
    Hunk,
    Added,
    Removed,
}

/// Where data goes.
pub(crate) struct Output {
    to: Box<dyn Write>,
    pager: Option<Child>,
    is_terminal: bool,
    is_coloured: bool,
}

impl Output {
    /// Standard output as it is.
    pub(crate) fn plain() -> Self {
        let to = Box::new(BufWriter::new(io::stdout()));
        Self { to, pager: None, is_terminal: false, is_coloured: false }
    }

    /// Standard output for reading: through `$PAGER`, else `less`, where it is a terminal.
    pub(crate) fn for_reading() -> Self {
        if !rustix::termios::isatty(io::stdout()) {
            return Self::plain();
        }
        let is_set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        let is_coloured =
            !is_set("NO_COLOR") && std::env::var_os("TERM").is_none_or(|term| term != "dumb");
        let mut pager = start_pager();
        let to: Box<dyn Write> = match pager.as_mut().and_then(|pager| pager.stdin.take()) {
            Some(input) => Box::new(BufWriter::new(input)),
            None => Box::new(BufWriter::new(io::stdout())),
        };
        Self { to, pager, is_terminal: true, is_coloured }
    }

    /// Writes one line; on a terminal in this style, and with whatever could steer it made
    /// visible.
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

    /// Writes text of our own.
    pub(crate) fn text(&mut self, text: &str) -> io::Result<()> {
        text.lines().try_for_each(|line| self.line(Style::Plain, line.as_bytes()))
    }

    /// Writes what is left and waits for the pager.
    pub(crate) fn finish(mut self) -> io::Result<()> {
        let flushed = self.to.flush();
        drop(self.to);
        if let Some(mut pager) = self.pager {
            pager.wait()?;
        }
        flushed
    }
}

/// What writing to standard output failed with; a reader that has seen enough is no failure.
pub fn written(result: io::Result<()>) -> Result<(), Problem> {
    match result {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(of_output(&error)),
        _ => Ok(()),
    }
}

/// Prints text of our own to standard output.
pub fn print(text: &str) -> Result<(), Problem> {
    let mut output = Output::plain();
    written(output.text(text).and_then(|()| output.finish()))
}

/// Prints JSON to standard output.
pub fn print_json(value: &serde_json::Value) -> Result<(), Problem> {
    print(&crate::json::text(value))
}

/// Prints an answer to standard output as JSON.
pub fn print_answer(answer: &impl serde::Serialize) -> Result<(), Problem> {
    let value = serde_json::to_value(answer).map_err(|error| {
        Problem::new(Code::Io, "the answer cannot be written").because(error.to_string())
    })?;
    print_json(&value)
}

/// Starts the pager; none where the user wants none or has none.
fn start_pager() -> Option<Child> {
    let program = match std::env::var_os("PAGER") {
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
    // As git does: the variable is a command for the shell.
    command.arg("-c").arg(program).stdin(Stdio::piped());
    if std::env::var_os("LESS").is_none() {
        command.env("LESS", "FRX");
    }
    let pager = command.spawn().ok()?;
    // Ctrl-C is the pager's, which would lose its input and the terminal with this process. It
    // is held only now, since a program begins with what its parent holds. Where it cannot be,
    // Ctrl-C ends both.
    let _ = Signals::hold_keys();
    Some(pager)
}

/// Text with its control characters shown as `^X`, and those that reorder what is read as
/// `<U+202E>`; bytes that are not UTF-8 as `<FF>`.
fn visible(line: &[u8]) -> String {
    let mut text = String::with_capacity(line.len());
    for chunk in line.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '\t' => text.push(c),
                '\0'..='\x1f' | '\x7f' => {
                    text.push('^');
                    text.push(char::from(b'@' ^ u8::try_from(c).unwrap_or_default()));
                }
                '\u{80}'..='\u{9f}'
                | '\u{200b}'..='\u{200f}'
                | '\u{202a}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}'
                | '\u{feff}' => text.push_str(&format!("<U+{:04X}>", u32::from(c))),
                c => text.push(c),
            }
        }
        for byte in chunk.invalid() {
            text.push_str(&format!("<{byte:02X}>"));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::visible;

    #[test]
    fn nothing_can_steer_the_terminal() {
        let hostile = b"a\x1b[2Jb\rc\x07\x7f\xff\xc2\x9b1m \xe2\x80\xae end\ttab";
        assert_eq!(visible(hostile), "a^[[2Jb^Mc^G^?<FF><U+009B>1m <U+202E> end\ttab");
        assert_eq!(visible("grün ✓".as_bytes()), "grün ✓");
    }
}
