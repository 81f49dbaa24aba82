//! The init of a sandbox in a container that another engine has made: the engine has created the
//! namespaces, mounts and control groups, and started the program that runs this.
//!
//! ```text
//!   engine ── starts ──► init ── connects ──► a client of the keeper ── passes it on ──► keeper
//!                        init ◄── a listener, the user, the lease ──────────────────── keeper
//!                        init ── it gave up what commands must not have ─────────────► keeper
//! ```
//!
//! Afterwards it is the init of any persistent jail (`init::serve`). A process that waits for its
//! keeper exits when the connection ends, so a launch that fails leaves nothing.

use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::path::Path;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{SocketAddrUnix, SocketFlags, SocketType, socket_with, sockopt};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::channel::{Channel, FromInit, ToInit};
use crate::init::serve::{Descriptors, Init, Users};
use crate::mounts::{At as _, Failure};
use crate::network::{Listeners, egress};
use crate::rlimits::ResourceLimits;
use crate::seccomp::SetIdBits;
use crate::spec::ContainerSettings;
use crate::walls::Wall;
use crate::{capabilities, seccomp, sys};

/// An init that has connected, and waits for its settings.
#[derive(Debug)]
pub struct WaitingInit {
    pub(crate) channel: Channel,
    pub(crate) process: i32,
    pub(crate) pidfd: OwnedFd,
}

impl WaitingInit {
    /// The next connection to the socket `listener`, which does not block
    /// ([`crate::control::listen`]).
    ///
    /// # Errors
    /// `WouldBlock` when there is none.
    pub fn accept(listener: &OwnedFd) -> io::Result<Self> {
        Self::from_descriptor(Channel::accept(listener)?.into_descriptor())
    }

    /// The init at the other end of a connection, as the kernel identifies it.
    ///
    /// # Errors
    /// `NotFound` when it is in no process id namespace that is visible here, or has ended.
    pub fn from_descriptor(descriptor: OwnedFd) -> io::Result<Self> {
        let peer = sockopt::socket_peercred(&descriptor)?;
        let process = peer.pid.as_raw_nonzero().get();
        let known = Pid::from_raw(process).ok_or(io::ErrorKind::NotFound)?;
        let pidfd = pidfd_open(known, PidfdFlags::empty())?;
        Ok(Self { channel: Channel::from_descriptor(descriptor), process, pidfd })
    }

    /// The host's process id of init.
    pub fn process(&self) -> i32 {
        self.process
    }

    /// The connection, to be passed on to a keeper.
    pub fn into_descriptor(self) -> OwnedFd {
        self.channel.into_descriptor()
    }

    /// Sends init its settings and the socket on which it is to listen.
    pub(crate) fn proceed(
        &self,
        settings: ContainerSettings,
        listener: &OwnedFd,
    ) -> io::Result<()> {
        self.channel.send(&ToInit::Serve(settings).encode(), &[listener.as_fd()])
    }
}

/// Runs the init of a container: connects to the socket at this path, and serves. Returns its exit
/// code.
pub fn run(socket: &Path) -> u8 {
    let Ok(channel) = connect(socket) else { return 3 };
    let init = match start(&channel) {
        Ok(init) => init,
        Err(Failure { wall, step, errno }) => {
            // If this fails, the keeper sees the end of the connection.
            let _ = channel.send(&FromInit::Failed { wall, errno, step }.encode(), &[]);
            return 1;
        }
    };
    // The keeper knows that init serves, and connects from now on.
    drop(channel);
    u8::try_from(init.run()).unwrap_or(1)
}

