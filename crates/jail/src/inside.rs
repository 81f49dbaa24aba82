//! The inner half of a launch: what the first process of the jail does, from
//! its first instruction to its turning into init.
//!
//! Runs in a copy of the caller with a single thread; it never returns.

use std::ffi::CString;
use std::fs;
use std::io;
use std::os::fd::{AsFd as _, AsRawFd, OwnedFd};

use rustix::io::Errno;

use crate::channel::{Channel, FromInit, ToInit};
use crate::command;
use crate::identity::Identity;
use crate::init;
use crate::mounts::{self, At as _, Failure};
use crate::pty;
use crate::seccomp::SetIdBits;
use crate::spec::{Access, JailSpec, Mount, Owners, Source, Streams};
use crate::walls::Wall;
use crate::{argv, capabilities, landlock, network, seccomp, sys};

/// The inner ends of the command's streams.
#[derive(Debug)]
pub(crate) enum InnerStreams {
    /// Standard input, output and error.
    Pipes([OwnedFd; 3]),
    /// To be opened inside.
    Terminal,
}

/// Raises every wall, starts the command and stays as init.
pub(crate) fn run(spec: JailSpec, channel: Channel, streams: InnerStreams) -> ! {
    let code = match start(spec, &channel, streams) {
        Ok(command) => init::run(&channel, command),
        Err(failure) => {
            report(&channel, failure);
            1
        }
    };
    sys::exit_now(code)
}

pub(crate) fn report(channel: &Channel, failure: Failure) {
    let Failure { wall, step, errno } = failure;
    // The supervisor sees the end of the socket when this cannot be sent.
    let _ = channel.send(&FromInit::Failed { wall, errno, step }.encode(), &[]);
}

fn start(
    mut spec: JailSpec,
    channel: &Channel,
    streams: InnerStreams,
) -> Result<libc::pid_t, Failure> {
    let words = |text: &'static str| move || text.to_owned();
    let network = network::Pending::start().at(Wall::Network, words("start making the network"))?;
    let handed = assume_identity(&spec, channel)?;
    bind_to_supervisor()?;
    let writable = writable_places(&spec).at(Wall::Landlock, words("name the writable places"))?;
    let set_id_bits = set_id_bits(&spec);
    let root = std::mem::replace(&mut spec.root, Source::Empty);
    let mounts = std::mem::take(&mut spec.mounts);
    let by_range = spec.identity.range().is_some();
    mounts::separate()?;
    let mut assembly = mounts::gather(root, mounts, handed)?;
    argv::forget();
    let upper = assembly.upper.take();
    assembly.leave_host_root()?;
    let proc_missing = !assembly.attach()?;
    sys::set_host_name(&spec.hostname).at(Wall::HostName, words("set the host name"))?;
    // A namespace is entered only through a process whose memory may be looked at, and the
    // helper's is this one's. Nobody is here yet who could.
    sys::prctl(libc::PR_SET_DUMPABLE, 1).at(Wall::Network, words("open up to the network"))?;
    network.enter().at(Wall::Network, words("enter the network"))?;
    sys::prctl(libc::PR_SET_DUMPABLE, 0).at(Wall::Inheritance, words("become undumpable"))?;
    let landlock = match landlock::abi() {
        Ok(version) => version.cast_signed(),
        Err(_) if spec.landlock_optional => 0,
        Err(e) => {
            return Err(io::Error::from(e)).at(Wall::Landlock, words("ask for Landlock's version"));
        }
    };

    let (streams, master) = match (streams, spec.streams) {
        (InnerStreams::Pipes(pipes), _) => (command::Streams::Pipes(pipes), None),
        (InnerStreams::Terminal, Streams::Terminal(size)) => {
            let (user, group) = (spec.command.user, spec.command.group);
            let (master, slave) =
                pty::open(size, user, group).at(Wall::Devices, words("open a terminal"))?;
            (command::Streams::Terminal(slave), Some(master))
        }
        (InnerStreams::Terminal, Streams::Pipes) => {
            return Err(Errno::INVAL).at(Wall::Devices, words("choose the streams"));
        }
    };
    if !by_range {
        wait_for_go(channel, 0)?;
    }
    // The supervisor has put this process into its groups before the word to go.
    sys::hide_outer_groups().at(Wall::Cgroup, words("hide the outer control groups"))?;
    let ready = FromInit::Ready {
        terminal: master.is_some(),
        upper: upper.is_some(),
        proc_missing,
        landlock,
    };
    let descriptors: Vec<_> = master.iter().chain(&upper).map(|fd| fd.as_fd()).collect();
    channel
        .send(&ready.encode(), &descriptors)
        .at(Wall::Inheritance, words("report to the supervisor"))?;
    drop(master);
    drop(upper);

    give_up(&spec, channel, &streams, set_id_bits)?;
    let child = || command::run(&spec, channel, &streams, &writable, landlock > 0);
    // SAFETY: this process has had a single thread since it was made, and the command's process
    // only borrows what is here.
    let pid = unsafe { sys::spawn_sharing_memory(&child) };
    drop(streams);
    // What it owned is closed already; dropping it would close numbers that are in use.
    std::mem::forget(spec);
    pid.at(Wall::Pid, words("start the command"))
}

