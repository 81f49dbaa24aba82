//! The client of [`crate::subordinate`]: starts a process with the caller's subordinate ids, and gives it one
//! order.

use std::ffi::OsStr;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use rustix::pipe::{PipeFlags, pipe_with};
use stockade_bundle::beneath::Dir;
use stockade_core::access::Rules;
use stockade_core::sandbox::User;
use stockade_runtime::{
    Error, FileInfo, ReadRange, Result, SandboxPath, TreeProgress, TreeSize, WorkspaceChanges,
    WriteOptions,
};

use crate::failure::RequestedName;
use crate::keeper::helpers;
use crate::socket::{Message, Packet, Socket};
use crate::subordinate::{Done, FileAct, JOB, Order};
use crate::wire::InitialState;

/// How much content is sent at once.
const PIECE_BYTES: usize = 64 << 10;

/// A process that does one order. It is killed with this value, if it has not ended.
#[derive(Debug)]
pub(super) struct Process {
    socket: Socket,
    child: Child,
    operation: &'static str,
}

impl Process {
    /// Starts a process of this program, the keeper's, and gives it an order.
    pub(super) fn start(
        program: &OsStr,
        operation: &'static str,
        order: &Order,
        attached: &[BorrowedFd<'_>],
    ) -> Result<Self> {
        let start = || -> io::Result<Self> {
            let (socket, theirs) = Socket::waiting_pair()?;
            let child = Command::new(program)
                .args([helpers::ARGUMENT, JOB])
                .env_clear()
                .stdin(Stdio::from(theirs))
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()?;
            let process = Self { socket, child, operation };
            process.socket.send(&Packet::new(order, &[])?, attached)?;
            Ok(process)
        };
        start().map_err(unreachable)
    }

    fn send(&self, order: &Order, attached: &[BorrowedFd<'_>]) -> io::Result<()> {
        self.socket.send(&Packet::new(order, &[])?, attached)
    }

    /// Waits for the next answer.
    fn answer(&self) -> Result<Message<Done>> {
        let received = self.socket.receive::<Done>().map_err(unreachable)?;
        let message = received.ok_or_else(|| unreachable(io::ErrorKind::UnexpectedEof.into()))?;
        match message.head {
            Done::Failed(failure) => {
                let operation = self.operation;
                Err(failure.into_error(&RequestedName { operation, sandbox: None, exec: None }))
            }
            _ => Ok(message),
        }
    }

    /// Waits for the answer of an order without a result.
    pub(super) fn finish(self) -> Result<()> {
        self.answer().map(drop)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It has ended, or its result is not needed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Copies a layer with its owners to an empty directory. Returns its disk use in bytes.
pub(super) fn copy_layer(program: &OsStr, from: &Dir, layer: &str, to: &Dir) -> Result<u64> {
    let order = Order::CopyLayer { layer: layer.to_owned() };
    let process = Process::start(program, "copy", &order, &[from.as_fd(), to.as_fd()])?;
    match process.answer()?.head {
        Done::Bytes(bytes) => Ok(bytes),
        _ => Err(unexpected()),
    }
}

/// Copies the changes in the layer of a workspace to an empty directory.
pub(super) fn gather(
    program: &OsStr,
    layer: &Dir,
    initial_state: &InitialState,
    to: &Dir,
) -> Result<WorkspaceChanges> {
    let order = Order::Gather { initial_state: initial_state.clone() };
    let process = Process::start(program, "copy", &order, &[layer.as_fd(), to.as_fd()])?;
    match process.answer()?.head {
        Done::Changes(changes) => Ok(changes),
        _ => Err(unexpected()),
    }
}

/// The files of a sandbox with subordinate ids.
#[derive(Debug)]
pub(super) struct Files {
    pub(super) program: std::ffi::OsString,
    pub(super) root: OwnedFd,
    pub(super) user: User,
    pub(super) access: Rules,
}

impl Files {
    fn start(
        &self,
        operation: &'static str,
        act: FileAct,
        content: Option<BorrowedFd<'_>>,
    ) -> Result<Process> {
        let order = Order::Files { user: self.user, access: self.access.clone(), act };
        let attached: Vec<_> = [self.root.as_fd()].into_iter().chain(content).collect();
        Process::start(&self.program, operation, &order, &attached)
    }

    fn act(&self, operation: &'static str, act: FileAct) -> Result<()> {
        self.start(operation, act, None)?.finish()
    }

    pub(super) fn stat(&self, path: &SandboxPath) -> Result<FileInfo> {
        let act = FileAct::Stat { path: path.clone() };
        match self.start("inspect", act, None)?.answer()?.head {
            Done::Stat(info) => Ok(info),
            _ => Err(unexpected()),
        }
    }

    pub(super) fn read_directory(&self, path: &SandboxPath) -> Result<Vec<FileInfo>> {
        let act = FileAct::ReadDirectory { path: path.clone() };
        match self.start("list", act, None)?.answer()?.head {
            Done::Directory(files) => Ok(files),
            _ => Err(unexpected()),
        }
    }

    pub(super) fn open_read(
        &self,
        path: &SandboxPath,
        range: ReadRange,
    ) -> Result<(std::fs::File, u64)> {
        let act = FileAct::OpenRead { path: path.clone(), range };
        let message = self.start("read", act, None)?.answer()?;
        match (message.head, message.descriptors.into_iter().next()) {
            (Done::Opened { length }, Some(file)) => Ok((file.into(), length)),
            _ => Err(unexpected()),
        }
    }

    pub(super) fn write(
        &self,
        path: &SandboxPath,
        content: &mut dyn Read,
        options: WriteOptions,
    ) -> Result<u64> {
        let act = FileAct::Write { path: path.clone(), options };
        match self.with_content("write", act, path, content)? {
            Done::Bytes(bytes) => Ok(bytes),
            _ => Err(unexpected()),
        }
    }

    pub(super) fn unpack(
        &self,
        to: &SandboxPath,
        mode: u32,
        content: &mut dyn Read,
    ) -> Result<TreeSize> {
        let act = FileAct::Unpack { to: to.clone(), mode };
        match self.with_content("copy", act, to, content)? {
            Done::Tree(size) => Ok(size),
            _ => Err(unexpected()),
        }
    }

    pub(super) fn make_directory(&self, path: &SandboxPath, options: WriteOptions) -> Result<()> {
        self.act("make", FileAct::MakeDirectory { path: path.clone(), options })
    }

    pub(super) fn set_attributes(
        &self,
        path: &SandboxPath,
        mode: Option<u32>,
        owner: Option<User>,
    ) -> Result<()> {
        self.act("change", FileAct::SetAttributes { path: path.clone(), mode, owner })
    }

    pub(super) fn rename(&self, from: &SandboxPath, to: &SandboxPath) -> Result<()> {
        self.act("rename", FileAct::Rename { from: from.clone(), to: to.clone() })
    }

    pub(super) fn remove(&self, path: &SandboxPath) -> Result<()> {
        self.act("remove", FileAct::Remove { path: path.clone() })
    }

    pub(super) fn ship(&self, from: &Path, to: &SandboxPath) -> Result<()> {
        self.act("ship to", FileAct::Ship { from: from.to_owned(), to: to.clone() })
    }

    pub(super) fn collect(&self, from: &SandboxPath, to: &Path, limit_bytes: u64) -> Result<()> {
        let (from, to) = (from.clone(), to.to_owned());
        self.act("collect", FileAct::Collect { from, to, limit_bytes })
    }

    /// Opens a directory that is to be packed.
    pub(super) fn open_tree(&self, from: &SandboxPath) -> Result<Tree> {
        let process = self.start("copy", FileAct::OpenTree { from: from.clone() }, None)?;
        process.answer()?;
        Ok(Tree(process))
    }

    /// Does an operation that reads content to its end.
    fn with_content(
        &self,
        operation: &'static str,
        act: FileAct,
        path: &SandboxPath,
        content: &mut dyn Read,
    ) -> Result<Done> {
        let (theirs, ours) =
            pipe_with(PipeFlags::CLOEXEC).map_err(|errno| unreachable(errno.into()))?;
        let process = self.start(operation, act, Some(theirs.as_fd()))?;
        drop(theirs);
        let mut pipe = std::fs::File::from(ours);
        let mut piece = vec![0; PIECE_BYTES];
        loop {
            let length = content.read(&mut piece).map_err(|source| Error::File {
                operation,
                path: path.to_string(),
                source,
            })?;
            // Where it reads no more, it has failed or needs no more: its answer says which.
            if length == 0 || pipe.write_all(&piece[..length]).is_err() {
                break;
            }
        }
        // It may have ended already.
        let _ = process.send(&Order::Complete, &[]);
        drop(pipe);
        Ok(process.answer()?.head)
    }
}

/// A directory that is open in a process.
#[derive(Debug)]
pub(super) struct Tree(Process);

impl Tree {
    /// As [`crate::files::OpenTree::pack`]; what has been written is added to `progress` at the end.
    pub(super) fn pack(
        self,
        mark: Option<&[u8]>,
        mut to: impl Write,
        progress: &TreeProgress,
    ) -> io::Result<()> {
        let (ours, theirs) = pipe_with(PipeFlags::CLOEXEC)?;
        self.0.send(&Order::Pack { mark: mark.map(<[u8]>::to_vec) }, &[theirs.as_fd()])?;
        drop(theirs);
        io::copy(&mut std::fs::File::from(ours), &mut to)?;
        match self.0.answer().map_err(io::Error::other)?.head {
            Done::Packed { paths, bytes } => {
                progress.add(paths, bytes);
                Ok(())
            }
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    }
}

fn unexpected() -> Error {
    unreachable(io::ErrorKind::InvalidData.into())
}

fn unreachable(source: io::Error) -> Error {
    Error::Unreachable { what: "the process with subordinate ids".to_owned(), source }
}
