//! The native backend and that of bubblewrap under test: each case has its own data directory and the
//! keeper that serves it.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests fail by panicking, as tests do"
)]

use std::ffi::OsString;
use std::fs;
use std::io::Write as _;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command as Process;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, connect, recv,
    send, socket_with, sockopt,
};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use stockade_core::sandbox::Root;
use stockade_core::{ExecId, SandboxId, SandboxSpec};
use stockade_runtime::conformance::Backend;
use stockade_runtime::{Command, Runtime, SandboxPath, Target, WriteOptions};
use stockade_runtime_bwrap::Bwrap;
use stockade_runtime_native::bubblewrap::{self, Launcher};
use stockade_runtime_native::wire::{PROTOCOL, Request, encode};
use stockade_runtime_native::{Native, Options};
use tempfile::TempDir;

use stockade_test_support::program;

/// The first argument of the binary as a keeper.
const KEEPER: &str = "__keeper";
/// The same for the sandboxes of bubblewrap.
const BWRAP_KEEPER: &str = "__keeper-bwrap";
/// Some cases get a sandbox from the pool, the others a new one.
const POOL: usize = 1;
/// How long a keeper may take to end.
const DEADLINE: Duration = Duration::from_secs(20);

/// A backend without sandboxes.
pub(crate) fn backend() -> Result<Arc<dyn Backend>, String> {
    Ok(Arc::new(NativeFixture::new(POOL)))
}

/// The backend whose sandboxes have an image of the store as their root.
///
/// # Errors
/// Why it is not usable here.
pub(crate) fn image_backend() -> Result<Arc<dyn Backend>, String> {
    let mut fixture = NativeFixture::new(0);
    fixture.image = Some(fixture.import_image()?);
    Ok(Arc::new(fixture))
}

/// The backend of bubblewrap without sandboxes.
///
/// # Errors
/// Why it is not usable here.
pub(crate) fn bwrap_backend() -> Result<Arc<dyn Backend>, String> {
    bubblewrap::probe().map_err(|unsupported| unsupported.reason)?;
    Ok(Arc::new(NativeFixture::for_launcher(Launcher::Bubblewrap, 0)))
}

/// The command line of the built keeper for a launcher.
pub(crate) fn keeper(launcher: Launcher) -> Vec<OsString> {
    let argument = match launcher {
        Launcher::Own => KEEPER,
        Launcher::Bubblewrap => BWRAP_KEEPER,
    };
    vec![program("stockade").into(), argument.into()]
}

/// A data directory, and how its keepers are started.
#[derive(Debug)]
pub(crate) struct NativeFixture {
    launcher: Launcher,
    directory: TempDir,
    keeper: Vec<OsString>,
    pool: usize,
    /// The digest of the image that is the root.
    image: Option<String>,
}

#[async_trait]
impl Backend for NativeFixture {
    async fn open(&self) -> Result<Arc<dyn Runtime>, String> {
        match self.launcher {
            Launcher::Own => Ok(Arc::new(self.client())),
            Launcher::Bubblewrap => {
                let opened = Bwrap::open(self.data(), self.keeper.clone());
                opened.map(|bwrap| Arc::new(bwrap) as _).map_err(|error| error.to_string())
            }
        }
    }

    fn spec(&self) -> SandboxSpec {
        let root = self.image.clone().map_or(Root::Host, Root::Image);
        SandboxSpec { root, ..SandboxSpec::default() }
    }

    fn server(&self) -> Result<(), String> {
        Ok(())
    }

    async fn serve(&self, runtime: &dyn Runtime, id: &SandboxId, target: &Target) {
        let file = SandboxPath::new("/data/echo").unwrap();
        let content = Box::pin(std::io::Cursor::new(fs::read(program("echo")).unwrap()));
        let options = WriteOptions { mode: 0o755, ..WriteOptions::default() };
        runtime.write_file(id, &file, content, options).await.unwrap();
        let (kind, dir) = match target {
            Target::Tcp(port) => ("tcp", port.to_string()),
            Target::Unix(path) => ("unix", path.to_string()),
        };
        let arguments = ["/data/echo", kind, &dir].map(OsString::from).into();
        let command = Command { arguments, ..Command::default() };
        let exec = ExecId::new(format!("echo-{kind}")).unwrap();
        runtime.execute(id, &exec, &command).await.unwrap();
    }

