//! Paths inside a sandbox, as a request names them.

use std::path::{Component, Path};

use crate::error::Error;

/// Directories that the jail itself provides.
const RESERVED: [&str; 3] = ["/dev", "/proc", "/sys"];

/// Refuses a path that is not absolute, has a `..` or contains a NUL byte.
pub(crate) fn absolute(path: &Path) -> Result<(), Error> {
    let plain = path.components().all(|c| matches!(c, Component::RootDir | Component::Normal(_)));
    if path.is_absolute() && plain && !path.as_os_str().as_encoded_bytes().contains(&0) {
        return Ok(());
    }
    Err(Error::NotAbsolute(path.to_owned()))
}

/// Refuses a mount point that would hide parts of the sandbox itself.
pub(crate) fn mount_point(path: &Path) -> Result<(), Error> {
    absolute(path)?;
    if path == Path::new("/") || RESERVED.iter().any(|reserved| path.starts_with(reserved)) {
        return Err(Error::Reserved(path.to_owned()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_point_hides_nothing_of_the_sandbox() {
        for good in ["/a", "/a/b", "/devices", "/home/user"] {
            assert!(mount_point(Path::new(good)).is_ok(), "{good}");
        }
        for bad in ["/", "/proc", "/proc/x", "/dev/shm", "/sys"] {
            assert!(matches!(mount_point(Path::new(bad)), Err(Error::Reserved(_))), "{bad}");
        }
        for bad in ["", "a", "/a/../b", "/a\0b", "/.."] {
            assert!(matches!(mount_point(Path::new(bad)), Err(Error::NotAbsolute(_))), "{bad:?}");
        }
    }
}
