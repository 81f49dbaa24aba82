//! Processes from before the start of the server: they have continued, and clients that know their numbers find them.

use stockade_api::{AttachCommand, CommandLine, ListCommands};

use super::message::Config;
use super::table::Description;
use crate::code::is_driver;
use crate::e2b::App;
use crate::e2b::failure::RpcError;
use crate::inside::Target;

/// Adds the processes of a sandbox that an earlier server has started.
pub(super) async fn restore(app: &App, target: &Target) -> Result<(), RpcError> {
    if !app.processes.may_lack_some(&target.sandbox) {
        return Ok(());
    }
    let sandbox_id = Some(target.sandbox.id.clone());
    let request = ListCommands { sandbox_id, ..ListCommands::default() };
    let mut running = app.sandboxes.commands(&target.caller, request).await?.commands;
    // What clients of other interfaces have started is detached.
    running.retain(|info| !info.detached && !is_driver(&info.command));
    app.processes.forget_ended(&target.sandbox, &running);
    for info in running {
        if app.processes.has(&target.sandbox, &info.workflow_id) {
            continue;
        }
        let workflow_id = info.workflow_id.clone();
        let attach = AttachCommand { workflow_id, stdout_offset: 0, stderr_offset: 0 };
        // One that has ended meanwhile cannot be joined.
        let Ok(session) = app.sandboxes.attach_command(&target.caller, attach).await else {
            continue;
        };
        let description = Description {
            config: config(&info.command),
            tag: None,
            is_terminal: info.terminal,
            takes_input: info.input,
            deadline: None,
        };
        let (ports, of) = (app.ports.clone(), target.clone());
        let closed =
            Box::pin(async move { ports.wait_until_closed(&of.caller, &of.sandbox).await });
        app.processes.add(&target.sandbox, description, session, None, closed);
    }
    Ok(())
}

/// A command in the form in which clients start it.
fn config(command: &CommandLine) -> Config {
    let words: Vec<String> = match command {
        CommandLine::Shell(line) => ["/bin/sh", "-c", line].map(str::to_owned).into(),
        CommandLine::Program(words) => words.clone(),
        CommandLine::Words(words) => {
            words.iter().map(|word| String::from_utf8_lossy(&word.0).into_owned()).collect()
        }
    };
    let mut words = words.into_iter();
    Config { cmd: words.next().unwrap_or_default(), args: words.collect(), ..Config::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_has_the_form_of_its_request() {
        let shell = config(&CommandLine::Shell("echo a".to_owned())).to_json();
        assert_eq!(shell["args"], serde_json::json!(["-c", "echo a"]));
        let program = CommandLine::Program(vec!["sleep".to_owned(), "9".to_owned()]);
        assert_eq!(config(&program).to_json()["cmd"], "sleep");
    }
}
