//! The private base in the place of the host's system directories: see [`stockade_image::base`].

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use stockade_bundle::data::DataDir;
use stockade_image::base;
pub use stockade_image::base::{Base, Content, Error, Progress, Pruned};
use stockade_jail::{HostTree, Mount, Source, system};

/// The base of the present state of the host, made if it is missing.
///
/// # Errors
/// Why it cannot be made; then nothing of it remains.
pub fn ensure(data: &DataDir, progress: &mut dyn FnMut(Progress)) -> Result<Base, Error> {
    base::ensure(data, &system::PROGRAMS.map(Path::new), progress)
}

/// The base of the present state of the host.
///
/// # Errors
/// [`Error::Missing`] if it was not made.
pub fn current(data: &DataDir) -> Result<Base, Error> {
    base::current(data, &system::PROGRAMS.map(Path::new))
}

/// Makes the base again, even if there is one.
///
/// # Errors
/// As [`ensure`].
pub fn renew(data: &DataDir, progress: &mut dyn FnMut(Progress)) -> Result<Base, Error> {
    base::renew(data, &system::PROGRAMS.map(Path::new), progress)
}

/// Removes the bases that no sandbox uses: all, or those of former states of the host.
///
/// # Errors
/// What cannot be read or removed.
pub fn prune(data: &DataDir, all: bool) -> Result<Pruned, Error> {
    base::prune(data, &system::PROGRAMS.map(Path::new), all)
}

/// The mounts of the host's system directories with the copies in their place, and what keeps these
/// from being removed.
pub(crate) fn replace(
    mounts: Vec<(PathBuf, Mount)>,
    base: &Base,
) -> io::Result<(Vec<(PathBuf, Mount)>, OwnedFd)> {
    let copied = |(inside, mount): (PathBuf, Mount)| {
        let mount = match mount {
            Mount::Tree(Source::Host { .. }) => {
                // One that is missing in the copy is an error: the host's own is never used.
                Mount::Tree(Source::Layer(HostTree::open(&base.directory(&inside))?))
            }
            other => other,
        };
        Ok((inside, mount))
    };
    let mounts = mounts.into_iter().map(copied).collect::<io::Result<_>>()?;
    Ok((mounts, base.hold()?))
}
