//! The steps of the VM helper: the wall that each enables, and its text.

use rustix::io::Errno;

use crate::mounts::Failure;
use crate::walls::Wall;

/// The steps that only [`crate::Network::Egress`] takes, as text.
pub(crate) const ROUTE: &str = "route every address to the loopback";
pub(crate) const LISTEN: &str = "listen for connections to every address";
pub(crate) const RULES: &str = "load the rules that redirect connections to a listener";

/// A step of the VM helper.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Step {
    Network = 1,
    Route,
    Listen,
    ListenStub,
    Rules,
    Ids,
    Content,
    HostRoot,
    Dev,
    Device,
    Terminals,
    SharedMemory,
    DeviceLink,
    DevReadOnly,
    Proc,
    Mask,
}

impl Step {
    pub(crate) const ALL: [Self; 16] = [
        Self::Network,
        Self::Route,
        Self::Listen,
        Self::ListenStub,
        Self::Rules,
        Self::Ids,
        Self::Content,
        Self::HostRoot,
        Self::Dev,
        Self::Device,
        Self::Terminals,
        Self::SharedMemory,
        Self::DeviceLink,
        Self::DevReadOnly,
        Self::Proc,
        Self::Mask,
    ];

    /// The wall that could not be enabled.
    pub(crate) const fn wall(self) -> Wall {
        match self {
            Self::Network | Self::Route | Self::Listen | Self::ListenStub | Self::Rules => {
                Wall::Network
            }
            Self::Ids => Wall::User,
            Self::Content | Self::HostRoot => Wall::Root,
            Self::Proc | Self::Mask => Wall::Proc,
            _ => Wall::Devices,
        }
    }

    /// The step as text.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Network => "make the network",
            Self::Route => ROUTE,
            Self::Listen => LISTEN,
            Self::ListenStub => "listen on the loopback",
            Self::Rules => RULES,
            Self::Ids => "switch to the inside ids",
            Self::Content => "populate the root",
            Self::HostRoot => "detach the old root",
            Self::Dev => "make /dev",
            Self::Device => "mount a device",
            Self::Terminals => "attach terminals",
            Self::SharedMemory => "attach shared memory",
            Self::DeviceLink => "make a device link",
            Self::DevReadOnly => "make /dev read-only",
            Self::Proc => "make and attach /proc",
            Self::Mask => "cover an entry of /proc",
        }
    }
}

impl Step {
    /// The failure of a launch in this step.
    pub(crate) fn failed(self, errno: Errno) -> Failure {
        Failure { wall: self.wall(), step: self.as_str().to_owned(), errno: errno.raw_os_error() }
    }
}
