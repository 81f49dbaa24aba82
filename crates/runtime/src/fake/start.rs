//! Starting a command in a fake sandbox: the selection of its program, and the task that runs it.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::ffi::OsStringExt as _;
use std::path::Path;
use std::sync::Arc;

use rustix::io::Errno;
use tokio::sync::{mpsc, watch};

use super::lock;
use super::process::{Bounds, Command, Process, Program, run};
use super::sandbox::Sandbox;
use super::transcript::Transcript;
use super::tree::{Tree, USER};
use crate::error::{Error, Result};
use crate::exec::{self, Ending, StandardInput};
use crate::files::FileKind;

/// How many chunks of input are queued for a program.
const WAITING: usize = 16;
/// The longest argument or variable that the kernel accepts, including its terminator
/// (`MAX_ARG_STRLEN`).
const ARGUMENT_BYTES: usize = 128 * 1024;

/// Starts a command.
///
/// # Errors
/// [`Error::Invalid`] for one without a program, or with a NUL byte in it.
pub(super) fn start(
    programs: &BTreeMap<String, Program>,
    sandbox: &Sandbox,
    command: &exec::Command,
) -> Result<Command> {
    let pairs = command.environment.iter().flat_map(|(name, value)| [name, value]);
    if command.arguments.iter().chain(pairs).any(|word| word.as_bytes().contains(&0)) {
        return Err(Error::Invalid(
            "an argument of a command cannot contain a NUL byte".to_owned(),
        ));
    }
    let names = command.environment.keys();
    if names.into_iter().any(|name| name.is_empty() || name.as_bytes().contains(&b'=')) {
        return Err(Error::Invalid(
            "the name of a variable cannot be empty or contain `=`".to_owned(),
        ));
    }
    if command.arguments.is_empty() {
        return Err(Error::Invalid("a command must name a program".to_owned()));
    }
    command.check_input()?;
    let requested = command.working_directory.as_ref().map(|path| path.as_path().to_owned());
    let working_directory = requested.unwrap_or_else(|| sandbox.working_directory());
    let found = {
        let files = lock(&sandbox.files);
        match files.directory(&working_directory) {
            Ok(_) => find(programs, &files, command.arguments.clone())
                .map_err(|errno| not_run(errno.raw_os_error(), "start the program")),
            Err(error) => {
                let errno = error.raw_os_error().unwrap_or_default();
                Err(not_run(errno, "enter the working directory"))
            }
        }
    };

    let own = sandbox.environment().into_iter();
    let own = own.map(|(name, value)| (OsString::from(name), OsString::from_vec(value.0)));
    let environment = own.chain(command.environment.clone()).collect();
    let (transcript, receiver) = watch::channel(Transcript::default());
    let transcript = Arc::new(transcript);
    let (input, inner_input) = input(&command.input);
    let size = watch::Sender::new(command.terminal);
    let program = match found {
        Ok((program, arguments)) => program(Process {
            arguments,
            environment,
            working_directory,
            user: command.user.or(sandbox.spec.user).unwrap_or(USER),
            size: size.subscribe(),
            transcript: Arc::clone(&transcript),
            input: inner_input,
            files: Arc::clone(&sandbox.files),
        }),
        Err(ending) => Box::pin(async { ending }),
    };
    let verdict = watch::Sender::new(None);
    let bounds = Bounds {
        verdict: verdict.subscribe(),
        state: sandbox.state.subscribe(),
        timeout: command.timeout,
        output_limit_bytes: command.output_limit_bytes,
    };
    let task = tokio::spawn(run(program, transcript, bounds)).abort_handle();
    Ok(Command { transcript: receiver, verdict, size, input, task })
}

type Sender = mpsc::Sender<Option<Vec<u8>>>;
type Receiver = mpsc::Receiver<Option<Vec<u8>>>;

/// The sender of a program's input, if it has one, and the receiver from which the program reads.
fn input(kind: &StandardInput) -> (Option<Sender>, Option<Receiver>) {
    let (sender, receiver) = mpsc::channel(WAITING);
    match kind {
        StandardInput::Empty => (None, None),
        StandardInput::Streamed => (Some(sender), Some(receiver)),
        StandardInput::Whole(bytes) => {
            // The input ends when the sender is dropped.
            let _ = sender.try_send(Some(bytes.clone()));
            (None, Some(receiver))
        }
    }
}

/// The program that the arguments denote, and the arguments that it sees.
fn find(
    programs: &BTreeMap<String, Program>,
    files: &Tree,
    arguments: Vec<OsString>,
) -> std::result::Result<(Program, Vec<OsString>), Errno> {
    if arguments.iter().any(|word| word.len() >= ARGUMENT_BYTES) {
        return Err(Errno::TOOBIG);
    }
    let name = arguments.first().ok_or(Errno::NOENT)?;
    let path = Path::new(name);
    if name.as_bytes().contains(&b'/')
        && let Ok(info) = files.info(path)
    {
        let executable = info.kind != FileKind::Directory && info.mode & 0o111 != 0;
        return Err(if executable { Errno::NOEXEC } else { Errno::ACCESS });
    }
    let name = path.file_name().unwrap_or(name).to_string_lossy();
    if let Some(program) = programs.get(name.as_ref()) {
        return Ok((Arc::clone(program), arguments));
    }
    match arguments.as_slice() {
        [_, option, text] if matches!(name.as_ref(), "sh" | "bash") && option == "-c" => {
            let text = text.to_string_lossy();
            if let Some(program) = programs.get(text.as_ref()) {
                return Ok((Arc::clone(program), vec![text.as_ref().into()]));
            }
            find(programs, files, text.split_whitespace().map(OsString::from).collect())
        }
        _ => Err(Errno::NOENT),
    }
}

fn not_run(errno: i32, step: &str) -> Ending {
    Ending::NotRun { errno, step: step.to_owned().into() }
}