/// Gives up everything that neither init nor the command needs, once for both: the descriptors,
/// the caller's session, the ids that built the jail, every capability.
fn give_up(
    spec: &JailSpec,
    channel: &Channel,
    streams: &command::Streams,
    set_id_bits: SetIdBits,
) -> Result<(), Failure> {
    let words = |text: &'static str| move || text.to_owned();
    rustix::process::setsid().at(Wall::Inheritance, words("leave the caller's session"))?;
    capabilities::drop_bounding().at(Wall::Capabilities, words("empty the bounding set"))?;
    if spec.identity.range().is_some() {
        // The command's own ids are enough for init to end it.
        sys::become_ids(spec.command.user, spec.command.group, false)
            .at(Wall::User, words("take on the command's ids"))?;
    }
    capabilities::drop_all().at(Wall::Capabilities, words("drop all capabilities"))?;
    // A change of ids undoes both (`prctl(2)`).
    bind_to_supervisor()?;
    sys::prctl(libc::PR_SET_NO_NEW_PRIVS, 1)
        .at(Wall::NoNewPrivileges, words("set no_new_privs"))?;
    seccomp::install(&seccomp::program(set_id_bits))
        .at(Wall::Seccomp, words("install the filter"))?;
    let kept = spec.kept.iter().map(AsRawFd::as_raw_fd);
    let kept = kept.chain(streams.descriptors()).chain([channel.as_fd().as_raw_fd()]).collect();
    sys::close_all_but(kept).at(Wall::Inheritance, words("close the descriptors"))
}

/// Ends this process with its supervisor, and keeps its memory from everybody else.
fn bind_to_supervisor() -> Result<(), Failure> {
    let words = |text: &'static str| move || text.to_owned();
    sys::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL.cast_unsigned().into())
        .at(Wall::Pid, words("bind this life to the supervisor's"))?;
    sys::prctl(libc::PR_SET_DUMPABLE, 0).at(Wall::Inheritance, words("become undumpable"))
}

/// Maps the ids, or waits until the supervisor has, and takes them on.
fn assume_identity(spec: &JailSpec, channel: &Channel) -> Result<Option<Vec<OwnedFd>>, Failure> {
    let words = |text: &'static str| move || text.to_owned();
    match &spec.identity {
        Identity::Own { .. } => {
            let (users, groups) = spec.identity.maps();
            for (file, text) in
                [("setgroups", "deny"), ("uid_map", users.as_str()), ("gid_map", groups.as_str())]
            {
                fs::write(format!("/proc/self/{file}"), text)
                    .at(Wall::User, || format!("write {file}"))?;
            }
            Ok(None)
        }
        Identity::Range(_) => {
            let count = mounts::handed_in(&spec.root, &spec.mounts).count();
            let trees = wait_for_go(channel, count)?;
            sys::become_ids(0, 0, true).at(Wall::User, words("take on the inside ids"))?;
            Ok(Some(trees))
        }
    }
}

/// Waits for the supervisor's word and for this many trees, which may come in several messages.
fn wait_for_go(channel: &Channel, trees: usize) -> Result<Vec<OwnedFd>, Failure> {
    let words = |text: &'static str| move || text.to_owned();
    let mut received = Vec::with_capacity(trees);
    loop {
        match channel.receive().at(Wall::User, words("wait for the supervisor"))? {
            Some((bytes, descriptors)) if ToInit::decode(&bytes) == Some(ToInit::Go) => {
                received.extend(descriptors);
            }
            Some(_) => {}
            None => {
                let gone = io::Error::from(Errno::PIPE);
                return Err(gone).at(Wall::User, words("wait for the supervisor"));
            }
        }
        if received.len() >= trees {
            return Ok(received);
        }
    }
}

/// Where the command may write, for Landlock.
fn writable_places(spec: &JailSpec) -> io::Result<Vec<CString>> {
    let writable = |mount: &Mount| match mount {
        Mount::Scratch(_) | Mount::Tree(Source::Overlay(_)) => true,
        Mount::Tree(Source::Host { access, .. }) => *access == Access::Write,
        Mount::Tree(Source::Empty) | Mount::File(_) | Mount::Link(_) | Mount::Directory => false,
    };
    spec.mounts
        .iter()
        .filter(|(_, mount)| writable(mount))
        .map(|(target, _)| mounts::c_path(target))
        .chain([Ok(c"/dev/shm".to_owned())])
        .collect()
}

/// Whether files may become set-id programs: not where they would be the host's.
fn set_id_bits(spec: &JailSpec) -> SetIdBits {
    let of_host = |source: &Source| matches!(source, Source::Host { access: Access::Write, owners, .. } if *owners != Owners::Range);
    let mounted = spec.mounts.iter().any(|(_, mount)| match mount {
        Mount::Tree(source) => of_host(source),
        _ => false,
    });
    if mounted || of_host(&spec.root) { SetIdBits::Refused } else { SetIdBits::Allowed }
}
