//! `stockade up`: starts a run and follows it as far as it can proceed by itself.

use std::time::Duration;

use stockade_api::variables::{MAX_OUTPUT_BYTES, SECRETS, TOOL_TIMEOUT_MS};
use stockade_api::{Fork, RunById};
use stockade_core::{Code, Problem};

use super::holder::{self, RunName};
use super::{environment, find, follow, secret_values, value};
use crate::args::workflow::Up;
use crate::commands::print::{notify, print_text};
use crate::problem::{Failure, caused};
use crate::remote;
use crate::secrets::refuse_set_twice;

/// Starts it. The exit code reports how it ended: 0 finished, 1 failed, 2 cancelled, 3 waits.
pub(crate) fn run(arguments: Up) -> Result<u8, Failure> {
    if let Some(from) = &arguments.from {
        return fork(&arguments, from);
    }
    let request = stockade_api::Up { server: holder::access_to_chosen()?, ..request(&arguments)? };
    remote::here(arguments.server_mode, async |remote| {
        let run = remote.workflows.up(&remote.idempotent(), request).await?;
        if arguments.detach {
            print_text(&format!("{}\n", run.id))?;
            return Ok(0);
        }
        Ok(follow::follow_to_end(&remote, &run.id, 0, follow::WAIT_MS, arguments.json).await?.0)
    })
}

/// Starts a run from a step of another one.
fn fork(arguments: &Up, from: &str) -> Result<u8, Failure> {
    let Some((name, step)) = from.split_once(':') else {
        let message = format!("{from:?} names no step");
        let problem = Problem::new(Code::InvalidInput, message)
            .because("`--from` needs a run and one of its steps, as RUN:STEP")
            .remedied_by("stockade inspect RUN");
        return Err(problem.into());
    };
    let (task, iteration) = match step.rsplit_once('#') {
        Some((task, number)) if number.parse::<u32>().is_ok() => (task, number.parse().ok()),
        _ => (step, None),
    };
    let directory = arguments.directory.as_ref().map(std::path::absolute).transpose();
    let directory = directory.map_err(|error| caused(Code::Io, &error))?;
    let secrets = secret_values(&arguments.secret)?;
    holder::with_run(arguments.server_mode, RunName::Any(name), async |remote| {
        let source = find(&remote, name).await?;
        let server = holder::access_for(&remote, &source).await?;
        let request = Fork {
            source: source.id,
            task: task.to_owned(),
            iteration,
            run_id: Some(run_id(arguments)),
            directory,
            secrets,
            server,
        };
        let run = remote.workflows.fork(&remote.idempotent(), request).await?;
        if arguments.detach {
            print_text(&format!("{}\n", run.id))?;
            return Ok(0);
        }
        let inspect = RunById { id: run.id.clone() };
        let found = remote.workflows.inspect(remote.caller(), inspect).await?;
        match found.forked_from.and_then(|origin| origin.directory) {
            Some(directory) => notify(&format!("the run works in {}", directory.display())),
            None => notify("no step of that run has worked on files of the project"),
        }
        Ok(follow::follow_to_end(&remote, &run.id, 0, follow::WAIT_MS, arguments.json).await?.0)
    })
}

/// The id of the run that these arguments start.
fn run_id(arguments: &Up) -> String {
    arguments.run_id.clone().unwrap_or_else(|| uuid::Uuid::now_v7().simple().to_string())
}

/// The request for these arguments.
///
/// # Errors
/// [`Code::InvalidInput`] when the file is not a regular file, or a value cannot be read.
pub fn request(arguments: &Up) -> Result<stockade_api::Up, Problem> {
    let given = arguments.file.clone().unwrap_or_default();
    let file = std::path::absolute(&given).map_err(|error| caused(Code::Io, &error))?;
    if !file.is_file() {
        let name = given.display();
        let message = match file.is_dir() {
            true => format!("{name} is a directory; a workflow is a file"),
            false => format!("there is no file {name}"),
        };
        return Err(Problem::new(Code::InvalidInput, message));
    }
    let secrets = secret_values(&arguments.secret)?;
    let mut environment = environment(&arguments.env, &arguments.env_file)?;
    let milliseconds =
        |length: Duration| u64::try_from(length.as_millis()).unwrap_or(u64::MAX).max(1);
    let tool_timeout = arguments.tool_timeout.map(milliseconds);
    for (name, limit) in [
        (MAX_OUTPUT_BYTES, arguments.max_output),
        (TOOL_TIMEOUT_MS, tool_timeout.or(arguments.tool_timeout_ms)),
    ] {
        environment.extend(limit.map(|limit| (name.to_owned(), limit.to_string())));
    }
    if !arguments.secret.is_empty() {
        let words: Vec<_> = arguments.secret.iter().map(ToString::to_string).collect();
        refuse_set_twice(&arguments.secret, |name| environment.contains_key(name))?;
        environment.insert(SECRETS.to_owned(), words.join(" "));
    }
    Ok(stockade_api::Up {
        file,
        input: value(&arguments.input, "input")?,
        run_id: Some(run_id(arguments)),
        environment,
        max_concurrency: arguments.max_concurrency,
        secrets,
        server: None,
    })
}
