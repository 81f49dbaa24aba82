//! The process that refuses what programs ask for in a run without network access. It is started when
//! the first request arrives, so a run that asks for nothing does not pay for it.

use std::cell::RefCell;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::rc::Rc;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, Shutdown, SocketFlags, SocketType, recvmsg, sendmsg, shutdown,
    socketpair,
};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use stockade_core::network::WantedHosts;
use stockade_jail::network::StubListeners;
use stockade_jail::rlimits::ResourceLimits;
use stockade_jail::{FirstRequest, confined, seccomp};
use stockade_network_stub::{Records, Sockets};

use crate::programs::OWN_EXECUTABLE;

/// The first argument of the process.
pub(crate) const ARGUMENT: &str = "__network-stub";

/// How many listeners the process gets.
const LISTENERS: usize = 3;
/// How long the process may take to answer what has arrived and to end.
const GRACE: Duration = Duration::from_secs(2);

/// The process, once it was started. Dropping this kills it.
#[derive(Debug, Default, Clone)]
pub(crate) struct NetworkStub(Rc<RefCell<Option<Running>>>);

#[derive(Debug)]
struct Running {
    child: Child,
    socket: OwnedFd,
}

impl NetworkStub {
    /// Starts the process at the first request to these listeners.
    pub(crate) fn start_at(&self, listeners: StubListeners) -> FirstRequest {
        let slot = Rc::clone(&self.0);
        let serve = Box::new(move |listeners: StubListeners| {
            // Without the process the listeners close: requests fail at once, and none is recorded.
            *slot.borrow_mut() = Running::start(&listeners).ok();
        });
        FirstRequest { listeners, serve }
    }

    /// Ends the process. Returns the hosts that were asked for.
    pub(crate) fn end(&self) -> WantedHosts {
        let Some(running) = self.0.borrow_mut().take() else { return WantedHosts::default() };
        let _ = shutdown(&running.socket, Shutdown::Write);
        if let Ok(process) = pidfd_open(Pid::from_child(&running.child), PidfdFlags::empty()) {
            let grace = Timespec::try_from(GRACE).ok();
            let _ = poll(&mut [PollFd::new(&process, PollFlags::IN)], grace.as_ref());
        }
        stockade_network_stub::receive(&running.socket)
    }
}

impl Running {
    fn start(listeners: &StubListeners) -> io::Result<Self> {
        stockade_jail::inherit_nothing()?;
        let (socket, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        let child = Command::new(OWN_EXECUTABLE)
            .arg(ARGUMENT)
            .env_clear()
            .current_dir("/")
            .stdin(Stdio::from(theirs))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // A terminal sends its interrupts to the group of the run, not to this process.
            .process_group(0)
            .spawn()?;
        let running = Self { child, socket };
        let listeners = listeners.each();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(LISTENERS))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        ancillary.push(SendAncillaryMessage::ScmRights(&listeners));
        sendmsg(&running.socket, &[io::IoSlice::new(b"L")], &mut ancillary, SendFlags::NOSIGNAL)?;
        Ok(running)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The process itself: its standard input is the socket of the run. Returns its exit code.
pub(crate) fn process() -> u8 {
    let serve = || -> Result<(), Box<dyn std::error::Error>> {
        let owner = io::stdin().as_fd().try_clone_to_owned()?;
        let sockets = receive_listeners(&owner)?;
        sockets.prepare()?;
        confined::confine(&ResourceLimits::default())?;
        seccomp::install(seccomp::stub_program())?;
        stockade_network_stub::serve(&sockets, Records::new(owner));
        Ok(())
    };
    serve().map_or(1, |()| 0)
}

fn receive_listeners(owner: &OwnedFd) -> io::Result<Sockets> {
    let mut byte = [0];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(LISTENERS))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut parts = [io::IoSliceMut::new(&mut byte)];
    recvmsg(owner, &mut parts, &mut ancillary, RecvFlags::CMSG_CLOEXEC)?;
    let descriptors = ancillary.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
        _ => None,
    });
    let mut descriptors = descriptors.flatten();
    let mut next = || descriptors.next().ok_or(io::ErrorKind::InvalidData);
    Ok(Sockets { resolver_datagrams: next()?, resolver_streams: next()?, proxy: next()? })
}
