//! The last phases of the inner half where bubblewrap makes the innermost namespaces: the host's root
//! comes back beside the assembled file system, because bubblewrap and its libraries are files of the
//! host, and bubblewrap is executed. It leaves the host's root for good, and executes init.

use std::ffi::{CStr, CString, OsStr};
use std::io::Write as _;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::ptr::null_mut;
use std::sync::atomic::AtomicPtr;

use rustix::fs::{CWD, FileType, MemfdFlags, Mode, OFlags};
use rustix::io::{Errno, FdFlags};
use rustix::mount::{OpenTreeFlags, open_tree};

use super::filesystem::Files;
use super::identity::wait_for_go;
use super::privileges::landlock_version;
use crate::attach::attach_mount;
use crate::channel::Channel;
use crate::dev_proc::{MASKED_DIRECTORIES, MASKED_FILES};
use crate::executed::{ARGUMENT, Configuration};
use crate::mounts::{self, At as _, Failure};
use crate::network::Listeners;
use crate::spec::{Bubblewrap, JailSpec, Network, Task};
use crate::vm_helper::VmHelper;
use crate::walls::Wall;
use crate::{capabilities, seccomp, sys};

/// The directories of the host of which one receives the assembled file system for a moment. Most hosts
/// have all of them.
const PLACES: [&str; 6] = ["/mnt", "/media", "/srv", "/opt", "/home", "/var"];

/// What is needed of the host, opened while its root is mounted.
pub(super) struct HostRoot {
    /// All mounts of the host, as this namespace has them.
    tree: OwnedFd,
    /// This program, which continues as init.
    own: OwnedFd,
    bubblewrap: Bubblewrap,
}

impl HostRoot {
    /// Opens it, if the task is to be served by bubblewrap.
    pub(super) fn open(task: &mut Task) -> Result<Option<Self>, Failure> {
        let Task::Serve { bubblewrap, .. } = task else { return Ok(None) };
        let Some(bubblewrap) = bubblewrap.take() else { return Ok(None) };
        let flags = OpenTreeFlags::OPEN_TREE_CLONE
            | OpenTreeFlags::OPEN_TREE_CLOEXEC
            | OpenTreeFlags::AT_RECURSIVE;
        let tree = open_tree(CWD, "/", flags)
            .at(Wall::Root, || "clone the mounts for bubblewrap".to_owned())?;
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let own = rustix::fs::open("/proc/self/exe", flags, Mode::empty())
            .at(Wall::Pid, || "open the program of init".to_owned())?;
        Ok(Some(Self { tree, own, bubblewrap }))
    }
}

/// Executes bubblewrap; returns only if that fails.
pub(super) fn execute(
    spec: JailSpec,
    channel: &Channel,
    helper: &VmHelper,
    files: Files,
    host: HostRoot,
) -> Failure {
    match try_execute(spec, channel, helper, files, host) {
        Ok(never) => match never {},
        Err(failure) => failure,
    }
}