    fn holder(&self) -> Result<(), String> {
        Ok(())
    }

    async fn kill_holder(&self) {
        let (_, keeper) = self.running_keeper().unwrap_or_else(|| panic!("no keeper lives"));
        pidfd_send_signal(&keeper, Signal::KILL).unwrap();
        assert!(has_ended(&keeper), "the keeper cannot be killed");
    }

    async fn leftovers(&self) -> Vec<String> {
        let of_cases = |name: &OsString| name.to_string_lossy().starts_with("case-");
        let mut left = Vec::new();
        for part in ["sandboxes", "snapshots"] {
            let names = names(&self.runtime().join(part));
            left.extend(names.filter(of_cases).map(|name| format!("{part}/{}", name.display())));
        }
        for part in ["staging", "trash"] {
            let names = names(&self.runtime().join(part));
            left.extend(names.map(|name| format!("{part}/{}", name.display())));
        }
        left
    }

    /// Requests the keeper to end when it has no sandboxes, and checks that it does.
    async fn close(&self) {
        let Some((socket, keeper)) = self.running_keeper() else { return };
        for request in [Request::Hello { protocol: PROTOCOL }, Request::Drain] {
            // The first byte of each message states how it is sent.
            let message = [vec![0], encode(&request, &[]).unwrap()].concat();
            send(&socket, &message, SendFlags::NOSIGNAL).unwrap();
            let mut answer = vec![0; 4096];
            recv(&socket, &mut answer, RecvFlags::empty()).unwrap();
        }
        drop(socket);
        if !has_ended(&keeper) {
            pidfd_send_signal(&keeper, Signal::KILL).unwrap();
            panic!("a keeper that should make way does not:\n{}", self.log());
        }
    }
}

impl NativeFixture {
    /// A data directory whose keepers have a pool of this size.
    pub(crate) fn new(pool: usize) -> Self {
        Self::for_launcher(Launcher::Own, pool)
    }

    fn for_launcher(launcher: Launcher, pool: usize) -> Self {
        let dir = tempfile::Builder::new().prefix("stockade-runtime-").tempdir().unwrap();
        Self { launcher, directory: dir, keeper: keeper(launcher), pool, image: None }
    }

    /// Adds an image with a busybox and what the program for servers needs to the store. Returns its
    /// digest.
    fn import_image(&self) -> Result<String, String> {
        let root = self.directory.path().join("root");
        let mut making = Process::new("/bin/sh");
        making.args(["-c", IMAGE]).arg(&root).arg(program("echo"));
        let made = making.output().map_err(|error| error.to_string())?;
        if !made.status.success() {
            return Err(String::from_utf8_lossy(&made.stderr).trim().to_owned());
        }
        let stockade = |words: &[&str]| {
            let mut command = Process::new(program("stockade"));
            command.args(words).env("STOCKADE_DATA_DIR", self.data());
            let done = command.output().map_err(|error| error.to_string())?;
            match done.status.success() {
                true => Ok(done.stdout),
                false => Err(String::from_utf8_lossy(&done.stderr).into_owned()),
            }
        };
        let source = format!("dir:{}", root.display());
        stockade(&["image", "import", &source, "t:1"]).unwrap();
        let listed = stockade(&["image", "ls", "--json"]).unwrap();
        let listed: serde_json::Value = serde_json::from_slice(&listed).unwrap();
        Ok(listed["images"][0]["digest"].as_str().unwrap().to_owned())
    }

    /// The same, with keepers that are started through another program with these arguments.
    pub(crate) fn under(mut self, words: &[&str]) -> Self {
        self.keeper.splice(0..0, words.iter().map(OsString::from));
        self
    }

