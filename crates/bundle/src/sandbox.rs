//! The result bundle of a `<Sandbox>`: a directory that a sandbox wrote, with a `README.md`
//! manifest, `patches/`, `artifacts/` and `logs/stream.ndjson`. It is validated as a whole,
//! within limits, before any of it is used.
//!
//! The code never follows a link, never blocks on a pipe, never reads a manifest that is too
//! large, and applies nothing.

mod conclude;
mod manifest;
mod patch_files;
mod tree;
mod write;

use std::io::Read as _;

use stockade_core::BundleLimits;

use crate::beneath::{self, Dir};
use crate::path::RelativePath;

pub use conclude::{Conclusion, conclude};
pub use manifest::{DiffBundle, DiffPatch, Operation, SandboxManifest, Status};
pub use patch_files::patch_files;
pub use write::{Request, StructuredResult, write_request, write_result};

/// A result bundle that passed validation.
#[derive(Debug, Clone, PartialEq)]
pub struct SandboxBundle {
    /// The content of `README.md`.
    pub manifest: SandboxManifest,
    /// The files below `patches/`, sorted.
    pub patches: Vec<RelativePath>,
    /// The files below `artifacts/`, sorted.
    pub artifacts: Vec<RelativePath>,
    /// `logs/stream.ndjson`, if it exists.
    pub stream_log: Option<RelativePath>,
    /// The total length of all files, in bytes.
    pub total_bytes: u64,
}

/// A limit of the profile that a bundle must satisfy (Smithers, "Bundle limits").
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    /// The total length of all files, in bytes.
    TotalBytes,
    /// The length of `README.md`, in bytes.
    ManifestBytes,
    /// The number of files below `patches/`, and of patches in the manifest.
    Patches,
    /// The size of all files below `patches/`, in bytes.
    PatchBytes,
    /// The number of files below `artifacts/`.
    Artifacts,
    /// The number of files and directories of any kind.
    Entries,
    /// The length of a path, in bytes.
    PathBytes,
    /// The length of `runId`, in characters.
    RunIdCharacters,
    /// The nesting depth of arrays and objects in `outputs`.
    OutputDepth,
    /// The number of items of an array in `outputs`.
    OutputArrayItems,
    /// The length of a string in `outputs`, in bytes.
    OutputStringBytes,
}