fn connect(path: &Path) -> io::Result<Channel> {
    let family = rustix::net::AddressFamily::UNIX;
    let socket = socket_with(family, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    rustix::net::connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(Channel::from_descriptor(socket))
}

fn start(channel: &Channel) -> Result<Init, Failure> {
    let words = |text: &'static str| move || text.to_owned();
    sys::set_process_name(c"stockade-init");
    sys::prctl(libc::PR_SET_DUMPABLE, 0).at(Wall::Inheritance, words("become undumpable"))?;
    let (settings, listener) = wait_for_settings(channel)?;
    let listeners = if settings.has_network { Some(open_network()?) } else { None };
    give_up(settings)?;
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root = rustix::fs::open("/", flags, Mode::empty());
    let root = root.at(Wall::Root, words("open the root"))?;
    let descriptors =
        Descriptors::open().at(Wall::Inheritance, words("open init's descriptors"))?;
    report(channel, &root, listeners.as_ref())?;
    let own = [channel.as_fd(), listener.as_fd(), root.as_fd()].into_iter();
    let own = own.chain(descriptors.each()).chain(listeners.iter().flat_map(Listeners::each));
    let own = own.map(|descriptor| descriptor.as_raw_fd()).collect();
    sys::close_all_but(own).at(Wall::Inheritance, words("close the descriptors"))?;
    let rlimits =
        ResourceLimits { open_files: Some(settings.open_files), ..ResourceLimits::default() };
    let users = Users::Own(settings.user, settings.group);
    let resources = (root, listeners);
    Ok(Init::new(listener, descriptors, resources, settings.lease, (users, rlimits, None)))
}

fn wait_for_settings(channel: &Channel) -> Result<(ContainerSettings, OwnedFd), Failure> {
    let step = || "wait for the keeper".to_owned();
    let (bytes, descriptors) =
        channel.receive().at(Wall::Pid, step)?.ok_or(Errno::PIPE).at(Wall::Pid, step)?;
    let listener = descriptors.into_iter().next();
    match (ToInit::decode(&bytes), listener) {
        (Some(ToInit::Serve(settings)), Some(listener)) => Ok((settings, listener)),
        _ => Err(Errno::PROTO).at(Wall::Pid, step),
    }
}

/// Turns the container's network, in which only the loopback is up, into one whose traffic arrives
/// at these listeners.
fn open_network() -> Result<Listeners, Failure> {
    let opened = egress::open().map_err(|(step, errno)| step.failed(errno))?;
    let incomplete = || "listen for connections to every address".to_owned();
    Listeners::take_from(opened).ok_or(Errno::INVAL).at(Wall::Network, incomplete)
}

/// Gives up everything that the engine had to leave to this process and no command may have.
fn give_up(settings: ContainerSettings) -> Result<(), Failure> {
    let words = |text: &'static str| move || text.to_owned();
    match rustix::process::setsid() {
        // The engine has started a session for it.
        Ok(_) | Err(Errno::PERM) => {}
        Err(errno) => {
            return Err(errno).at(Wall::Inheritance, words("start a session"));
        }
    }
    if !capabilities::is_bounding_empty() {
        capabilities::drop_bounding().at(Wall::Capabilities, words("empty the bounding set"))?;
    }
    let (user, group) = (rustix::process::getuid(), rustix::process::getgid());
    if (user.as_raw(), group.as_raw()) != (settings.user, settings.group) {
        sys::become_ids(settings.user, settings.group, true)
            .at(Wall::User, words("switch to the commands' ids"))?;
    }
    capabilities::drop_all().at(Wall::Capabilities, words("drop all capabilities"))?;
    // A change of ids resets it (`prctl(2)`).
    sys::prctl(libc::PR_SET_DUMPABLE, 0).at(Wall::Inheritance, words("become undumpable"))?;
    sys::prctl(libc::PR_SET_NO_NEW_PRIVS, 1)
        .at(Wall::NoNewPrivileges, words("set no_new_privs"))?;
    let set_id_bits = if settings.writes_to_host { SetIdBits::Refused } else { SetIdBits::Allowed };
    seccomp::install(seccomp::program(set_id_bits))
        .at(Wall::Seccomp, words("install the filter"))?;
    rustix::process::umask(Mode::from_raw_mode(0o022));
    sys::reset_signals();
    Ok(())
}

fn report(channel: &Channel, root: &OwnedFd, listeners: Option<&Listeners>) -> Result<(), Failure> {
    let ready = FromInit::Ready {
        terminal: false,
        upper: false,
        root: true,
        mounts: false,
        refused_calls: false,
        follows_renames: false,
        listeners: listeners.is_some(),
        proc_missing: false,
        landlock: 0,
    };
    let descriptors: Vec<_> =
        [root.as_fd()].into_iter().chain(listeners.into_iter().flat_map(Listeners::each)).collect();
    channel
        .send(&ready.encode(), &descriptors)
        .at(Wall::Inheritance, || "report to the keeper".to_owned())
}
