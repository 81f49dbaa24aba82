//! How the processes of this program are started.

use std::ffi::OsString;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::sync::OnceLock;

use rustix::fs::{Mode, OFlags};
use stockade_cli::processes::{BWRAP_KEEPER, EGRESS, KEEPER};
use stockade_cli::programs::{self, FRONT, OWN_EXECUTABLE, build_argument, sibling_program};
use stockade_core::{Code, Problem};
use stockade_egress_control::Program as EgressProgram;
use stockade_script::worker::Program;
use stockade_snippet::worker;
use stockade_workflow::authoring::Processes;

use crate::options::Programs;

/// The only argument of the process that runs a workflow file.
pub(crate) const REALM: &str = "__realm";
/// The first argument of the process that starts one command in a confined environment.
pub(crate) const COMMAND: &str = "__command";

/// The zygote program, from which snippet workers are forked.
pub(crate) fn snippets() -> Program {
    Program { path: OWN_EXECUTABLE.into(), arguments: vec![worker::ARGUMENT.into()] }
}

/// The processes of workflow files, for one command.
pub(crate) fn realms() -> Processes {
    Processes::new(realm())
}

/// The processes that a host starts.
///
/// # Errors
/// [`Code::Unsupported`] if `stockade` is missing, which runs the keeper.
pub(crate) fn programs() -> Result<Programs, Problem> {
    let front = sibling_program(FRONT)?;
    let server = front.with_file_name(programs::SERVER);
    Ok(Programs {
        keeper: keeper()?,
        bwrap_keeper: bwrap_keeper()?,
        realm: realm(),
        command: vec![OWN_EXECUTABLE.into(), COMMAND.into()],
        egress: EgressProgram {
            path: OWN_EXECUTABLE.into(),
            arguments: vec![EGRESS.into(), build_argument()],
        },
        child: vec![
            (FRONT.to_owned(), front.clone()),
            ("smithers".to_owned(), front),
            (programs::SERVER.to_owned(), server),
        ],
    })
}

/// The command line of the keeper. Its program is opened once: a server starts keepers for as long
/// as it runs, even after the file was replaced by another build.
pub(crate) fn keeper() -> Result<Vec<OsString>, Problem> {
    keeper_named(KEEPER)
}

/// The command line of the keeper of sandboxes that the program bubblewrap makes.
fn bwrap_keeper() -> Result<Vec<OsString>, Problem> {
    keeper_named(BWRAP_KEEPER)
}

fn keeper_named(argument: &str) -> Result<Vec<OsString>, Problem> {
    static PROGRAM: OnceLock<OwnedFd> = OnceLock::new();
    let program = match PROGRAM.get() {
        Some(program) => program,
        None => {
            let flags = OFlags::PATH | OFlags::CLOEXEC;
            let opened = rustix::fs::open(sibling_program(FRONT)?, flags, Mode::empty());
            let opened = opened.map_err(|error| Problem::caused(Code::Io, &error))?;
            PROGRAM.get_or_init(|| opened)
        }
    };
    let path = format!("/proc/self/fd/{}", program.as_raw_fd());
    Ok(vec![path.into(), argument.into(), build_argument()])
}

fn realm() -> Vec<OsString> {
    vec![OWN_EXECUTABLE.into(), REALM.into()]
}