/// Why a bundle is refused.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A path, in the file system or in the manifest, leaves the bundle or its directory in the
    /// bundle.
    #[error("`{path}` does not stay inside {inside}")]
    Escape {
        /// The path, printable.
        path: String,
        /// The directory that must contain it.
        inside: &'static str,
    },
    /// The bundle contains a symbolic link.
    #[error("Sandbox bundle may not contain symlinks: {path}")]
    Symlink {
        /// Its path, printable.
        path: String,
    },
    /// The bundle contains a socket, pipe or device, or a directory where a file is required.
    #[error("Sandbox bundle may only contain files and directories: {path}")]
    Special {
        /// Its path, printable.
        path: String,
    },
    /// A limit is exceeded.
    #[error("{limit} exceeds the limit of {at_most} (profile {profile})")]
    TooLarge {
        /// The limit.
        limit: Limit,
        /// Its value.
        at_most: u64,
        /// The profile that sets the limit.
        profile: &'static str,
    },
    /// `README.md` is missing.
    #[error("Sandbox bundle has no README.md")]
    NoManifest,
    /// `README.md` is not a valid manifest.
    #[error("README.md is not a bundle manifest: {reason}")]
    Manifest {
        /// The reason.
        reason: String,
    },
    /// The manifest names a patch that does not exist.
    #[error("the manifest lists {path}, which is not in the bundle")]
    NoSuchPatch {
        /// The path, printable.
        path: String,
    },
    /// A file below `patches/` cannot be read as a patch.
    #[error("{path} is not a patch")]
    PatchFile {
        /// The path of the file, printable.
        path: String,
        /// Why.
        #[source]
        source: crate::patch::Error,
    },
    /// A file below `patches/` contains no diff.
    #[error(
        "{path} has no diff: files below `patches/` are unified diffs; put other files below `artifacts/`"
    )]
    NoPatch {
        /// The path of the file, printable.
        path: String,
    },
    /// A patch is not text.
    #[error(
        "the patch {path} is not UTF-8: return these changes as `diffBundle` with `binaryContent`"
    )]
    PatchText {
        /// The path of the patch or in it, printable.
        path: String,
    },
    /// Two patches change the same path.
    #[error("{one} and {other} both change {path}: put all of its changes into one diff")]
    PatchedTwice {
        /// The path in the project, printable.
        path: String,
        /// The file with the first patch.
        one: String,
        /// The file with the second patch.
        other: String,
    },
    /// A file operation failed.
    #[error("cannot read the sandbox bundle")]
    Read(#[source] beneath::Error),
    /// Reading the open manifest failed.
    #[error("cannot read README.md")]
    ReadManifest(#[source] std::io::Error),
    /// A file or directory in the bundle could not be created.
    #[error("cannot write the sandbox bundle")]
    Write(#[source] beneath::Error),
    /// Writing an open file failed.
    #[error("cannot write a file of the sandbox bundle")]
    WriteFile(#[source] std::io::Error),
}

impl Error {
    /// The error code that Smithers uses for this refusal.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Escape { .. } | Self::Symlink { .. } | Self::Special { .. } => "TOOL_PATH_ESCAPE",
            Self::TooLarge { .. }
            | Self::NoManifest
            | Self::Manifest { .. }
            | Self::NoSuchPatch { .. }
            | Self::PatchFile { .. }
            | Self::NoPatch { .. }
            | Self::PatchText { .. }
            | Self::PatchedTwice { .. } => "INVALID_INPUT",
            Self::Read(_) | Self::ReadManifest(_) | Self::Write(_) | Self::WriteFile(_) => {
                "SANDBOX_EXECUTION_FAILED"
            }
        }
    }

    /// The limit that was exceeded, if that is the reason.
    pub fn limit(&self) -> Option<Limit> {
        match self {
            Self::TooLarge { limit, .. } => Some(*limit),
            _ => None,
        }
    }

    fn read_error(error: beneath::Error) -> Self {
        match error {
            beneath::Error::ThroughLink { path, .. } => Self::Symlink { path },
            beneath::Error::NotRegular { path, .. } => Self::Special { path },
            error => Self::Read(error),
        }
    }
}

impl std::fmt::Display for Limit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::TotalBytes => "the size of the bundle in bytes",
            Self::ManifestBytes => "the size of README.md in bytes",
            Self::Patches => "the number of patches",
            Self::PatchBytes => "the size of all patches in bytes",
            Self::Artifacts => "the number of artifacts",
            Self::Entries => "the number of files and directories",
            Self::PathBytes => "the length of a path in bytes",
            Self::RunIdCharacters => "the length of runId in characters",
            Self::OutputDepth => "the depth of outputs",
            Self::OutputArrayItems => "the number of items of an array in outputs",
            Self::OutputStringBytes => "the length of a string in outputs in bytes",
        })
    }
}

/// Reads and validates the result bundle in a directory, within [`BundleLimits::SANDBOX`].
pub fn read(dir: &Dir) -> Result<SandboxBundle, Error> {
    read_within(dir, &BundleLimits::SANDBOX)
}

/// Reads and validates the result bundle in a directory.
pub fn read_within(dir: &Dir, limits: &BundleLimits) -> Result<SandboxBundle, Error> {
    let tree = tree::walk(dir, limits)?;
    let manifest = SandboxManifest::parse(&manifest_bytes(dir, limits)?, limits)?;
    for patch in &manifest.patches {
        if tree.patches.binary_search(patch).is_err() {
            return Err(Error::NoSuchPatch { path: patch.quoted() });
        }
    }
    Ok(SandboxBundle {
        manifest,
        patches: tree.patches,
        artifacts: tree.artifacts,
        stream_log: tree.stream_log,
        total_bytes: tree.total_bytes,
    })
}

/// Reads at most as many bytes as the limit allows. A manifest that is too large is not parsed,
/// even if it grows while it is read.
fn manifest_bytes(dir: &Dir, limits: &BundleLimits) -> Result<Vec<u8>, Error> {
    let path = RelativePath::new("README.md")
        .map_err(|error| Error::Manifest { reason: error.to_string() })?;
    let file = match dir.open_file(&path) {
        Ok(file) => file,
        Err(error) if error.kind() == Some(std::io::ErrorKind::NotFound) => {
            return Err(Error::NoManifest);
        }
        Err(error) => return Err(Error::read_error(error)),
    };
    let mut bytes = Vec::new();
    file.take(limits.manifest_bytes + 1).read_to_end(&mut bytes).map_err(Error::ReadManifest)?;
    if bytes.len() as u64 > limits.manifest_bytes {
        return Err(too_large(Limit::ManifestBytes, limits.manifest_bytes, limits));
    }
    Ok(bytes)
}

fn too_large(limit: Limit, at_most: u64, limits: &BundleLimits) -> Error {
    Error::TooLarge { limit, at_most, profile: limits.profile }
}

#[cfg(test)]
mod tests;
