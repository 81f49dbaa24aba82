//! Views of the changes of a persistent sandbox: a copy of its layer, which another process creates
//! in a directory prepared here, while the sandbox continues to use its own layer; or the layer
//! itself, of a sandbox that has ended.

use std::path::{Path, PathBuf};

use super::{Error, Layers, Record, View, set_mode, with_operation};
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
pub struct LayerCollector {
    name: RelativePath,
    views: Dir,
    /// Locked as long as it is open.
    dir: Dir,
    path: PathBuf,
    is_finished: bool,
}

/// What was gathered, besides the layer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LayerChanges {
    /// When the sandbox first used the project: what the host changed later is a conflict.
    pub since: Timestamp,
    /// The removed paths. A directory that the layer has at such a path replaces the old one.
    pub removed: Vec<RelativePath>,
}

impl LayerCollector {
    /// Creates the directory in a data directory.
    ///
    /// # Errors
    /// [`Error::Data`], [`Error::Operation`].
    pub fn start(data: &DataDir) -> Result<Self, Error> {
        let views = data.views()?;
        let (name, dir) = with_operation("create", claim::claim(&views, "gathered-"))?;
        let path = data.path().join("views").join(name.as_os_str()).join(LAYER);
        let gathering = Self { name, views, dir, path, is_finished: false };
        // Nothing is mounted here, so no other user needs access.
        set_mode(&gathering.dir, 0o700)?;
        Ok(gathering)
    }

    /// The path at which the layer must be created, which does not exist yet: a directory with the
    /// changed files, each at its path in the project, which belongs to this process's user unless
    /// that is root. If it was copied from the upper layer of an overlay, its deletions and
    /// `user.overlay.` attributes count too.
    pub fn layer(&self) -> &Path {
        &self.path
    }

    /// Returns the layer as a view of `project`, made by `command`.
    ///
    /// # Errors
    /// [`Error::Operation`] when there is no layer.
    pub fn finish(
        self,
        project: &Project,
        gathered: LayerChanges,
        command: &[String],
    ) -> Result<View, Error> {
        let upper = with_operation("open", self.dir.open_dir(&RelativePath::literal(LAYER)))?;
        self.finish_in_place(project, upper, gathered, command)
    }

    /// Returns a layer elsewhere, which no process changes any more, as a view of `project`.
    /// Removing the view leaves the layer.
    ///
    /// # Errors
    /// [`Error::Operation`].
    pub fn finish_in_place(
        mut self,
        project: &Project,
        upper: Dir,
        gathered: LayerChanges,
        command: &[String],
    ) -> Result<View, Error> {
        let LayerChanges { since, removed } = gathered;
        let mut record = Record::new(project, ViewKind::Overlay, command.into(), since);
        // The commit at the time when the sandbox first used the project is no longer known.
        record.base_ref = None;
        let (views, dir) = (self.views.try_clone(), self.dir.try_clone());
        let view = View {
            repository: None,
            name: self.name.clone(),
            pool_name: None,
            views: with_operation("open", views)?,
            dir: with_operation("open", dir)?,
            layers: Layers::Collected { upper, removed },
            record,
            excluded: Vec::new(),
        };
        self.is_finished = true;
        Ok(view)
    }
}

impl Drop for LayerCollector {
    fn drop(&mut self) {
        if !self.is_finished {
            // What cannot be removed now is swept later.
            let _ = self.views.remove_tree(&self.name);
        }
    }
}
