//! What an image contains at a path, without mounting it: links are resolved within the image.

use std::io::Read as _;
use std::path::Path;

use stockade_bundle::beneath::{Dir, FileKind};

use crate::layer::Error;
use crate::layer::merged::{Budget, Merged, Parts, clean, path};
use crate::store::Image;

/// How long one look-up may take.
const LOOKUP_SECONDS: u64 = 30;

/// The files of an image: its layers, the topmost first.
#[derive(Debug)]
pub struct Tree {
    layers: Vec<Dir>,
}

impl Tree {
    /// Opens the layers of an image.
    ///
    /// # Errors
    /// One cannot be opened.
    pub fn open(image: &Image) -> Result<Self, Error> {
        let layers = image.layers.iter().rev().map(|layer| Dir::open_recorded(layer));
        Ok(Self { layers: layers.collect::<Result<_, _>>()? })
    }

    fn merged(&self) -> Merged<'_> {
        Merged::new(self.layers.iter().collect(), Budget::new(LOOKUP_SECONDS))
    }

    /// The content of a file; `None` where there is no file.
    ///
    /// # Errors
    /// It cannot be read, or is larger than `limit` bytes.
    pub fn read(&self, at: &Path, limit: u64) -> Result<Option<Vec<u8>>, Error> {
        let merged = self.merged();
        let Some((parts, FileKind::File)) = find(&merged, at)? else { return Ok(None) };
        let (Some(found), Some(at)) = (merged.find(&parts)?, path(&parts)?) else {
            return Ok(None);
        };
        let mut content = Vec::new();
        let file = found.layer.open_file(&at)?;
        file.take(limit + 1).read_to_end(&mut content).map_err(Error::Read)?;
        if content.len() as u64 > limit {
            return Err(Error::Limit { limit: "bytes", value: limit });
        }
        Ok(Some(content))
    }

    /// Whether there is a directory at a path; `None` where there is nothing.
    ///
    /// # Errors
    /// The image cannot be read.
    pub fn is_directory(&self, at: &Path) -> Result<Option<bool>, Error> {
        let merged = self.merged();
        Ok(find(&merged, at)?.map(|(_, kind)| kind == FileKind::Directory))
    }
}

/// Where a path leads to, and what is there.
fn find(merged: &Merged<'_>, at: &Path) -> Result<Option<(Parts, FileKind)>, Error> {
    use std::os::unix::ffi::OsStrExt as _;
    let parts = clean(at.as_os_str().as_bytes())?;
    let (resolved, kind) = match merged.follow(&parts) {
        // A path through a file leads to nothing.
        Err(Error::Entry { .. }) => return Ok(None),
        followed => followed?,
    };
    Ok(kind.map(|kind| (resolved, kind)))
}
