//! Files of a project with several names in it, in the upper layer of an overlay.
//!
//! An overlay copies a file to the upper layer under the one name that is written to, so the other
//! names would keep the old content. So such a file is put into the upper layer before the overlay is
//! mounted, once, with all its names. What git ignores is left out: package managers and compilers link
//! many large files there, and replace them instead of writing to them.

use std::collections::HashMap;
use std::path::Path;

use rustix::fs::{AtFlags, XattrFlags};
use rustix::io::Errno;

use super::copy::copy_error;
use super::placed::PlacedDirectories;
use super::{Error, Ownership};
use crate::attributes;
use crate::beneath::{self, Dir, FileKind, Stat};
use crate::content;
use crate::layer::Marks;
use crate::path::RelativePath;
use crate::project::Project;

/// How much is put into a layer.
#[derive(Debug, Clone, Copy)]
pub struct HardLinkLimits {
    /// The most names.
    pub names: usize,
    /// The most bytes of content.
    pub bytes: u64,
}

/// The names of files that have several, grouped by file, in the order in which they were found.
#[derive(Debug, Default)]
pub struct HardLinks {
    by_file: HashMap<(u64, u64), usize>,
    groups: Vec<Vec<RelativePath>>,
}

impl HardLinks {
    /// Records a name, if its file has several.
    pub fn add(&mut self, path: &RelativePath, stat: &Stat) {
        if stat.kind != FileKind::File || stat.links < 2 {
            return;
        }
        let next = self.groups.len();
        let group = *self.by_file.entry((stat.device, stat.inode)).or_insert(next);
        match self.groups.get_mut(group) {
            Some(names) => names.push(path.clone()),
            None => self.groups.push(vec![path.clone()]),
        }
    }

    /// The files of which at least two names were found.
    fn groups(&self) -> impl Iterator<Item = &[RelativePath]> {
        self.groups.iter().map(Vec::as_slice).filter(|names| names.len() > 1)
    }

    /// Leaves out names below these paths, where the layer has something else.
    pub fn exclude(&mut self, paths: &[RelativePath]) {
        for names in &mut self.groups {
            names.retain(|name| !paths.iter().any(|path| name.is_within(path)));
        }
    }

    /// Whether there is no such file.
    pub fn is_empty(&self) -> bool {
        self.groups().next().is_none()
    }

    /// Puts the files into an upper layer that nothing uses yet, as far as the limits allow. Returns
    /// whether there is any.
    ///
    /// # Errors
    /// [`Error::Copy`], [`Error::Unmapped`].
    pub fn place(
        &self,
        project: &Path,
        upper: &Dir,
        ownership: Option<Ownership>,
        limits: HardLinkLimits,
    ) -> Result<bool, Error> {
        if self.is_empty() {
            return Ok(false);
        }
        // A workspace that is no project has no ignore rules.
        let rules = Project::open(project, None).ok();
        let mut rules = rules.as_ref().map(Project::ignore_rules);
        let source =
            Dir::open(project).map_err(|error| copy_error(project.display().to_string(), error))?;
        let mut placing = Placing {
            source: &source,
            directories: PlacedDirectories::new(&source, upper, ownership),
            limits,
            marks: Marks::of(upper),
            has_any: false,
        };
        for names in self.groups() {
            let is_ignored = |path: &RelativePath| {
                rules.as_mut().is_some_and(|rules| rules.ignores(path, false) == Ok(true))
            };
            if names.iter().all(is_ignored) {
                continue;
            }
            placing.place(names)?;
        }
        placing.directories.finish()?;
        Ok(placing.has_any)
    }
}

struct Placing<'a> {
    source: &'a Dir,
    directories: PlacedDirectories<'a>,
    /// What is left of them.
    limits: HardLinkLimits,
    marks: Marks,
    has_any: bool,
}

