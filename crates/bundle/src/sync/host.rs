//! Reads a directory of the host, while other processes may change it.

use std::io;

use super::blobs::hash_file;
use super::filter::{Filter, Verdict};
use super::tree::{Found, MAX_DEPTH, Scan, SkipReason};
use crate::beneath::{Dir, FileKind, Stat};
use crate::manifest::Node;
use crate::path::RelativePath;

/// How often a file is read that changes meanwhile.
const ATTEMPTS: u32 = 3;

/// Everything in a directory that the filter keeps. Files larger than `max_bytes` are left out.
///
/// # Errors
/// The directory itself, or an ignore file, cannot be read.
pub fn scan(root: &Dir, filter: &mut Filter, max_bytes: Option<u64>) -> io::Result<Scan> {
    let mut scan = Scan::default();
    let mut reader = Reader { root, filter, max_bytes, scan: &mut scan };
    reader.directory(None, 0)?;
    Ok(scan)
}

struct Reader<'a> {
    root: &'a Dir,
    filter: &'a mut Filter,
    max_bytes: Option<u64>,
    scan: &'a mut Scan,
}

impl Reader<'_> {
    fn directory(&mut self, path: Option<&RelativePath>, depth: usize) -> io::Result<()> {
        let listed = match path {
            None => self.root.entries(),
            Some(path) => self.root.open_dir(path).and_then(|dir| dir.entries()),
        };
        let mut names = match (listed, path) {
            (Ok(names), _) => names,
            (Err(error), None) => return Err(error.into()),
            (Err(_), Some(path)) => {
                self.skip(path, SkipReason::Unreadable);
                return Ok(());
            }
        };
        names.sort_by(|one, other| one.0.cmp(&other.0));
        for (name, _) in names {
            let path = match path {
                None => RelativePath::new(name),
                Some(path) => path.join(&name),
            };
            self.entry(path.map_err(io::Error::other)?, depth)?;
        }
        Ok(())
    }

    fn entry(&mut self, path: RelativePath, depth: usize) -> io::Result<()> {
        let stat = match self.root.stat(&path) {
            Ok(Some(stat)) => stat,
            // It was removed meanwhile.
            Ok(None) => return Ok(()),
            Err(_) => {
                self.skip(&path, SkipReason::Unreadable);
                return Ok(());
            }
        };
        let is_directory = stat.kind == FileKind::Directory;
        let verdict = self.filter.judge(&path, is_directory)?;
        if let Verdict::Skip(reason) = verdict {
            self.skip(&path, reason);
            return Ok(());
        }
        let kept = verdict == Verdict::Keep;
        match stat.kind {
            FileKind::Directory if depth >= MAX_DEPTH => self.skip(&path, SkipReason::SpecialFile),
            FileKind::Directory => {
                if kept {
                    self.found(&path, Node::Directory { mode: stat.mode & 0o777 }, &stat);
                }
                self.directory(Some(&path), depth + 1)?;
            }
            _ if !kept => {}
            FileKind::Symlink => match self.root.read_link(&path) {
                Ok(target) => self.found(&path, Node::Symlink { target }, &stat),
                Err(_) => self.skip(&path, SkipReason::ChangedMeanwhile),
            },
            FileKind::File if self.max_bytes.is_some_and(|limit| stat.size > limit) => {
                self.skip(&path, SkipReason::TooLarge);
            }
            FileKind::File => self.file(&path),
            FileKind::CharacterDevice | FileKind::Other => {
                self.skip(&path, SkipReason::SpecialFile);
            }
        }
        Ok(())
    }

    fn file(&mut self, path: &RelativePath) {
        for _ in 0..ATTEMPTS {
            let Ok(mut file) = self.root.open_file(path) else {
                return self.skip(path, SkipReason::Unreadable);
            };
            let read = (|| {
                let before = Stat::of(&file)?;
                let (hash, size) = hash_file(&mut file)?;
                Ok::<_, io::Error>((before, Stat::of(&file)?, hash, size))
            })();
            let Ok((before, after, hash, size)) = read else {
                return self.skip(path, SkipReason::Unreadable);
            };
            if (before.size, before.modified) == (after.size, after.modified) && size == after.size
            {
                let node = Node::File { hash, size, mode: after.mode & 0o777 };
                return self.found(path, node, &after);
            }
        }
        self.skip(path, SkipReason::ChangedMeanwhile);
    }

    fn found(&mut self, path: &RelativePath, node: Node, stat: &Stat) {
        let found = Found { node, modified: Some(stat.modified.into()) };
        self.scan.tree.insert(path.clone(), found);
    }

    fn skip(&mut self, path: &RelativePath, reason: SkipReason) {
        self.scan.skipped.insert(path.clone(), reason);
    }
}

/// Whether a file of the host has this content. Only a file of the same length is read.
///
/// # Errors
/// Those of the file system.
pub fn has_content(
    root: &Dir,
    path: &RelativePath,
    hash: crate::manifest::ContentHash,
    size: u64,
) -> io::Result<bool> {
    match root.stat(path) {
        Ok(Some(stat)) if stat.kind == FileKind::File && stat.size == size => {}
        _ => return Ok(false),
    }
    let Ok(mut file) = root.open_file(path) else { return Ok(false) };
    Ok(hash_file(&mut file)?.0 == hash)
}
