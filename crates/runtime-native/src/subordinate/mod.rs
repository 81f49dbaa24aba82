//! Work on files that belong to a user's subordinate ids, in a process that has these ids: the caller has
//! many threads and cannot enter their namespace. One process does one [`Order`]; its standard input
//! is the connection to its starter. Here are the messages, and the entry of the process.
//!
//! What the process does is the same that a caller with all ids does itself: the functions of `files`,
//! `workspace_layer` and the store of images.

mod process;

use std::io;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use stockade_core::access::Rules;
use stockade_core::caller::set_outside_user;
use stockade_core::sandbox::User;
use stockade_jail::subordinate::{Missing, Subordinate};
use stockade_runtime::{
    FileInfo, ReadRange, SandboxPath, TreeSize, WorkspaceChanges, WriteOptions,
};

use crate::wire::{Failure, InitialState};

pub(crate) use self::process::run;

/// The word that selects the process among the helpers of the keeper.
pub(crate) const JOB: &str = "subordinate";

/// What the process is to do. Descriptors are attached in the order that is named.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Order {
    /// Act on the files of a sandbox, whose root directory is attached.
    Files {
        /// The sandbox's ordinary user.
        user: User,
        /// Its access rules.
        access: Rules,
        /// What to do.
        act: FileAct,
    },
    /// Unpack the layers of an image of the store with their owners.
    Image {
        /// The data directory.
        data: PathBuf,
        /// The digest of its manifest.
        digest: String,
    },
    /// Copy a layer with its owners. The directory that it is in and the empty target are attached.
    CopyLayer {
        /// The path of the layer in the directory.
        layer: String,
    },
    /// Copy the changes in the layer of a workspace, which then belong to the caller. The layer and the
    /// empty target are attached.
    Gather {
        /// The initial state of the workspace.
        initial_state: InitialState,
    },
    /// The content of [`FileAct::Write`] or [`FileAct::Unpack`] was complete.
    Complete,
    /// Write the tree that [`FileAct::OpenTree`] has opened to the attached pipe.
    Pack {
        /// A name: directories that contain it are left out.
        mark: Option<Vec<u8>>,
    },
}

/// An operation of [`crate::files::Root`].
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum FileAct {
    Stat {
        path: SandboxPath,
    },
    ReadDirectory {
        path: SandboxPath,
    },
    OpenRead {
        path: SandboxPath,
        range: ReadRange,
    },
    /// The content comes through the attached pipe, and is complete when [`Order::Complete`] follows.
    Write {
        path: SandboxPath,
        options: WriteOptions,
    },
    MakeDirectory {
        path: SandboxPath,
        options: WriteOptions,
    },
    SetAttributes {
        path: SandboxPath,
        mode: Option<u32>,
        owner: Option<User>,
    },
    Rename {
        from: SandboxPath,
        to: SandboxPath,
    },
    Remove {
        path: SandboxPath,
    },
    Ship {
        from: PathBuf,
        to: SandboxPath,
    },
    Collect {
        from: SandboxPath,
        to: PathBuf,
        limit_bytes: u64,
    },
    /// As for [`FileAct::Write`].
    Unpack {
        to: SandboxPath,
        mode: u32,
    },
    /// [`Order::Pack`] follows.
    OpenTree {
        from: SandboxPath,
    },
}

/// The result of an order.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Done {
    Failed(Failure),
    Nothing,
    Stat(FileInfo),
    Directory(Vec<FileInfo>),
    /// An open file is attached.
    Opened {
        length: u64,
    },
    Bytes(u64),
    Tree(TreeSize),
    /// How much was packed.
    Packed {
        paths: u64,
        bytes: u64,
    },
    Changes(WorkspaceChanges),
}

/// Enters the namespace of the caller's subordinate ids. The process has a single thread.
///
/// # Errors
/// What is missing.
pub(crate) fn enter() -> io::Result<()> {
    try_enter().map_err(io::Error::other)
}

fn try_enter() -> Result<(), Missing> {
    let user = rustix::process::getuid().as_raw();
    Subordinate::find()?.enter()?;
    set_outside_user(user);
    Ok(())
}
