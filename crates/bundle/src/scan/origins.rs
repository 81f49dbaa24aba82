//! Who caused the project to lack a file from which the overlay made a file in the view: the
//! command, which renamed or linked the file, or the host, which removed it meanwhile.
//!
//! The overlay does not record which file that was: `user.overlay.origin` is empty if the process
//! that mounts has no rights on the host (`ovl_can_decode_fh` in the kernel). So it is inferred from
//! the rest of the view: other names of the same inode, and deleted paths. A rename leaves a
//! deletion with an inode of its own, while all deletions that removals leave share one inode with
//! the overlay's working directory (`ovl_whiteout` in the kernel, since Linux 5.8). Where they do
//! not share one, as in the copy of a layer, a removal counts as a rename: a change by the command
//! must not be reported as a conflict.

use std::collections::{HashMap, HashSet};

use crate::manifest::{Change, ContentHash, Entry, Node};

/// What a walk finds about such files. Entries are identified by their indices in the walk's list.
#[derive(Debug, Default)]
pub(super) struct Origins {
    /// By inode: an inode with several names is one file.
    moved_files: HashMap<u64, MovedFile>,
    /// Inodes with a name that also exists in the project.
    still_in_project: HashSet<u64>,
    /// Deletions of files that renames have left.
    renamed: Vec<usize>,
}

/// A file that was made from one of the project's, under names that the project lacks.
#[derive(Debug, Default)]
struct MovedFile {
    additions: Vec<usize>,
    /// Whether the host may have removed one of the names.
    may_be_removed_by_host: bool,
}

impl Origins {
    /// Records an addition of a file that was made from one of the project's.
    pub(super) fn add_moved_file(&mut self, inode: u64, addition: usize, is_doubtful: bool) {
        let stray = self.moved_files.entry(inode).or_default();
        stray.additions.push(addition);
        stray.may_be_removed_by_host |= is_doubtful;
    }

    /// Records a file with several names, one of which exists in the project.
    pub(super) fn add_still_in_project(&mut self, inode: u64) {
        self.still_in_project.insert(inode);
    }

    /// Records a deletion of a file that a rename has left.
    pub(super) fn add_renamed(&mut self, deletion: usize) {
        self.renamed.push(deletion);
    }

    /// Marks as conflicts the files that the host may have removed and that nothing in the view
    /// explains.
    pub(super) fn mark_conflicts(self, entries: &mut [Entry]) {
        let Self { moved_files: mut strays, still_in_project: at_home, renamed } = self;
        // The project has the file that they are links to.
        strays.retain(|inode, _| !at_home.contains(inode));
        if !strays.values().any(|stray| stray.may_be_removed_by_host) {
            return;
        }
        let mut strays: Vec<MovedFile> = strays.into_values().collect();
        // Certain renames claim their deletion before doubtful ones do; within each group the
        // order is deterministic.
        strays.sort_by_key(|stray| {
            (
                stray.may_be_removed_by_host,
                stray.additions.iter().map(|at| &entries[*at].path).min(),
            )
        });
        let mut sources = Sources::of(entries, &renamed);
        strays.retain(|stray| !sources.take_by_content(stray, entries));
        strays.retain(|stray| !sources.take_by_name(stray, entries));
        // Each rename has left a deletion; if there are enough, it does not matter which belongs to
        // which.
        if strays.len() <= sources.count_unused(&renamed) {
            return;
        }
        let doubtful = strays.into_iter().filter(|stray| stray.may_be_removed_by_host);
        for at in doubtful.flat_map(|stray| stray.additions) {
            entries[at].conflict = true;
        }
    }
}

/// The files of the project that strays may have been made from.
struct Sources {
    /// Deletions; those that a rename has left come last.
    by_content: HashMap<ContentHash, Vec<usize>>,
    by_name: HashMap<Vec<u8>, Vec<usize>>,
    used: HashSet<usize>,
    /// The old contents of paths at which another file is now.
    displaced: HashSet<ContentHash>,
}

impl Sources {
    fn of(entries: &[Entry], renamed: &[usize]) -> Self {
        let mut displaced = HashSet::new();
        let mut deletions = Vec::new();
        for (at, entry) in entries.iter().enumerate() {
            match &entry.change {
                Change::Modify { old, .. } => displaced.extend(content(old)),
                Change::Delete { old: Node::File { .. } } => deletions.push(at),
                Change::Delete { .. } | Change::Add { .. } => {}
            }
        }
        let renamed: HashSet<usize> = renamed.iter().copied().collect();
        deletions.sort_by_key(|at| (renamed.contains(at), &entries[*at].path));
        let mut by_content: HashMap<_, Vec<usize>> = HashMap::new();
        let mut by_name: HashMap<_, Vec<usize>> = HashMap::new();
        for at in deletions {
            if let Some(content) = entries[at].change.old().and_then(content) {
                by_content.entry(content).or_default().push(at);
            }
            by_name.entry(entries[at].path.file_name().to_vec()).or_default().push(at);
        }
        Self { by_content, by_name, used: HashSet::new(), displaced }
    }

    /// Whether an unclaimed deletion, or a displaced file, has the content of `stray`; claims the
    /// deletion.
    fn take_by_content(&mut self, stray: &MovedFile, entries: &[Entry]) -> bool {
        let mut contents = stray
            .additions
            .iter()
            .filter_map(|at| entries[*at].change.new_node().and_then(content));
        let Some(content) = contents.next() else { return false };
        take_candidate(self.by_content.get_mut(&content), &mut self.used)
            || self.displaced.contains(&content)
    }

    /// Whether an unclaimed deletion has a name of `stray`, in any directory; claims it.
    fn take_by_name(&mut self, stray: &MovedFile, entries: &[Entry]) -> bool {
        stray.additions.iter().any(|at| {
            take_candidate(self.by_name.get_mut(entries[*at].path.file_name()), &mut self.used)
        })
    }

    /// How many of these are unclaimed.
    fn count_unused(&self, deletions: &[usize]) -> usize {
        deletions.iter().filter(|at| !self.used.contains(at)).count()
    }
}

fn take_candidate(candidates: Option<&mut Vec<usize>>, taken: &mut HashSet<usize>) -> bool {
    let Some(candidates) = candidates else { return false };
    while let Some(candidate) = candidates.pop() {
        if taken.insert(candidate) {
            return true;
        }
    }
    false
}

/// The content of a file. Empty files are too similar to be matched.
fn content(node: &Node) -> Option<ContentHash> {
    match node {
        Node::File { hash, size, .. } if *size > 0 => Some(*hash),
        Node::File { .. } | Node::Symlink { .. } | Node::Directory { .. } => None,
    }
}
