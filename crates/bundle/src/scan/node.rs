//! Reading the node at one name of a directory, in the view or in the project.

use std::fs::File;
use std::io::Read as _;

use rustix::io::Errno;

use crate::beneath::{self, Dir, FileKind, Stat};
use crate::manifest::{ContentHash, Node};
use crate::path::RelativePath;

/// The size of the buffer for reading files.
const BUFFER_BYTES: usize = 256 << 10;

/// Reads nodes, with one shared buffer.
pub(super) struct Reader {
    buffer: Vec<u8>,
    /// Whether this process is root. Permission bits restrict all other users.
    privileged: bool,
}

/// What exists at a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ScannedNode {
    /// Something that a bundle can contain.
    Node(Node),
    /// A socket, pipe or device with these permission bits.
    Special(u32),
}

impl ScannedNode {
    /// The node, or an empty file in place of something that has none.
    pub(super) fn into_node(self) -> Node {
        match self {
            Self::Node(node) => node,
            Self::Special(mode) => Node::File { hash: ContentHash::of(b""), size: 0, mode },
        }
    }

    /// The node, if there is one.
    pub(super) fn node(&self) -> Option<&Node> {
        match self {
            Self::Node(node) => Some(node),
            Self::Special(_) => None,
        }
    }

    pub(super) fn is_special(&self) -> bool {
        matches!(self, Self::Special(_))
    }
}

impl Reader {
    pub(super) fn new() -> Self {
        let privileged = rustix::process::geteuid().is_root();
        // Most views contain no changes, so the buffer is allocated on first use.
        Self { buffer: Vec::new(), privileged }
    }

    /// Reads the node that `stat` describes, at `name` in `directory`.
    pub(super) fn read(
        &mut self,
        directory: &Dir,
        name: &RelativePath,
        stat: &Stat,
    ) -> Result<ScannedNode, beneath::Error> {
        let mode = stat.mode & 0o777;
        Ok(match stat.kind {
            FileKind::File => {
                ScannedNode::Node(self.file(directory.open_file(name)?, name, mode)?)
            }
            FileKind::Directory => ScannedNode::Node(Node::Directory { mode }),
            FileKind::Symlink => {
                ScannedNode::Node(Node::Symlink { target: directory.read_link(name)? })
            }
            FileKind::CharacterDevice | FileKind::Other => ScannedNode::Special(mode),
        })
    }

    /// Opens a file of the view, which belongs to this user, regardless of its mode.
    pub(super) fn open_own(
        &self,
        directory: &Dir,
        name: &RelativePath,
        stat: &Stat,
    ) -> Result<File, beneath::Error> {
        match directory.open_file(name) {
            Err(error) if error.errno() == Some(Errno::ACCESS) => {
                directory.chmod(name, stat.mode | 0o600)?;
                directory.open_file(name)
            }
            other => other,
        }
    }

    /// Lets this process list and search a directory of the view, which belongs to this user.
    pub(super) fn unlock(
        &self,
        directory: &Dir,
        name: &RelativePath,
        stat: &Stat,
    ) -> Result<(), beneath::Error> {
        if self.privileged || stat.mode & 0o700 == 0o700 {
            return Ok(());
        }
        directory.chmod(name, stat.mode | 0o700)
    }

    /// Hashes an open file.
    pub(super) fn file(
        &mut self,
        mut file: File,
        name: &RelativePath,
        mode: u32,
    ) -> Result<Node, beneath::Error> {
        self.buffer.resize(BUFFER_BYTES, 0);
        let mut hasher = blake3::Hasher::new();
        let mut size = 0;
        loop {
            match file.read(&mut self.buffer) {
                Ok(0) => break,
                Ok(count) => {
                    hasher.update(&self.buffer[..count]);
                    size += count as u64;
                }
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(source) => {
                    return Err(beneath::Error::Io {
                        operation: "read",
                        path: name.quoted(),
                        source,
                    });
                }
            }
        }
        Ok(Node::File { hash: hasher.finalize().into(), size, mode })
    }
}
