//! Opening the files beside the database, which are regular files and no links.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use rustix::fs::OFlags;

use crate::{Error, Result};

/// Opens a regular file, which is not a link to one: a user who could once write to the directory may have
/// left one that leads elsewhere. The file is not truncated before that is known.
pub(super) fn open_regular(options: &mut OpenOptions, path: &Path) -> Result<File> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let flags = i32::try_from(flags.bits()).unwrap_or_default();
    let opened = options.custom_flags(flags).open(path);
    let file = opened.map_err(|error| file_error("open", path, &error))?;
    match file.metadata() {
        Ok(found) if found.is_file() => Ok(file),
        Ok(_) => Err(not_regular("open", path)),
        Err(error) => Err(file_error("inspect", path, &error)),
    }
}

pub(super) fn not_regular(operation: &'static str, path: &Path) -> Error {
    let message = "it is not a regular file".to_owned();
    Error::File { operation, path: path.to_owned(), message }
}

pub(super) fn file_error(operation: &'static str, path: &Path, error: &std::io::Error) -> Error {
    Error::File { operation, path: path.to_owned(), message: error.to_string() }
}
