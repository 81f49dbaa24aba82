//! The attributes in which an overlay records, in its upper layer, how that differs from the lower one.
//!
//! An overlay that an ordinary user mounts has its marks in `user.overlay.` attributes, and cannot record
//! that a directory was renamed (the kernel's `filesystems/overlayfs.rst`, "User xattr"). One that root of
//! the host mounts has them in `trusted.overlay.` attributes, which no process in a sandbox can write
//! (`xattr(7)`). There a `user.overlay.` attribute is one of the sandbox's own and means nothing. So each
//! layer records which of them count, in an attribute of its root that no sandbox can write either.

use std::os::fd::AsFd;

use rustix::fs::XattrFlags;
use rustix::io::Errno;

use crate::attributes;
use crate::beneath::Dir;

/// The attribute of the root of a layer whose marks are `trusted.` ones.
pub(crate) const OF_ROOT: &str = "trusted.stockade.marks";

/// Which attributes are the marks of a layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Marks {
    /// `user.overlay.`; a rename of a directory of the lower layer fails with `EXDEV`.
    User,
    /// `trusted.overlay.`; renames of directories are recorded.
    Trusted,
}

/// What a directory of an upper layer shows of the lower layer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Shown {
    /// The directory with the same name, if there is one.
    SameName,
    /// The directory with this name in the parent of its own.
    Renamed(Vec<u8>),
    /// The directory with this path from the root.
    Moved(Vec<u8>),
    /// Nothing: all of it is in the upper layer.
    Nothing,
}

impl Marks {
    /// The marks of an existing layer.
    pub fn of(layer: &Dir) -> Self {
        let mut nothing: [u8; 0] = [];
        match rustix::fs::fgetxattr(layer, OF_ROOT, &mut nothing[..]) {
            Ok(_) => Self::Trusted,
            Err(_) => Self::User,
        }
    }

    /// The marks of a new layer, which is recorded. Only root of the host can have trusted ones, and
    /// not on all file systems.
    pub fn of_new(layer: &Dir) -> Self {
        match rustix::fs::fsetxattr(layer, OF_ROOT, b"1", XattrFlags::empty()) {
            Ok(()) => Self::Trusted,
            Err(_) => Self::User,
        }
    }

    /// The names of the attributes begin with this.
    pub(crate) const fn prefix(self) -> &'static str {
        match self {
            Self::User => "user.overlay.",
            Self::Trusted => "trusted.overlay.",
        }
    }

    /// Whether a directory of the layer hides the one in the lower layer.
    pub(crate) fn is_opaque(self, directory: impl AsFd) -> bool {
        let mut value = [0; 1];
        let name = format!("{}opaque", self.prefix());
        matches!(rustix::fs::fgetxattr(directory, name, &mut value[..]), Ok(1) if value == *b"y")
    }

    /// The attribute of a file that was made from one in the lower layer.
    pub(crate) const fn origin(self) -> &'static str {
        match self {
            Self::User => "user.overlay.origin",
            Self::Trusted => "trusted.overlay.origin",
        }
    }

    /// Whether the overlay created a file of the layer from one in the lower layer.
    pub(crate) fn has_origin(self, file: impl AsFd) -> bool {
        let mut nothing: [u8; 0] = [];
        rustix::fs::fgetxattr(file, self.origin(), &mut nothing[..]).is_ok()
    }

    /// What a directory of the layer shows of the lower one.
    pub(crate) fn shown(self, directory: impl AsFd) -> Result<Shown, Errno> {
        if self.is_opaque(&directory) {
            return Ok(Shown::Nothing);
        }
        if self == Self::User {
            return Ok(Shown::SameName);
        }
        match attributes::value(directory, b"trusted.overlay.redirect") {
            Ok(path) if path.first() == Some(&b'/') => Ok(Shown::Moved(path)),
            Ok(name) => Ok(Shown::Renamed(name)),
            Err(Errno::NODATA | Errno::OPNOTSUPP) => Ok(Shown::SameName),
            Err(errno) => Err(errno),
        }
    }

    /// Makes a directory hide the one in the lower layer, and forget that it was another one.
    pub(crate) fn make_opaque(self, directory: impl AsFd) -> Result<(), Errno> {
        let name = |last: &str| format!("{}{last}", self.prefix());
        rustix::fs::fsetxattr(&directory, name("opaque"), b"y", XattrFlags::empty())?;
        for other in ["redirect", "origin"] {
            match rustix::fs::fremovexattr(&directory, name(other)) {
                Ok(()) | Err(Errno::NODATA) => {}
                Err(errno) => return Err(errno),
            }
        }
        Ok(())
    }
}