    /// A separate client.
    pub(crate) fn client(&self) -> Native {
        let (data, keeper) = (self.data(), self.keeper.clone());
        Native::open(Options { data, keeper, pool: self.pool }).unwrap()
    }

    /// The data directory.
    pub(crate) fn data(&self) -> PathBuf {
        self.directory.path().join("data")
    }

    /// The directory that clients and keepers share.
    pub(crate) fn runtime(&self) -> PathBuf {
        let name = match self.launcher {
            Launcher::Own => "runtime",
            Launcher::Bubblewrap => "runtime-bwrap",
        };
        self.data().join(name).join(PROTOCOL.to_string())
    }

    /// The process of the running keeper.
    pub(crate) fn process(&self) -> Option<OwnedFd> {
        self.running_keeper().map(|(_, process)| process)
    }

    /// Removes the data directory.
    pub(crate) fn remove(&self) {
        assert!(remove(&self.data()), "what is in use can be removed");
    }

    /// A connection to the running keeper, on which nothing was sent.
    pub(crate) fn connection(&self) -> Option<OwnedFd> {
        self.running_keeper().map(|(socket, _)| socket)
    }

    /// A connection to the running keeper, and its process.
    fn running_keeper(&self) -> Option<(OwnedFd, OwnedFd)> {
        let socket =
            socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
                .unwrap();
        let address = SocketAddrUnix::new(self.runtime().join("socket")).unwrap();
        connect(&socket, &address).ok()?;
        let process: Pid = sockopt::socket_peercred(&socket).unwrap().pid;
        let keeper = pidfd_open(process, PidfdFlags::empty()).ok()?;
        Some((socket, keeper))
    }

    fn log(&self) -> String {
        fs::read_to_string(self.runtime().join("log")).unwrap_or_default()
    }
}

impl Drop for NativeFixture {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // The keeper's log helps to find out why a case failed.
            let _ = writeln!(std::io::stderr(), "the keeper's log:\n{}", self.log());
        }
        remove(self.directory.path());
    }
}

/// Makes the root file system of an image: `$0` is where, `$1` a program whose libraries it gets.
const IMAGE: &str = "set -e
[ -x /bin/busybox ] || { echo 'busybox is not installed' >&2; exit 1; }
if ldd /bin/busybox >/dev/null 2>&1; then echo 'busybox is not static' >&2; exit 1; fi
mkdir -p $0/bin $0/etc $0/tmp $0/root $0/data $0/home/user
cp /bin/busybox $0/bin
# Some builds list themselves.
for name in $(busybox --list); do [ $name = busybox ] || ln -s busybox $0/bin/$name; done
echo root:x:0:0:root:/root:/bin/sh > $0/etc/passwd
echo root:x:0: > $0/etc/group
for file in $(ldd $1 | grep -o '/[^ ]*so[^ ]*' | sort -u); do
    mkdir -p $0$(dirname $file)
    cp -L $file $0$file
done
chmod 1777 $0 $0/tmp $0/data $0/home/user";

/// Removes a directory; returns whether it no longer exists. What a keeper has started may run for
/// a moment longer, and it may contain directories that an ordinary user cannot remove as they are.
fn remove(directory: &Path) -> bool {
    for _ in 0..100 {
        if fs::remove_dir_all(directory).is_ok() {
            return true;
        }
        open(directory);
        std::thread::sleep(Duration::from_millis(20));
    }
    false
}

/// Gives the file owner of a directory access to it and to all directories below it.
fn open(directory: &Path) {
    let _ = fs::set_permissions(directory, fs::Permissions::from_mode(0o700));
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            open(&entry.path());
        }
    }
}

fn names(directory: &Path) -> impl Iterator<Item = OsString> + use<> {
    fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.file_name())
}

/// Whether a process ends within the deadline.
fn has_ended(process: &OwnedFd) -> bool {
    let mut news = [PollFd::from_borrowed_fd(process.as_fd(), PollFlags::IN)];
    poll(&mut news, Some(&Timespec::try_from(DEADLINE).unwrap())).unwrap() == 1
}