fn try_execute(
    spec: JailSpec,
    channel: &Channel,
    helper: &VmHelper,
    files: Files,
    host: HostRoot,
) -> Result<std::convert::Infallible, Failure> {
    let HostRoot { tree, own, bubblewrap } = host;
    let landlock = landlock_version(&spec)?;
    if spec.identity.range().is_none() {
        wait_for_go(channel, 0)?;
    }
    helper.finish()?;
    let listeners = helper.listeners();
    let place = enter_host_beside(&tree)?;
    let Task::Serve { listener, lease, .. } = &spec.task else {
        return Err(Errno::INVAL).at(Wall::Inheritance, || "select the task".to_owned());
    };
    let kept: Vec<BorrowedFd<'_>> = [channel.as_fd(), listener.as_fd()]
        .into_iter()
        .chain(spec.locks.iter().map(|lock| lock.as_fd()))
        .chain(listeners.iter().flat_map(Listeners::each))
        .collect();
    let configuration = Configuration {
        channel: channel.as_fd().as_raw_fd(),
        listener: listener.as_raw_fd(),
        locks: spec.locks.iter().map(|lock| lock.as_raw_fd()).collect(),
        listeners: listeners.iter().flat_map(Listeners::each).map(|it| it.as_raw_fd()).collect(),
        lease: *lease,
        user: bubblewrap.user,
        group: bubblewrap.group,
        landlock,
        rlimits: spec.rlimits,
        targets: files.landlock_targets,
        sockets: files.socket_targets,
    };
    let configuration = memory(&configuration.encode())?;
    let filter: Vec<u8> = seccomp::program(files.set_id_bits)
        .iter()
        .flat_map(|step| {
            let [code_low, code_high] = step.code.to_ne_bytes();
            let head = [code_low, code_high, step.jt, step.jf];
            head.into_iter().chain(step.k.to_ne_bytes())
        })
        .collect();
    let filter = memory(&filter)?;
    let arguments = memory(&arguments(&spec, &bubblewrap, place, &filter))?;
    let command = [
        c_string(b"bwrap")?,
        c_string(b"--args")?,
        number(&arguments)?,
        c_string(b"--")?,
        c_string(format!("/proc/self/fd/{}", own.as_raw_fd()).as_bytes())?,
        c_string(ARGUMENT.as_bytes())?,
        number(&configuration)?,
    ];
    let program = c_string(bubblewrap.program.as_os_str().as_bytes())?;
    open_streams(&bubblewrap)?;
    give_up(&spec, &bubblewrap)?;
    sys::close_on_exec_from(3).at(Wall::Inheritance, || "close the descriptors".to_owned())?;
    let own = [&arguments, &configuration, &filter, &own].map(|open| open.as_fd());
    for open in kept.into_iter().chain(own) {
        rustix::io::fcntl_setfd(open, FdFlags::empty())
            .at(Wall::Inheritance, || "pass on a descriptor".to_owned())?;
    }
    let pointers: Vec<_> = command
        .iter()
        .map(|word| word.as_ptr().cast_mut())
        .chain([null_mut()])
        .map(AtomicPtr::new)
        .collect();
    let error = sys::exec(&program, &pointers, &[AtomicPtr::new(null_mut())]);
    Err(error).at(Wall::Pid, || format!("execute {}", bubblewrap.program.display()))
}

/// Makes the host's mounts the root again, and attaches the file system that was assembled at one of
/// its directories. Returns that.
fn enter_host_beside(host: &OwnedFd) -> Result<&'static str, Failure> {
    let step = |text: &'static str| move || text.to_owned();
    let flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_RECURSIVE;
    let assembled = open_tree(CWD, "/", flags).at(Wall::Root, step("clone the assembled root"))?;
    mounts::enter_root(host)?;
    let is_directory = |path: &&str| {
        rustix::fs::lstat(*path)
            .is_ok_and(|found| FileType::from_raw_mode(found.st_mode) == FileType::Directory)
    };
    let place = PLACES.into_iter().find(is_directory).ok_or(Errno::NOENT);
    let place = place.at(Wall::Root, || format!("find one of {}", PLACES.join(", ")))?;
    attach_mount(&assembled, Path::new(place)).at(Wall::Root, step("attach the assembled root"))?;
    Ok(place)
}

