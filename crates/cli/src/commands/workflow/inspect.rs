//! `stockade inspect`: the state of a run and its tasks.

use stockade_api::{ForkOrigin, Inspection, RunById, SandboxInfo};
use stockade_core::Time;

use super::holder::{self, RunName};
use super::{find, follow};
use crate::args::workflow::OneRun;
use crate::commands::print::{escaped, print, print_text};
use crate::problem::Failure;

/// Prints it.
pub(crate) fn run(arguments: OneRun) -> Result<u8, Failure> {
    let found =
        holder::with_run(arguments.server_mode, RunName::Any(&arguments.id), async |remote| {
            let request = RunById { id: find(&remote, &arguments.id).await?.id };
            Ok(remote.workflows.inspect(remote.caller(), request).await?)
        })?;
    if arguments.json {
        let mut answer = serde_json::to_value(&found).unwrap_or_default();
        // The records of waits, which a child in a sandbox writes too, have milliseconds.
        for wait in answer["waits"].as_array_mut().into_iter().flatten() {
            if let Some(due) = wait.as_object_mut().and_then(|wait| wait.remove("dueMs")) {
                wait["dueAt"] = due.as_i64().map(|ms| Time::from_ms(ms).to_string()).into();
            }
        }
        print(&answer)?;
    } else {
        print_text(&text(&found))?;
    }
    Ok(0)
}

fn text(found: &Inspection) -> String {
    let Inspection { run, tasks, sandboxes, waits, problem, forked_from } = found;
    let mut text = String::new();
    let mut line =
        |name: &str, value: &str| text.push_str(&format!("{name:8}  {}\n", escaped(value)));
    line("run", &run.id);
    line("workflow", &run.name);
    line("file", &run.file);
    line("status", run.status.as_str());
    if let Some(server) = &run.server {
        line("server", server);
    }
    line("input", &run.input.to_string());
    if let Some(origin) = forked_from {
        let ForkOrigin { run, task, iteration, tasks, directory } = origin;
        line("from", &format!("{run}:{task}#{iteration}, with {tasks} tasks that had ended"));
        if let Some(directory) = directory {
            line("project", &directory.display().to_string());
        }
    }
    if let Some(output) = &run.output {
        line("output", &output.to_string());
    }
    if let Some(error) = &run.error {
        line("error", &error.to_string());
    }
    if let Some(problem) = problem {
        let cause = problem.cause.as_ref().map(|cause| format!(": {cause}")).unwrap_or_default();
        line("stopped", &format!("[{}] {}{cause}", problem.code, problem.message));
    }
    for task in tasks {
        let times = match task.executions {
            1 => String::new(),
            several => format!(", started {several} times"),
        };
        let iteration = match task.iteration {
            0 => String::new(),
            number => format!(" #{number}"),
        };
        let (id, status) = (escaped(&task.id), task.status.as_str());
        text.push_str(&format!("  {id}{iteration}  {status} (attempt {}{times})\n", task.attempts));
        if let Some(message) = task.error.as_ref().and_then(|error| error["message"].as_str()) {
            text.push_str(&format!("    error: {}\n", escaped(message)));
        }
        if let Some(bundle) = &task.bundle {
            text.push_str(&format!("    changes in {}\n", escaped(bundle)));
        }
        let of_task =
            |it: &&SandboxInfo| (&it.sandbox_id, it.iteration) == (&task.id, task.iteration);
        if let Some(sandbox) = sandboxes.iter().find(of_task) {
            text.push_str(&format!("    {}\n", describe_sandbox(sandbox)));
        }
        let address = match task.iteration {
            0 => format!("{}/", task.id),
            number => format!("{}@{number}/", task.id),
        };
        for inner in sandboxes.iter().filter(|it| it.sandbox_id.starts_with(&address)) {
            text.push_str(&format!(
                "    {}: {}\n",
                escaped(&inner.sandbox_id),
                describe_sandbox(inner)
            ));
        }
    }
    for wait in waits {
        text.push_str(&format!("{}\n", follow::describe_wait(&run.id, wait)));
    }
    text
}

/// A sandbox on one line.
fn describe_sandbox(sandbox: &SandboxInfo) -> String {
    let provider = sandbox.config["provider"].as_str();
    let selected = sandbox.config["selectedRuntime"].as_str().unwrap_or_default();
    let by = match provider {
        Some(provider) => format!("provider {}", escaped(provider)),
        None if selected == sandbox.runtime => escaped(selected),
        None => format!("{}, by {}", escaped(&sandbox.runtime), escaped(selected)),
    };
    let image = sandbox.config["selectedImage"].as_str();
    let image = image.map(|image| format!(", image {}", escaped(image))).unwrap_or_default();
    let unhealthy = sandbox.unhealthy.as_ref().map(|it| format!(", {}", escaped(it)));
    let bundles = match sandbox.bundles.as_slice() {
        [] => String::new(),
        some => format!(", changes in {}", some.join(" and ")),
    };
    format!(
        "sandbox {} ({by}){image}{}{bundles}",
        escaped(&sandbox.status),
        unhealthy.unwrap_or_default()
    )
}
