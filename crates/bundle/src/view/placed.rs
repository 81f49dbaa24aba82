//! The directories of an upper layer around what it has from the start: as the overlay would make them
//! from those of the project, before anything changes in them.

use std::collections::HashSet;

use rustix::io::Errno;

use super::copy::copy_error;
use super::{Error, Ownership};
use crate::beneath::{Dir, FileKind, Stat};
use crate::path::RelativePath;

/// Directories that are made in an upper layer where they are needed.
#[derive(Debug)]
pub(crate) struct PlacedDirectories<'a> {
    project: &'a Dir,
    upper: &'a Dir,
    ownership: Option<Ownership>,
    known: HashSet<RelativePath>,
    /// Parents before children.
    made: Vec<(RelativePath, Stat)>,
}

impl<'a> PlacedDirectories<'a> {
    /// None, in a layer that nothing uses yet.
    pub(crate) fn new(project: &'a Dir, upper: &'a Dir, ownership: Option<Ownership>) -> Self {
        Self { project, upper, ownership, known: HashSet::new(), made: Vec::new() }
    }

    /// The directory of the layer for a path, and the path's name in it.
    ///
    /// # Errors
    /// [`Error::Copy`], [`Error::Unmapped`].
    pub(crate) fn parent(&mut self, path: &RelativePath) -> Result<(Dir, RelativePath), Error> {
        let failed = |error| copy_error(path.quoted(), error);
        let name = RelativePath::new(path.file_name());
        let name = name.map_err(|error| copy_error(path.quoted(), error))?;
        let Some(parent) = path.parent() else {
            return Ok((self.upper.reopen().map_err(failed)?, name));
        };
        let mut missing = Vec::new();
        let mut above = Some(parent.clone());
        while let Some(directory) = above.filter(|directory| !self.known.contains(directory)) {
            above = directory.parent();
            missing.push(directory);
        }
        for directory in missing.into_iter().rev() {
            self.make(directory)?;
        }
        Ok((self.upper.open_dir(&parent).map_err(failed)?, name))
    }

    fn make(&mut self, directory: RelativePath) -> Result<(), Error> {
        let failed = |error| copy_error(directory.quoted(), error);
        let stat = self.project.stat(&directory).map_err(failed)?;
        let Some(stat) = stat.filter(|stat| stat.kind == FileKind::Directory) else {
            let gone = std::io::Error::from(std::io::ErrorKind::NotFound);
            return Err(copy_error(directory.quoted(), gone));
        };
        match self.upper.mkdir(&directory, 0o700) {
            // Something else was placed there before.
            Err(error) if error.errno() == Some(Errno::EXIST) => {
                self.upper.chmod(&directory, 0o700).map_err(failed)?;
            }
            made => {
                made.map_err(failed)?;
                self.give_away(self.upper, &directory, &stat)?;
            }
        }
        self.known.insert(directory.clone());
        self.made.push((directory, stat));
        Ok(())
    }

    /// Gives what was made to the owner that corresponds to that in the project.
    ///
    /// # Errors
    /// As [`Self::parent`].
    pub(crate) fn give_away(
        &self,
        at: &Dir,
        name: &RelativePath,
        stat: &Stat,
    ) -> Result<(), Error> {
        let Some(ownership) = self.ownership else { return Ok(()) };
        let (user, group) = (ownership.host_id(stat.uid)?, ownership.host_id(stat.gid)?);
        at.chown(name, user, group).map_err(|error| copy_error(name.quoted(), error))
    }

    /// Sets the modes and times of the directories, which change while they are filled.
    ///
    /// # Errors
    /// [`Error::Copy`].
    pub(crate) fn finish(self) -> Result<(), Error> {
        for (path, stat) in self.made.iter().rev() {
            let failed = |error| copy_error(path.quoted(), error);
            self.upper.chmod(path, stat.mode).map_err(failed)?;
            self.upper.set_times(path, None, stat.modified).map_err(failed)?;
        }
        Ok(())
    }
}
