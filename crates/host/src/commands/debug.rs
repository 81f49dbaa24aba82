//! `stockade debug`: direct use of the native runtime, and inspection of the programs of a sandbox.
//! For developers of Stockade; its output is not stable.

mod child;
mod exec;

use std::path::PathBuf;

use serde_json::{Value, json};
use stockade_core::{Code, Problem};
use stockade_runtime::{Error, ReadRange, Runtime, SandboxPath, Target, WriteOptions};
use stockade_runtime_native::{Native, Options};

use stockade_cli::args::debug::{Debug, DebugCommand, Files, Id, Operation, Runtime as Arguments};
use stockade_cli::data_dir::{data_path, open_data_dir};
use stockade_cli::output;
use stockade_cli::problem::{Failure, caused};
use stockade_cli::streams;

use crate::programs;

/// Runs the command; returns the exit code of the inner command if there is one.
pub(crate) fn run(arguments: Debug) -> Result<u8, Failure> {
    let tokio = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| caused(Code::Io, &error))?;
    match arguments.part {
        DebugCommand::Runtime(arguments) => tokio.block_on(drive(*arguments)),
        DebugCommand::Child(arguments) => tokio.block_on(child::run(arguments)),
    }
}

async fn drive(arguments: Arguments) -> Result<u8, Failure> {
    let Arguments { pool, json, operation } = arguments;
    let keeper = programs::keeper()?;
    let data = data_path()?;
    open_data_dir(&data)?;
    let native = Native::open(Options { data, keeper, pool }).map_err(|e| problem(&e))?;
    if let Operation::Exec(exec) = operation {
        return exec::run(&native, *exec, json).await;
    }
    let answer = operate(&native, operation).await?;
    if !answer.is_null() {
        print_answer(&answer)?;
    }
    Ok(0)
}

async fn operate(native: &Native, operation: Operation) -> Result<Value, Failure> {
    let failed = |error: Error| Failure::from(problem(&error));
    let done = Value::Null;
    Ok(match operation {
        Operation::Create { id: Id(id), spec } => {
            let spec = spec.into_spec()?;
            json!(native.create(&id, &spec).await.map_err(failed)?)
        }
        Operation::Restore { snapshot: Id(snapshot), id: Id(id), spec } => {
            let spec = spec.into_spec()?;
            json!(native.restore(&snapshot, &id, &spec).await.map_err(failed)?)
        }
        Operation::List { label } => {
            let labels = label.into_iter().collect();
            json!(native.list(&labels).await.map_err(failed)?)
        }
        Operation::Inspect { id: Id(id) } => json!(native.inspect(&id).await.map_err(failed)?),
        Operation::Pause { id: Id(id) } => {
            native.pause(&id).await.map_err(failed)?;
            done
        }
        Operation::Resume { id: Id(id) } => {
            native.resume(&id).await.map_err(failed)?;
            done
        }
        Operation::Snapshot { id: Id(id), snapshot: Id(snapshot) } => {
            json!(native.snapshot(&id, &snapshot).await.map_err(failed)?)
        }
        Operation::Destroy { id: Id(id) } => {
            native.cleanup(&id).await.map_err(failed)?;
            done
        }
        Operation::Metrics => json!(native.metrics().await.map_err(failed)?),
        Operation::Connect { id: Id(id), target } => {
            let target = match target.parse() {
                Ok(port) => Target::Tcp(port),
                Err(_) => Target::Unix(SandboxPath::new(&target).map_err(failed)?),
            };
            let connection = native.connect(&id, &target).await.map_err(failed)?;
            streams::relay(connection).await.map_err(|error| caused(Code::Io, &error))?;
            done
        }
        Operation::Files { id: Id(id), operation } => {
            let path = |path: PathBuf| SandboxPath::new(path).map_err(failed);
            match operation {
                Files::List { path: at } => {
                    let entries = native.read_directory(&id, &path(at)?).await.map_err(failed)?;
                    entries.iter().map(entry).collect()
                }
                Files::Read { path: at } => {
                    let content = native.read_file(&id, &path(at)?, ReadRange::default()).await;
                    let content = content.map_err(failed)?;
                    streams::print(content).await.map_err(|error| caused(Code::Io, &error))?;
                    done
                }
                Files::Write { path: at } => {
                    let content = Box::pin(streams::input());
                    let options = WriteOptions::default();
                    let written = native.write_file(&id, &path(at)?, content, options).await;
                    json!({ "writtenBytes": written.map_err(failed)? })
                }
                Files::Remove { path: at } => {
                    native.remove(&id, &path(at)?).await.map_err(failed)?;
                    done
                }
            }
        }
        Operation::Exec(_) => done,
    })
}

fn entry(info: &stockade_runtime::FileInfo) -> Value {
    json!({
        "name": String::from_utf8_lossy(&info.name),
        "kind": info.kind,
        "sizeBytes": info.size_bytes,
        "mode": format!("{:o}", info.mode),
        "owner": info.owner,
        "modifiedMs": info.modified_ms,
        "link": info.link.as_deref().map(String::from_utf8_lossy),
    })
}

/// Prints a response, as JSON in all modes.
fn print_answer(answer: &Value) -> Result<(), Problem> {
    output::print_json(answer)
}

/// Converts an error of the runtime to a problem.
fn problem(error: &Error) -> Problem {
    let code = match error {
        Error::Limit { .. } => Code::LimitUnavailable,
        Error::Exceeded { .. } => Code::DiskExceeded,
        Error::Wall { .. } => Code::WallUnavailable,
        Error::Invalid(_)
        | Error::NoSandbox(_)
        | Error::NoExec { .. }
        | Error::NoSnapshot(_)
        | Error::NoImage { .. }
        | Error::Image(_)
        | Error::Conflict(_)
        | Error::WrongState { .. }
        | Error::Unsupported { .. } => Code::InvalidInput,
        _ => Code::Io,
    };
    let problem = caused(code, error);
    match error {
        Error::Limit { remedy, .. }
        | Error::Exceeded { remedy, .. }
        | Error::Unsupported { remedy: Some(remedy), .. } => problem.remedied_by(remedy),
        _ => problem,
    }
}
