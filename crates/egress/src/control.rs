//! How the process is told what to do: messages over a `SOCK_SEQPACKET` socket to its owner, each
//! whole or not at all, as JSON, one of them with descriptors.
//!
//! The owner asks and numbers what it asks; each question gets one answer with its number. Between
//! the answers come events. When the owner's end is closed, everything ends.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg,
    sendmsg, socketpair,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use stockade_core::network::Policy;
use stockade_core::{Problem, SandboxId};
use zeroize::Zeroizing;

use crate::credentials::Credential;
use crate::listeners::LISTENERS;
use crate::record::Event;

/// The version of the messages. Both ends are of the same program, so they never differ; where they
/// do, nothing is guessed.
pub const VERSION: u32 = 1;

/// The longest message, in bytes.
pub const MESSAGE_BYTES: usize = 128 << 10;

/// What the owner says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Question {
    /// [`VERSION`].
    pub version: u32,
    /// Its number, which the answer has too.
    pub number: u64,
    /// What is to be done.
    pub ask: Ask,
}

/// What is to be done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase", deny_unknown_fields)]
pub enum Ask {
    /// Serve a sandbox, whose listeners come with this, in the order of
    /// [`Listeners`](crate::Listeners); without any, only know of it until [`Ask::Listen`].
    Add {
        /// Which one.
        sandbox: SandboxId,
        /// Who may be reached from it.
        policy: Policy,
    },
    /// Serve a sandbox that was added without listeners, which come with this.
    Listen {
        /// Which one.
        sandbox: SandboxId,
    },
    /// Let another policy hold.
    Change {
        /// For which sandbox.
        sandbox: SandboxId,
        /// Who may be reached from it now.
        policy: Policy,
    },
    /// Put these credentials, in the place of all others, into requests to the hosts that they are
    /// bound to. With this comes the file of the authorities (PEM) by which those hosts are known
    /// ([`authorities`](crate::authorities)).
    Credentials {
        /// In which sandbox's requests.
        sandbox: SandboxId,
        /// The credentials.
        credentials: Vec<Credential>,
    },
    /// Serve a sandbox no more.
    Remove {
        /// Which one.
        sandbox: SandboxId,
    },
    /// Find names as these files say.
    Names {
        /// The text of `/etc/resolv.conf`.
        resolv_conf: String,
        /// The text of `/etc/hosts`.
        hosts: String,
    },
}

/// What the process says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub enum Said {
    /// A question's answer.
    Answer {
        /// The question's number.
        number: u64,
        /// Why it was not done, where it was not.
        problem: Option<Problem>,
        /// The certificate (PEM) that programs inside are to believe, in answer to
        /// [`Ask::Credentials`].
        #[serde(default, skip_serializing_if = "Option::is_none")]
        authority: Option<String>,
    },
    /// Something that happened.
    Event(Box<Event>),
}

/// The owner's end of the socket.
#[derive(Debug)]
pub struct Owner(OwnedFd);

impl Owner {
    /// Both ends: the owner's, and the one that the process is started with.
    ///
    /// # Errors
    /// Why there are none (`socketpair(2)`).
    pub fn pair() -> io::Result<(Self, OwnedFd)> {
        let flags = SocketFlags::CLOEXEC;
        let (own, other) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        Ok((Self(own), other))
    }

    /// Asks for something, with the descriptors that go with it. Blocks while the process has many
    /// questions before it, unless the socket was made not to.
    ///
    /// # Errors
    /// The process has ended, or the question is too long.
    pub fn ask(&self, number: u64, ask: Ask, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        let question = Question { version: VERSION, number, ask };
        send(&self.0, &question, descriptors)
    }

    /// Ends the connection, whoever else holds this end of it.
    pub fn shut_down(&self) {
        // The other end may be gone already.
        let _ = rustix::net::shutdown(&self.0, rustix::net::Shutdown::Both);
    }

    /// What the process says next; `None` once it has ended. Blocks until then, unless the socket was
    /// made not to.
    ///
    /// # Errors
    /// The message cannot be read, or reading fails.
    pub fn hear(&self) -> io::Result<Option<Said>> {
        Ok(receive(&self.0)?.map(|(said, _)| said))
    }
}

impl AsFd for Owner {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

pub(crate) fn send(
    socket: impl AsFd,
    message: &impl Serialize,
    descriptors: &[BorrowedFd<'_>],
) -> io::Result<()> {
    // It may hold secrets.
    let bytes = Zeroizing::new(serde_json::to_vec(message)?);
    if bytes.len() > MESSAGE_BYTES {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "the message is too long"));
    }
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(LISTENERS))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "there are too many descriptors"));
    }
    sendmsg(socket, &[io::IoSlice::new(&bytes)], &mut ancillary, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// The next message and its descriptors; `None` once the other end is closed.
pub(crate) fn receive<M: DeserializeOwned>(
    socket: impl AsFd,
) -> io::Result<Option<(M, Vec<OwnedFd>)>> {
    let mut bytes = Zeroizing::new(vec![0; MESSAGE_BYTES]);
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(LISTENERS))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut parts = [io::IoSliceMut::new(&mut bytes)];
    let received = recvmsg(socket, &mut parts, &mut ancillary, RecvFlags::CMSG_CLOEXEC)?;
    let descriptors = ancillary.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
        _ => None,
    });
    let descriptors = descriptors.flatten().collect();
    if received.bytes == 0 {
        return Ok(None);
    }
    let broken = |what: &str| io::Error::new(io::ErrorKind::InvalidData, what.to_owned());
    if received.flags.intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC) {
        return Err(broken("the message is too long, or has too many descriptors"));
    }
    let message = serde_json::from_slice(bytes.get(..received.bytes).unwrap_or_default());
    Ok(Some((message.map_err(|error| broken(&error.to_string()))?, descriptors)))
}
