//! The process: it enters the namespace, does its order and answers.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::Path;

use stockade_bundle::RelativePath;
use stockade_bundle::beneath::{self, Dir, FileKind};
use stockade_bundle::data::DataDir;
use stockade_bundle::layer::{self, Owners};
use stockade_image::{Digest, Store};
use stockade_runtime::{Error, Result, TreeProgress};

use super::{Done, FileAct, Order, try_enter};
use crate::directory::name;
use crate::files::{OpenTree, Root};
use crate::socket::{Packet, Socket};
use crate::wire::Failure;
use crate::workspace_layer::{WorkspaceLayer, data, host, not_copied};

/// An answer, and what is attached to it.
type Answer = (Done, Option<OwnedFd>);

/// Does the order that comes through the standard input: the whole of the process.
///
/// # Errors
/// The starter cannot be reached.
pub(crate) fn run() -> io::Result<()> {
    let socket = Socket::from_descriptor(io::stdin().as_fd().try_clone_to_owned()?);
    let Some(message) = socket.receive::<Order>()? else { return Ok(()) };
    let answer = match try_enter() {
        Ok(()) => act(&socket, message.head, message.descriptors),
        Err(missing) => Ok((Done::Failed(Failure::from(&missing)), None)),
    };
    let (done, attached) = match answer {
        Ok(answer) => answer,
        Err(error) => (Done::Failed(Failure::from(error)), None),
    };
    send(&socket, &done, attached.as_ref())
}

fn send(socket: &Socket, done: &Done, attached: Option<&OwnedFd>) -> io::Result<()> {
    let attached: Vec<BorrowedFd<'_>> = attached.iter().map(|file| file.as_fd()).collect();
    socket.send(&Packet::new(done, &[])?, &attached)
}

fn act(socket: &Socket, order: Order, descriptors: Vec<OwnedFd>) -> Result<Answer> {
    let mut descriptors = descriptors.into_iter();
    let mut next = || descriptors.next().ok_or_else(|| lost("a descriptor"));
    let done = match order {
        Order::Files { user, access, act } => {
            let root = Root::new(next()?, Some(0), user).with_rules(access);
            return files(socket, &root, act, next);
        }
        Order::Image { data, digest } => unpack_image(&data, &digest).map(|()| Done::Nothing),
        Order::CopyLayer { layer } => {
            let (from, to) = (Dir::from_fd(next()?), Dir::from_fd(next()?));
            let from = from.open_dir(&name(layer).map_err(host)?).map_err(host)?;
            // The size was limited when it was written, and is limited by the disk.
            layer::copy(&from, &to, u64::MAX, Owners::Same).map(Done::Bytes).map_err(not_copied)
        }
        Order::Gather { initial_state } => {
            let (layer, to) = (Dir::from_fd(next()?), Dir::from_fd(next()?));
            let changes =
                WorkspaceLayer::of(layer, initial_state, false, Owners::Same).gather(&to)?;
            give_to_caller(&to).map_err(host)?;
            Ok(Done::Changes(changes))
        }
        Order::Complete | Order::Pack { .. } => Err(lost("an order")),
    };
    done.map(|done| (done, None))
}

fn files(
    socket: &Socket,
    root: &Root,
    act: FileAct,
    mut next: impl FnMut() -> Result<OwnedFd>,
) -> Result<Answer> {
    let nothing = |()| Done::Nothing;
    let mut content =
        || Ok::<_, Error>(Content { pipe: next()?.into(), socket, is_complete: false });
    let done = match act {
        FileAct::Stat { path } => root.stat(&path).map(Done::Stat),
        FileAct::ReadDirectory { path } => root.read_directory(&path).map(Done::Directory),
        FileAct::OpenRead { path, range } => {
            let (file, length) = root.open_read(&path, range)?;
            return Ok((Done::Opened { length }, Some(file.into())));
        }
        FileAct::Write { path, options } => {
            root.write(&path, &mut content()?, options).map(Done::Bytes)
        }
        FileAct::MakeDirectory { path, options } => {
            root.make_directory(&path, options).map(nothing)
        }
        FileAct::SetAttributes { path, mode, owner } => {
            root.set_attributes(&path, mode, owner).map(nothing)
        }
        FileAct::Rename { from, to } => root.rename(&from, &to).map(nothing),
        FileAct::Remove { path } => root.remove(&path).map(nothing),
        FileAct::Ship { from, to } => root.ship(&from, &to).map(nothing),
        FileAct::Collect { from, to, limit_bytes } => {
            root.collect(&from, &to, limit_bytes).map(nothing)
        }
        FileAct::Unpack { to, mode } => root.unpack(&to, mode, &mut content()?).map(Done::Tree),
        FileAct::OpenTree { from } => pack(socket, root.open_tree(&from)?),
    };
    done.map(|done| (done, None))
}

/// Says that a tree is open, and writes it where the starter then wants it.
fn pack(socket: &Socket, tree: OpenTree) -> Result<Done> {
    send(socket, &Done::Nothing, None).map_err(unreachable)?;
    let Some(message) = socket.receive::<Order>().map_err(unreachable)? else {
        return Ok(Done::Nothing);
    };
    let pipe = message.descriptors.into_iter().next();
    let (Order::Pack { mark }, Some(pipe)) = (message.head, pipe) else {
        return Err(lost("an order"));
    };
    let progress = TreeProgress::default();
    let packed = tree.pack(mark.as_deref(), File::from(pipe), &progress);
    packed.map_err(|source| data("the tree", source))?;
    let (paths, bytes) = progress.read();
    Ok(Done::Packed { paths, bytes })
}

fn unpack_image(data: &Path, digest: &str) -> Result<()> {
    let unknown = || Error::Image(format!("{digest} is no digest"));
    let digest: Digest = digest.parse().map_err(|_| unknown())?;
    let image = |error: &dyn std::error::Error| {
        let causes = std::iter::successors(error.source(), |cause| cause.source());
        Error::Image(causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}")))
    };
    let directory = DataDir::open(data).map_err(|error| image(&error))?;
    let store = Store::open(&directory).map_err(|error| image(&error))?;
    store.load(&digest, None).map(drop).map_err(|error| image(&error))
}

/// Makes the caller the owner of everything in a directory that this process has filled.
fn give_to_caller(directory: &Dir) -> std::result::Result<(), beneath::Error> {
    for (entry, kind) in directory.entries()? {
        let path = RelativePath::new(entry).map_err(|error| beneath::Error::Io {
            operation: "name",
            path: String::new(),
            source: io::Error::new(io::ErrorKind::InvalidData, error),
        })?;
        directory.chown(&path, 0, 0)?;
        if kind == FileKind::Directory {
            give_to_caller(&directory.open_dir(&path)?)?;
        }
    }
    Ok(())
}

/// Content of a file or a tree. The end of the pipe is its end only if the starter confirms it:
/// otherwise the starter has failed.
struct Content<'a> {
    pipe: File,
    socket: &'a Socket,
    is_complete: bool,
}

impl Read for Content<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.pipe.read(buffer)?;
        if length > 0 || buffer.is_empty() || self.is_complete {
            return Ok(length);
        }
        match self.socket.receive::<Order>()? {
            Some(message) if matches!(message.head, Order::Complete) => {
                self.is_complete = true;
                Ok(0)
            }
            _ => Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the content ended early")),
        }
    }
}

fn lost(what: &str) -> Error {
    unreachable(io::Error::new(io::ErrorKind::InvalidData, format!("{what} is missing")))
}

fn unreachable(source: io::Error) -> Error {
    Error::Unreachable { what: "the process with subordinate ids".to_owned(), source }
}
