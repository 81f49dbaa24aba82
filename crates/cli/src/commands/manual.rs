//! `stockade completions` and `stockade man`: the arguments, for shells and for `man`. Both are
//! generated from the definition of the arguments, so they cannot differ from it.

use std::io::Write as _;

use clap::CommandFactory as _;
use stockade_core::{Code, Problem};

use crate::args::{Arguments, Completions, Man};
use crate::output;
use crate::problem::{Failure, caused};

/// Prints a shell completion script.
pub(crate) fn completions(arguments: &Completions) -> Result<u8, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut Arguments::command(), "stockade", &mut script);
    print(&script)
}

/// Prints a manual page, to be read with `man -l -`.
pub(crate) fn page(arguments: &Man) -> Result<u8, Failure> {
    let mut command = Arguments::command();
    command.build();
    for name in &arguments.command {
        command = command.find_subcommand(name).cloned().ok_or_else(|| {
            let names = arguments.command.join(" ");
            Problem::new(Code::InvalidInput, format!("there is no command {names}"))
                .remedied_by("stockade --help")
        })?;
    }
    let mut page = Vec::new();
    clap_mangen::Man::new(command).render(&mut page).map_err(|error| caused(Code::Io, &error))?;
    print(&page)
}

fn print(text: &[u8]) -> Result<u8, Failure> {
    let mut to = std::io::stdout();
    output::check_written(to.write_all(text).and_then(|()| to.flush()))?;
    Ok(0)
}
