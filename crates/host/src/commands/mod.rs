//! The commands that need an engine, one file for each: their output and exit codes.

mod backup;
mod debug;
mod graph;
mod graph_svg;
mod mcp;
mod migrate;
mod result;
mod snippet;

use std::path::PathBuf;

use stockade_cli::args::Command;
use stockade_cli::args::serve::Serve;
use stockade_cli::commands::workflow::up;
use stockade_cli::data_dir::{chosen_data_path, configured_data_path, data_path};
use stockade_cli::problem::Failure;
use stockade_core::{Code, Problem};

use crate::database;
use crate::listener::ListenOptions;
use crate::serve::Lifetime;
use crate::serve_options::Values;
use crate::server;

/// Runs a command; returns the exit code of the process.
pub(crate) fn run(command: Command) -> Result<u8, Failure> {
    match command {
        Command::Debug(arguments) => debug::run(*arguments),
        Command::Graph(arguments) => graph::run(&arguments).map_err(Failure::for_workflow),
        Command::Mcp(arguments) => mcp::run(&arguments),
        Command::Snippet(arguments) => snippet::run(&arguments),
        Command::Serve(arguments) => serve(&arguments),
        Command::Backup(arguments) => backup::run(&arguments),
        Command::Migrate(arguments) => migrate::run(&arguments),
        Command::Up(arguments) => match &arguments.result {
            Some(directory) => up::request(&arguments)
                .map_err(Failure::from)
                .and_then(|up| result::up(directory, up, arguments.nested, arguments.json))
                .map_err(Failure::for_workflow),
            None => Err(no_engine()),
        },
        _ => Err(no_engine()),
    }
}

fn no_engine() -> Failure {
    Problem::new(Code::Unsupported, "this command needs no engine").into()
}

/// Serves until interrupted.
fn serve(arguments: &Serve) -> Result<u8, Failure> {
    let named = chosen_data_path();
    if let Some(url) = &arguments.database_url {
        database::refuse_password(url, "--database-url")?;
    }
    let values = Values::read(arguments, named.as_deref(), |name| std::env::var_os(name))?;
    let data = match values.get("STOCKADE_DATA_DIR").map(PathBuf::from) {
        Some(path) if path.is_absolute() || named.is_some() => path,
        // It is of the environment, which needs an absolute path, or of the file.
        Some(path) => configured_data_path()?.unwrap_or(path),
        None => data_path()?,
    };
    let data = std::path::absolute(data).map_err(|error| Problem::caused(Code::Io, &error))?;
    let listen = ListenOptions::new(&values)?;
    server::run(data, Lifetime::UntilStopped(Box::new(listen)), |name| values.get(name)).map(|()| 0)
}
