//! Images from local files: an OCI layout as a directory or archive, an archive of `docker save`, a
//! TAR of a root file system, and a directory with one. All of them are hostile input.

mod archive;
mod docker;
mod layout;
mod root;
#[cfg(test)]
mod tests;

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use crate::document::InvalidDocument;
use crate::platform::Platform;
use crate::reference::{InvalidReference, Reference};
use crate::store::{self, Image, Store};

/// Where an image comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// `oci:DIR[:TAG]`: an OCI layout.
    Layout {
        /// The directory.
        path: PathBuf,
        /// Which of its images.
        tag: Option<String>,
    },
    /// `oci-archive:FILE[:TAG]`: an OCI layout as a TAR.
    LayoutArchive {
        /// The file.
        path: PathBuf,
        /// Which of its images.
        tag: Option<String>,
    },
    /// `docker-archive:FILE[:TAG]`: what `docker save` writes.
    DockerArchive {
        /// The file.
        path: PathBuf,
        /// Which of its images.
        tag: Option<String>,
    },
    /// `tar:FILE`: a TAR of a root file system.
    Tar(PathBuf),
    /// `dir:DIR`: a directory with a root file system.
    Directory(PathBuf),
}

/// Why an image could not be imported. The store has no name that it did not have before.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The text names no source.
    #[error(
        "`{}` is not a source of images: oci:DIR, oci-archive:FILE, docker-archive:FILE, tar:FILE or dir:DIR",
        .0.escape_debug()
    )]
    Source(String),
    /// The source cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The path.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The source is not of its kind.
    #[error("{} is not {what}: {reason}", path.display())]
    Kind {
        /// The path.
        path: PathBuf,
        /// What it should be.
        what: &'static str,
        /// What is missing or wrong.
        reason: String,
    },
    /// It holds no image of that tag.
    #[error("{} has no image `{}`", path.display(), tag.escape_debug())]
    NoTag {
        /// The path.
        path: PathBuf,
        /// The tag.
        tag: String,
        /// The tags that it has.
        known: Vec<String>,
    },
    /// It holds several images, and none was named.
    #[error("{} has several images: {}", path.display(), known.join(", "))]
    Several {
        /// The path.
        path: PathBuf,
        /// The tags that it has.
        known: Vec<String>,
    },
    /// It holds no image for the platform.
    #[error("{} has no image for {platform}", path.display())]
    NoPlatform {
        /// The path.
        path: PathBuf,
        /// What was asked for.
        platform: Box<Platform>,
        /// The platforms that it has.
        known: Vec<Platform>,
    },
    /// The image has no name in the source, and none was given.
    #[error("the image of {} has no name", .0.display())]
    NoName(PathBuf),
    /// A name in the source is invalid.
    #[error(transparent)]
    Name(#[from] InvalidReference),
    /// A document of the image cannot be used.
    #[error(transparent)]
    Document(#[from] InvalidDocument),
    /// A part of the image is wrong, or the store cannot be used.
    #[error(transparent)]
    Store(#[from] store::Error),
    /// An archive or directory cannot be read as one.
    #[error("cannot read {}", path.display())]
    Layer {
        /// The path.
        path: PathBuf,
        /// Why.
        #[source]
        source: crate::layer::Error,
    },
}

impl FromStr for Source {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let refused = || Error::Source(text.to_owned());
        let (kind, rest) = text.split_once(':').ok_or_else(refused)?;
        if rest.is_empty() {
            return Err(refused());
        }
        let whole = || PathBuf::from(rest);
        // A path may have colons: the tag is what follows the last one, unless the whole exists.
        let tagged = || match rest.rsplit_once(':') {
            Some((path, tag)) if !tag.contains('/') && !path.is_empty() && !whole().exists() => {
                (PathBuf::from(path), Some(tag.to_owned()))
            }
            _ => (whole(), None),
        };
        // A tag of `docker save` is a whole name, which may have slashes and a colon.
        let named = || {
            let colons = rest.match_indices(':').map(|(at, _)| at);
            let split = colons.map(|at| (&rest[..at], &rest[at + 1..]));
            let found =
                split.filter(|_| !whole().exists()).find(|(path, _)| Path::new(path).exists());
            match found {
                Some((path, name)) => (PathBuf::from(path), Some(name.to_owned())),
                None => (whole(), None),
            }
        };
        Ok(match kind {
            "oci" => {
                let (path, tag) = tagged();
                Self::Layout { path, tag }
            }
            "oci-archive" => {
                let (path, tag) = tagged();
                Self::LayoutArchive { path, tag }
            }
            "docker-archive" => {
                let (path, tag) = named();
                Self::DockerArchive { path, tag }
            }
            "tar" => Self::Tar(whole()),
            "dir" => Self::Directory(whole()),
            _ => return Err(refused()),
        })
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kind, path, tag) = match self {
            Self::Layout { path, tag } => ("oci", path, tag.as_deref()),
            Self::LayoutArchive { path, tag } => ("oci-archive", path, tag.as_deref()),
            Self::DockerArchive { path, tag } => ("docker-archive", path, tag.as_deref()),
            Self::Tar(path) => ("tar", path, None),
            Self::Directory(path) => ("dir", path, None),
        };
        write!(f, "{kind}:{}", path.display())?;
        tag.map_or(Ok(()), |tag| write!(f, ":{tag}"))
    }
}

/// Adds the image of a source to the store. Its name is `reference`; without one it is the name
/// that the source has for it. `platform` chooses one of several images, and is the host's unless
/// it is given.
///
/// # Errors
/// All of [`Error`].
pub fn import(
    store: &Store,
    source: &Source,
    reference: Option<&Reference>,
    platform: Option<&Platform>,
) -> Result<Vec<Image>, Error> {
    let wanted = Selection { reference, platform };
    match source {
        Source::Layout { path, tag } => layout::directory(store, path, tag.as_deref(), wanted),
        Source::LayoutArchive { path, tag } => layout::archive(store, path, tag.as_deref(), wanted),
        Source::DockerArchive { path, tag } => docker::archive(store, path, tag.as_deref(), wanted),
        Source::Tar(path) => root::tar(store, path, wanted),
        Source::Directory(path) => root::directory(store, path, wanted),
    }
}

/// What the importer asked for.
#[derive(Debug, Clone, Copy)]
struct Selection<'a> {
    reference: Option<&'a Reference>,
    platform: Option<&'a Platform>,
}

fn read_error(path: &Path) -> impl Fn(io::Error) -> Error {
    move |source| Error::Read { path: path.to_owned(), source }
}
