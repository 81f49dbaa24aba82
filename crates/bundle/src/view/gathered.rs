//! Views of the changes of a persistent sandbox: a copy of its layer, which another process creates
//! in a directory prepared here, while the sandbox continues to use its own layer.

use std::path::{Path, PathBuf};

use super::{Error, Layers, Record, View, own, set_mode};
use crate::beneath::{Dir, Timestamp};
use crate::claim;
use crate::data::DataDir;
use crate::manifest::ViewKind;
use crate::path::RelativePath;
use crate::project::Project;

const LAYER: &str = "upper";

/// A directory for a layer. Dropping it removes its content; [`View::sweep`] removes what a
/// killed process leaves.
#[derive(Debug)]
pub struct Gathering {
    name: RelativePath,
    views: Dir,
    /// Locked as long as it is open.
    dir: Dir,
    path: PathBuf,
    is_over: bool,
}

/// What was gathered, besides the layer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gathered {
    /// When the sandbox first used the project: what the host changed later is a conflict.
    pub since: Timestamp,
    /// The removed paths that the layer does not record.
    pub removed: Vec<RelativePath>,
}

impl Gathering {
    /// Creates the directory in a data directory.
    ///
    /// # Errors
    /// [`Error::Data`], [`Error::Own`].
    pub fn begin(data: &DataDir) -> Result<Self, Error> {
        let views = data.views()?;
        let (name, dir) = own("create", claim::claim(&views, "gathered-"))?;
        let path = data.path().join("views").join(name.as_os_str()).join(LAYER);
        let gathering = Self { name, views, dir, path, is_over: false };
        // Nothing is mounted here, so no other user needs access.
        set_mode(&gathering.dir, 0o700)?;
        Ok(gathering)
    }

    /// The path at which the layer must be created, which does not exist yet: the upper layer of an
    /// overlay over the project, with `user.overlay.` attributes, which belongs to this process's
    /// user unless that is root.
    pub fn layer(&self) -> &Path {
        &self.path
    }

    /// Returns the layer as a view of `project`, made by `command`.
    ///
    /// # Errors
    /// [`Error::Own`] when there is no layer.
    pub fn finish(
        mut self,
        project: &Project,
        gathered: Gathered,
        command: &[String],
    ) -> Result<View, Error> {
        let Gathered { since, removed } = gathered;
        let upper = own("open", self.dir.open_dir(&RelativePath::literal(LAYER)))?;
        let mut record = Record::new(project, ViewKind::Overlay, command.into(), since);
        // The commit at the time when the sandbox first used the project is no longer known.
        record.base_ref = None;
        let (views, dir) = (self.views.try_clone(), self.dir.try_clone());
        let view = View {
            name: self.name.clone(),
            spare: None,
            views: own("open", views)?,
            dir: own("open", dir)?,
            layers: Layers::Gathered { upper, removed },
            record,
        };
        self.is_over = true;
        Ok(view)
    }
}

impl Drop for Gathering {
    fn drop(&mut self) {
        if !self.is_over {
            // What cannot be removed now is swept later.
            let _ = self.views.remove_tree(&self.name);
        }
    }
}