/// The arguments of bubblewrap, each with a NUL byte at its end. They reach it through a file, so
/// that no process of the host reads them.
fn arguments(spec: &JailSpec, bubblewrap: &Bubblewrap, place: &str, filter: &OwnedFd) -> Vec<u8> {
    let (user, group) = (bubblewrap.user.to_string(), bubblewrap.group.to_string());
    let filter = filter.as_raw_fd().to_string();
    let mut words: Vec<&[u8]> = Vec::new();
    let mut add = |some: &[&'static str]| words.extend(some.iter().map(|word| word.as_bytes()));
    add(&["--unshare-user", "--unshare-ipc", "--unshare-pid", "--unshare-uts"]);
    add(&["--unshare-cgroup", "--as-pid-1", "--new-session", "--clearenv"]);
    add(&["--cap-drop", "ALL"]);
    if spec.network == Network::Off {
        // With a policy, the network around bubblewrap is the jail's own already, with the listeners.
        add(&["--unshare-net"]);
    }
    let masked_files: Vec<&CStr> = MASKED_FILES.into_iter().filter(|path| exists(path)).collect();
    let masked_directories: Vec<&CStr> =
        MASKED_DIRECTORIES.into_iter().filter(|path| exists(path)).collect();
    words.extend([b"--uid", user.as_bytes(), b"--gid", group.as_bytes()]);
    words.extend([b"--hostname", spec.hostname.as_bytes()]);
    words.extend([b"--dev-bind", place.as_bytes(), b"/", b"--proc", b"/proc"]);
    for path in masked_files {
        words.extend([b"--ro-bind", &b"/dev/null"[..], path.to_bytes()]);
    }
    for path in masked_directories {
        words.extend([b"--perms", &b"0555"[..], b"--tmpfs", path.to_bytes()]);
        words.extend([b"--remount-ro", path.to_bytes()]);
    }
    words.extend([b"--remount-ro", &b"/proc"[..], b"--chdir", b"/"]);
    words.extend([b"--seccomp", filter.as_bytes()]);
    words.into_iter().flat_map(|word| word.iter().copied().chain([0])).collect()
}

fn exists(path: &CStr) -> bool {
    rustix::fs::lstat(path).is_ok()
}

/// Standard input and output lead nowhere; standard error leads to the launcher.
fn open_streams(bubblewrap: &Bubblewrap) -> Result<(), Failure> {
    let step = || "open the streams of bubblewrap".to_owned();
    let null = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty());
    let null = null.at(Wall::Inheritance, step)?;
    rustix::stdio::dup2_stdin(&null).at(Wall::Inheritance, step)?;
    rustix::stdio::dup2_stdout(&null).at(Wall::Inheritance, step)?;
    rustix::stdio::dup2_stderr(&bubblewrap.log).at(Wall::Inheritance, step)
}

/// Takes on the only user of the jail, and gives up what built it: bubblewrap is an ordinary program
/// of that user.
fn give_up(spec: &JailSpec, bubblewrap: &Bubblewrap) -> Result<(), Failure> {
    let words = |text: &'static str| move || text.to_owned();
    rustix::process::setsid().at(Wall::Inheritance, words("leave the caller's session"))?;
    match bubblewrap.user {
        0 => capabilities::drop_bounding_to_map_root(),
        _ => capabilities::drop_bounding(),
    }
    .at(Wall::Capabilities, words("empty the bounding set"))?;
    if spec.identity.range().is_some() {
        sys::become_ids(bubblewrap.user, bubblewrap.group, false)
            .at(Wall::User, words("switch to the user of the jail"))?;
    }
    match bubblewrap.user {
        0 => capabilities::keep_to_map_root(),
        _ => capabilities::drop_all(),
    }
    .at(Wall::Capabilities, words("drop all capabilities"))?;
    // From here on the lease of init bounds the life of the jail.
    sys::prctl(libc::PR_SET_PDEATHSIG, 0).at(Wall::Pid, words("clear the parent-death signal"))?;
    sys::prctl(libc::PR_SET_NO_NEW_PRIVS, 1)
        .at(Wall::NoNewPrivileges, words("set no_new_privs"))?;
    sys::reset_signals();
    Ok(())
}

/// A file in memory with this content.
fn memory(content: &[u8]) -> Result<OwnedFd, Failure> {
    let step = || "pass on the configuration".to_owned();
    let file =
        rustix::fs::memfd_create("stockade", MemfdFlags::CLOEXEC).at(Wall::Inheritance, step)?;
    let mut file = std::fs::File::from(file);
    file.write_all(content).at(Wall::Inheritance, step)?;
    rustix::fs::seek(&file, rustix::fs::SeekFrom::Start(0)).at(Wall::Inheritance, step)?;
    Ok(file.into())
}

fn number(descriptor: &OwnedFd) -> Result<CString, Failure> {
    c_string(descriptor.as_raw_fd().to_string().as_bytes())
}

fn c_string(text: &[u8]) -> Result<CString, Failure> {
    mounts::c_path(Path::new(OsStr::from_bytes(text)))
        .at(Wall::Inheritance, || "name the program".to_owned())
}