impl Placing<'_> {
    fn place(&mut self, names: &[RelativePath]) -> Result<(), Error> {
        let Some((first, others)) = names.split_first() else { return Ok(()) };
        let file = match self.source.open_file(first) {
            Ok(file) => file,
            // The command cannot read it either, or the host has removed it meanwhile.
            Err(error) if is_gone(&error) => return Ok(()),
            Err(error) => return Err(copy_error(first.quoted(), error)),
        };
        let failed = |errno: Errno| copy_error(first.quoted(), std::io::Error::from(errno));
        let stat = Stat::of(&file).map_err(failed)?;
        if names.len() > self.limits.names || stat.size > self.limits.bytes {
            return Ok(());
        }
        self.limits.names -= names.len();
        self.limits.bytes -= stat.size;
        let (at, name) = self.directories.parent(first)?;
        let to = at.create_file(&name, 0o600).map_err(|e| copy_error(first.quoted(), e))?;
        content::copy(&file, &to, u64::MAX, u64::MAX).map_err(|e| copy_error(first.quoted(), e))?;
        for name in attributes::names(&file).map_err(failed)? {
            if name.starts_with(b"user.") && !name.starts_with(b"user.overlay.") {
                let value = attributes::value(&file, &name).map_err(failed)?;
                rustix::fs::fsetxattr(&to, &name[..], &value, XattrFlags::empty())
                    .map_err(failed)?;
            }
        }
        // As the overlay marks what it has copied: it was not made inside.
        rustix::fs::fsetxattr(&to, self.marks.origin(), b"", XattrFlags::empty())
            .map_err(failed)?;
        self.directories.give_away(&at, &name, &stat)?;
        at.chmod(&name, stat.mode).map_err(|e| copy_error(first.quoted(), e))?;
        self.has_any = true;
        for other in others {
            let there = self.source.stat(other).map_err(|e| copy_error(other.quoted(), e))?;
            let is_same = |there: &Stat| (there.device, there.inode) == (stat.device, stat.inode);
            if !there.as_ref().is_some_and(is_same) {
                continue;
            }
            let (directory, new) = self.directories.parent(other)?;
            let (old, new) = (name.as_os_str(), new.as_os_str());
            rustix::fs::linkat(&at, old, &directory, new, AtFlags::empty())
                .map_err(|errno| copy_error(other.quoted(), std::io::Error::from(errno)))?;
        }
        at.set_times(&name, None, stat.modified).map_err(|e| copy_error(first.quoted(), e))
    }
}

fn is_gone(error: &beneath::Error) -> bool {
    let is_other =
        matches!(error, beneath::Error::ThroughLink { .. } | beneath::Error::NotRegular { .. });
    is_other || matches!(error.errno(), Some(Errno::ACCESS | Errno::NOENT | Errno::NOTDIR))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::MetadataExt as _;

    use super::*;

    const LIMITS: HardLinkLimits = HardLinkLimits { names: 100, bytes: 1 << 20 };

    fn links(top: &Path, names: &[&str]) -> HardLinks {
        let dir = Dir::open(top).unwrap();
        let mut links = HardLinks::default();
        for name in names {
            let path = RelativePath::new(*name).unwrap();
            links.add(&path, &dir.stat(&path).unwrap().unwrap());
        }
        links
    }

    #[test]
    fn a_file_is_placed_once_with_all_its_names() {
        let scratch = tempfile::tempdir().unwrap();
        let (project, upper) = (scratch.path().join("p"), scratch.path().join("u"));
        fs::create_dir_all(project.join("a/b")).unwrap();
        fs::create_dir(&upper).unwrap();
        fs::write(project.join("one"), "text").unwrap();
        fs::hard_link(project.join("one"), project.join("a/b/two")).unwrap();
        fs::write(project.join("alone"), "x").unwrap();
        // The other name of this file is not in the project.
        fs::write(scratch.path().join("outside"), "y").unwrap();
        fs::hard_link(scratch.path().join("outside"), project.join("inside")).unwrap();
        let links = links(&project, &["one", "alone", "inside", "a/b/two"]);
        let top = Dir::open(&upper).unwrap();
        assert!(links.place(&project, &top, None, LIMITS).unwrap());
        let at = |name: &str| fs::metadata(upper.join(name)).unwrap();
        assert_eq!(at("one").ino(), at("a/b/two").ino());
        assert_eq!(at("one").mtime_nsec(), fs::metadata(project.join("one")).unwrap().mtime_nsec());
        assert_eq!(fs::read(upper.join("one")).unwrap(), b"text");
        assert!(!upper.join("alone").exists() && !upper.join("inside").exists());
        let small = HardLinkLimits { bytes: 3, ..LIMITS };
        let other = scratch.path().join("v");
        fs::create_dir(&other).unwrap();
        assert!(!links.place(&project, &Dir::open(&other).unwrap(), None, small).unwrap());
        assert_eq!(fs::read_dir(&other).unwrap().count(), 0);
    }

    #[test]
    fn what_git_ignores_is_left_out() {
        let scratch = tempfile::tempdir().unwrap();
        let (project, upper) = (scratch.path().join("p"), scratch.path().join("u"));
        for directory in ["p/.git", "p/target", "u"] {
            fs::create_dir_all(scratch.path().join(directory)).unwrap();
        }
        fs::write(project.join(".gitignore"), "target/\n").unwrap();
        fs::write(project.join("target/one"), "text").unwrap();
        fs::hard_link(project.join("target/one"), project.join("target/two")).unwrap();
        let top = Dir::open(&upper).unwrap();
        let ignored = links(&project, &["target/one", "target/two"]);
        assert!(!ignored.place(&project, &top, None, LIMITS).unwrap());
        fs::hard_link(project.join("target/one"), project.join("three")).unwrap();
        let partly = links(&project, &["target/one", "target/two", "three"]);
        assert!(partly.place(&project, &top, None, LIMITS).unwrap());
        assert_eq!(fs::metadata(upper.join("three")).unwrap().nlink(), 3);
    }
}
