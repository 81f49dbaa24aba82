//! The confined process that downloads an image from a registry: its standard input is the request,
//! its standard output the events. It ends when its standard input is closed.
//!
//! It reads the user's credentials and the system's authorities, then gives up every file but the
//! directory of the download and what resolving names needs, and only then contacts a registry.

use std::ffi::OsString;
use std::io::{BufRead as _, Read as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::Path;

use rustix::fs::{Mode, OFlags};
use stockade_cli::programs::check_build;
use stockade_core::{Code, Problem};
use stockade_jail::confined;
use stockade_jail::landlock::{Access, Target};
use stockade_jail::rlimits::ResourceLimits;
use stockade_registry::{Credentials, Times, Trust};
use stockade_registry_control::{Event, MAX_LINE_BYTES, Request};
use tokio::io::AsyncReadExt as _;

/// What the C library reads to resolve a name.
const NAME_SERVICE: &[&str] = &[
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

/// Downloads the image of the request. Returns the exit code of the process.
pub(crate) fn process(arguments: &[OsString]) -> u8 {
    match check_build(arguments).and_then(|_| request()).and_then(|request| download(&request)) {
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

fn download(request: &Request) -> Result<(), Problem> {
    let io = |error: std::io::Error| Problem::caused(Code::Io, &error);
    let registry = |error: stockade_registry::Error| stockade_registry::problem(&error);
    let variable = |name: &str| std::env::var_os(name);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(io)?;
    let hosts = stockade_registry::hosts(&request.registry, &request.access).map_err(registry)?;
    let credentials = runtime.block_on(Credentials::load(&hosts, variable));
    let trust = Trust::load(&hosts, variable("SSL_CERT_FILE").map(Into::into));
    confine(&request.directory)?;
    let done = runtime.block_on(async {
        let download =
            stockade_registry::download(request, &credentials, trust, Times::default(), &|event| {
                report(&event)
            });
        tokio::select! {
            done = download => done.map_err(registry),
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
