//! The common part of both programs: it parses arguments, calls the other crates, and presents the
//! results. It contains no rules of the product. `stockade` consists only of this; `stockade-server`
//! adds an [`Engine`].

/// Writes a line to standard error. A failure to write is ignored, because it could not be
/// reported.
#[macro_export]
macro_rules! eprint_line {
    ($($words:tt)*) => {
        $crate::print_message(&format!($($words)*))
    };
}

#[expect(missing_docs, reason = "the help of each argument is its documentation")]
pub mod args;
pub mod audit;
mod base;
pub mod commands;
mod commits;
pub mod data_dir;
mod devcontainer;
mod doctor;
mod document_file;
mod egress;
mod error_form;
mod images;
pub mod json;
mod learned_policy;
mod many_ids;
mod network_stub;
pub mod output;
mod policy_file;
pub mod problem;
pub mod processes;
mod profile;
pub mod programs;
mod registry;
pub mod remote;
mod request;
pub mod review;
pub mod run;
mod secrets;
mod shell;
mod ssh_permissions;
mod stored_secrets;
pub mod streams;
mod table;
pub mod terminal;
mod upstream_proxy;
mod variables;

use std::ffi::OsString;
use std::io::Write as _;

use stockade_core::printable::escaped_lines;
use stockade_core::{Code, Problem};

use crate::args::Command;
use crate::args::global::Global;
use crate::args::place::Place;
use crate::problem::{Failure, Form};
use crate::remote::Launch;
use crate::remote::chosen::{self, ChosenServer, Source};
use crate::remote::credentials::Credentials;

/// Writes a message to standard error, in which names may come from a sandbox; see [`eprint_line`].
pub fn print_message(message: &str) {
    let mut to = std::io::stderr();
    let _ = to.write_all(format!("{}\n", escaped_lines(message)).as_bytes());
}

/// The functions that only the program with the engines has.
#[derive(Debug, Clone, Copy)]
pub struct Engine {
    /// Executes a command for which [`Command::needs_engine`] is true.
    pub command: fn(Command) -> Result<u8, Failure>,
    /// Runs the operations in this process, for `--in-process`.
    pub launch: Launch,
}

/// Executes the command in the arguments after the program's name. Returns the exit code.
#[must_use]
pub fn run(words: &[OsString], engine: Option<Engine>) -> u8 {
    if let Some(code) = processes::run(words) {
        return code;
    }
    let words = match programs::check_build(words) {
        Ok(words) => words,
        Err(problem) => return Failure::from(problem).present(Form::Text),
    };
    let program = if engine.is_some() { programs::SERVER } else { programs::FRONT };
    let arguments = match args::Arguments::parse(program, words) {
        Ok(arguments) => arguments,
        Err(error) => return usage(words, &error),
    };
    let args::Arguments { command, global } = arguments;
    let form = command.error_form();
    if let Err(problem) = choose_place(&command, &global) {
        return for_command(words, problem.into()).present(form);
    }
    let done = match engine {
        None if needs_server(words, &command) => {
            let is_workflow = matches!(command, Command::Up(_) | Command::Graph(_));
            let failure = Failure::from(programs::become_server(words));
            Err(if is_workflow { failure.for_workflow() } else { failure })
        }
        Some(Engine { command: act, .. }) if command.needs_engine() => {
            audit::recorded(command, act)
        }
        engine => {
            remote::set_launch(engine.map(|engine| engine.launch));
            audit::recorded(command, commands::dispatch)
        }
    };
    match done {
        Ok(code) => code,
        Err(failure) => failure.inside_sandbox().present(form),
    }
}

/// Chooses the data directory and the server, and refuses a server for a command that could not use it.
fn choose_place(command: &Command, global: &Global) -> Result<(), Problem> {
    if let Some(directory) = &global.data_dir {
        data_dir::choose(directory)?;
    }
    // A data directory that is named is of this machine.
    let has_default = command.place() == Place::Anywhere && global.data_dir.is_none();
    let default = || if has_default { Credentials::default_url() } else { Ok(None) };
    chosen::choose(global, default, |server| uses_server(command, global, server))
}

/// Whether a command uses the server at a URL.
fn uses_server(command: &Command, global: &Global, server: &ChosenServer) -> Result<bool, Problem> {
    let url = &server.url;
    // A run is in that data directory, and its sandboxes are on that server.
    let is_both = matches!(command, Command::Up(_));
    if global.data_dir.is_some() && server.source == Source::Flag && !is_both {
        let message =
            format!("`--data-dir` is of this machine, and `--server {url}` is another one");
        return Err(Problem::new(Code::InvalidInput, message));
    }
    match (command.place(), server.source) {
        (Place::Anywhere, _) => Ok(true),
        // These variables are about sandboxes of programs, and not about this machine.
        (Place::Here(..) | Place::AnywhereIfNamed, Source::ClientVariable | Source::Login) => {
            Ok(false)
        }
        (Place::AnywhereIfNamed, Source::Flag | Source::Variable) => Ok(true),
        (Place::Nowhere, Source::Variable | Source::ClientVariable | Source::Login) => Ok(false),
        (Place::Nowhere, Source::Flag) => {
            let message = "this command uses no server, so `--server` has no effect";
            Err(Problem::new(Code::InvalidInput, message).remedied_by("leave out `--server`"))
        }
        (Place::Here(why, remedy), _) => {
            let message = format!("this command cannot use the server {url}");
            Err(Problem::new(Code::Unsupported, message).because(why).remedied_by(remedy))
        }
    }
}

/// The failure with the exit code that a command has for failures of Stockade itself.
fn for_command(words: &[OsString], failure: Failure) -> Failure {
    match command_name(words) {
        Some("run" | "exec" | "shell" | "attach" | "wait") => failure.for_run(),
        Some("up" | "graph") => failure.for_workflow(),
        _ => failure,
    }
}

/// The name of the command: the first word that is neither a global option nor its value.
fn command_name(words: &[OsString]) -> Option<&str> {
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let word = word.to_str()?;
        if ["--server", "--tls-ca", "--data-dir"].contains(&word) {
            words.next();
        } else if !word.starts_with('-') {
            return Some(word);
        }
    }
    None
}

/// Whether the other program must execute a command. `--in-process` may also be an argument of a
/// command inside a sandbox; this is harmless, because the other program behaves the same.
fn needs_server(words: &[OsString], command: &Command) -> bool {
    let is_run = matches!(command, Command::Run(_));
    command.needs_engine() || (!is_run && words.iter().any(|word| word == "--in-process"))
}

/// Prints clap's message. Requested help is data; anything else is a failure of Stockade
/// itself. Its exit code is 125 for `run` and `exec`, to distinguish it from the command's, and
/// 4 for `up`, to distinguish it from the run's.
fn usage(words: &[OsString], error: &clap::Error) -> u8 {
    let printed = error.print();
    if !error.use_stderr() {
        return match output::check_written(printed) {
            Ok(()) => 0,
            Err(problem) => Failure::from(problem).present(Form::Text),
        };
    }
    match command_name(words) {
        Some("run" | "exec" | "shell") => 125,
        Some("up" | "graph") => 4,
        _ => 2,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_follows_the_global_options() {
        let name = |line: &str| {
            let words: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
            command_name(&words).map(str::to_owned)
        };
        assert_eq!(name("exec box -- run"), Some("exec".to_owned()));
        assert_eq!(name("--server https://a.example exec box"), Some("exec".to_owned()));
        assert_eq!(name("--server=https://a.example --data-dir /x run"), Some("run".to_owned()));
        assert_eq!(name("--data-dir"), None);
        assert_eq!(name(""), None);
    }
}
