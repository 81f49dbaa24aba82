//! The caller's terminal: its size, raw mode, and whether there is one.

use std::os::fd::{AsFd as _, OwnedFd};

use rustix::termios::{OptionalActions, Termios, isatty, tcgetattr, tcgetwinsize, tcsetattr};
use stockade_jail::WindowSize;

/// The terminal on standard input, in raw mode as long as the value lives.
#[derive(Debug)]
pub struct RawMode {
    terminal: OwnedFd,
    before: Termios,
}

impl RawMode {
    /// Sets raw mode; `None` if standard input is not a terminal.
    pub fn enter() -> std::io::Result<Option<Self>> {
        let input = std::io::stdin();
        if !isatty(&input) {
            return Ok(None);
        }
        let terminal = input.as_fd().try_clone_to_owned()?;
        let before = tcgetattr(&terminal)?;
        let mut raw = before.clone();
        raw.make_raw();
        tcsetattr(&terminal, OptionalActions::Drain, &raw)?;
        Ok(Some(Self { terminal, before }))
    }

    /// A file descriptor of the terminal.
    pub fn descriptor(&self) -> std::io::Result<OwnedFd> {
        self.terminal.try_clone()
    }
}

impl Drop for RawMode {
    fn drop(&mut self) {
        // A terminal that no longer exists need not be restored.
        let _ = tcsetattr(&self.terminal, OptionalActions::Drain, &self.before);
    }
}

/// Whether standard input is a terminal.
pub fn is_on_input() -> bool {
    isatty(std::io::stdin())
}

/// How many columns standard output has, if it is a terminal; else those that `COLUMNS` names.
pub fn columns() -> Option<usize> {
    let named = || std::env::var("COLUMNS").ok()?.parse().ok();
    match tcgetwinsize(std::io::stdout()) {
        Ok(size) => Some(usize::from(size.ws_col)).filter(|columns| *columns > 0),
        Err(_) => named(),
    }
}

/// The size of the caller's terminal; the usual default if there is none.
pub fn window_size() -> WindowSize {
    match tcgetwinsize(std::io::stdout()).or_else(|_| tcgetwinsize(std::io::stdin())) {
        Ok(size) if size.ws_row > 0 && size.ws_col > 0 => {
            WindowSize { rows: size.ws_row, columns: size.ws_col }
        }
        _ => WindowSize { rows: 24, columns: 80 },
    }
}
