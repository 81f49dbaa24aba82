//! The confined process that downloads an image from a registry: its standard input is the request,
//! its standard output the events. It ends when its standard input is closed.
//!
//! It reads the user's credentials and starts itself again without the user's environment, which
//! only credential helpers need. Then it reads the system's authorities, gives up every file but the
//! directory of the download and what resolving names needs, and only then contacts a registry.

use std::ffi::OsString;
use std::fs::File;
use std::io::{BufRead as _, Read as _, Seek as _, Write as _};
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::fs::{MemfdFlags, Mode, OFlags};
use stockade_cli::processes::DOWNLOAD;
use stockade_cli::programs::{OWN_EXECUTABLE, build_argument, check_build};
use stockade_core::{Code, Problem};
use stockade_jail::confined;
use stockade_jail::landlock::{Access, Target};
use stockade_jail::rlimits::ResourceLimits;
use stockade_registry::{Credentials, Times, Trust};
use stockade_registry_control::{Event, MAX_LINE_BYTES, Request};
use tokio::io::AsyncReadExt as _;
use zeroize::Zeroizing;

/// What the C library reads to resolve a name.
pub(crate) const NAME_SERVICE: &[&str] = &[
    "/etc/gai.conf",
    "/etc/host.conf",
    "/etc/hosts",
    "/etc/ld.so.cache",
    "/etc/nsswitch.conf",
    "/etc/resolv.conf",
    "/etc/services",
    "/lib",
    "/lib64",
    "/usr/lib",
    "/usr/lib64",
];

/// The variable that names a file of authorities.
const AUTHORITIES_VARIABLE: &str = "SSL_CERT_FILE";

/// Downloads the image of the request. Returns the exit code of the process.
pub(crate) fn process(arguments: &[OsString]) -> u8 {
    let done = check_build(arguments).and_then(|arguments| match arguments {
        [] => Err(start_again(&request()?)?),
        [number] => {
            let (request, credentials) = handed_over(number)?;
            download(&request, &credentials)
        }
        _ => Err(Problem::new(Code::InvalidInput, "a download has no such arguments")),
    });
    match done {
        Ok(()) => 0,
        Err(problem) => {
            report(&Event::Failed { problem });
            1
        }
    }
}

fn request() -> Result<Request, Problem> {
    let invalid = |why: String| {
        Problem::new(Code::InvalidInput, "the request for a download is invalid").because(why)
    };
    let mut line = Vec::new();
    let mut input = std::io::stdin().lock().take(MAX_LINE_BYTES as u64);
    input.read_until(b'\n', &mut line).map_err(|error| invalid(error.to_string()))?;
    serde_json::from_slice(&line).map_err(|error| invalid(error.to_string()))
}

/// Reads the credentials, and executes this program again with them and without the environment.
/// Returns why that failed.
fn start_again(request: &Request) -> Result<Problem, Problem> {
    let credentials =
        runtime()?.block_on(Credentials::load(&hosts(request)?, |name| std::env::var_os(name)));
    // A file in memory, which only the next program can read.
    let memory = rustix::fs::memfd_create("download", MemfdFlags::empty());
    let mut memory = File::from(memory.map_err(|errno| io(&errno.into()))?);
    let text = serde_json::to_vec(&(request, &credentials)).map_err(|error| io(&error.into()))?;
    let text = Zeroizing::new(text);
    memory.write_all(&text).and_then(|()| memory.rewind()).map_err(|error| io(&error))?;
    let authorities = std::env::var_os(AUTHORITIES_VARIABLE);
    let error = Command::new(OWN_EXECUTABLE)
        .arg(DOWNLOAD)
        .arg(build_argument())
        .arg(memory.as_raw_fd().to_string())
        .env_clear()
        .envs(authorities.map(|path| (AUTHORITIES_VARIABLE, path)))
        .exec();
    Ok(Problem::caused(Code::LaunchFailed, &error))
}

/// The request and the credentials in the file with this number.
fn handed_over(number: &OsString) -> Result<(Request, Credentials), Problem> {
    let path = Path::new("/proc/self/fd").join(number);
    let text = Zeroizing::new(std::fs::read(path).map_err(|error| io(&error))?);
    serde_json::from_slice(&text).map_err(|error| io(&error.into()))
}

fn io(error: &std::io::Error) -> Problem {
    Problem::caused(Code::Io, error)
}

fn hosts(request: &Request) -> Result<Vec<String>, Problem> {
    let hosts = stockade_registry::hosts(&request.registry, &request.access);
    hosts.map_err(|error| stockade_registry::problem(&error))
}

fn runtime() -> Result<tokio::runtime::Runtime, Problem> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(|error| io(&error))
}

fn download(request: &Request, credentials: &Credentials) -> Result<(), Problem> {
    let runtime = runtime()?;
    let named = std::env::var_os(AUTHORITIES_VARIABLE).map(PathBuf::from);
    let trust = Trust::load(&hosts(request)?, named);
    confine(&request.directory)?;
    let done = runtime.block_on(async {
        let download =
            stockade_registry::download(request, credentials, trust, Times::default(), &|event| {
                report(&event);
            });
        tokio::select! {
            done = download => done.map_err(|error| stockade_registry::problem(&error)),
            () = closed() => {
                Err(Problem::new(Code::Cancelled, "the command that started the download ended"))
            }
        }
    });
    // A thread may still wait for the standard input, or for a name server.
    runtime.shutdown_background();
    done
}

/// Returns when the standard input is closed.
async fn closed() {
    let mut input = tokio::io::stdin();
    let mut bytes = [0; 64];
    while input.read(&mut bytes).await.is_ok_and(|count| count > 0) {}
}

/// Gives up all files but these.
fn confine(directory: &Path) -> Result<(), Problem> {
    let open = |path: &Path| -> rustix::io::Result<OwnedFd> {
        rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
    };
    let own = open(directory).map_err(|errno| {
        Problem::new(Code::Io, format!("cannot open {}", directory.display()))
            .because(errno.to_string())
    })?;
    let read: Vec<_> = NAME_SERVICE.iter().filter_map(|path| open(Path::new(path)).ok()).collect();
    let mut rules = vec![(Target::Open(own.as_fd()), Access::Change)];
    rules.extend(read.iter().map(|file| (Target::Open(file.as_fd()), Access::Read)));
    confined::confine_to(&ResourceLimits::default(), &rules)
        .map_err(|error| Problem::caused(Code::WallUnavailable, &error))
}

/// Writes an event. If nobody reads it, the standard input is closed, too.
fn report(event: &Event) {
    let Ok(mut line) = serde_json::to_vec(event) else { return };
    line.push(b'\n');
    let mut output = std::io::stdout().lock();
    let _ = output.write_all(&line).and_then(|()| output.flush());
}
