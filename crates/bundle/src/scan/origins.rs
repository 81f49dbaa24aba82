//! Whose doing it is that the project lacks a file which the overlay has made from one of the
//! project's: the command's, which renamed or linked it, or the host's, which removed it meanwhile.
//!
//! The overlay does not say which file that was: `user.overlay.origin` is empty where whoever mounts
//! has no rights on the host (`ovl_can_decode_fh` in the kernel). So it is told from what else the
//! view holds: other names of the same inode, and what is gone. A rename leaves a deletion with an
//! inode of its own, while all that a removal leaves share one with the overlay's working directory
//! (`ovl_whiteout` in the kernel, since Linux 5.8). Where they do not, as in the copy of a layer, a
//! removal counts as a rename: what the command did is not to become a conflict.

use std::collections::{HashMap, HashSet};

use crate::manifest::{Change, ContentHash, Entry, Node};

/// What a walk finds of such files. Entries are named by their places in the walk's list.
#[derive(Debug, Default)]
pub(super) struct Origins {
    /// By inode: one that has several names was made once.
    strays: HashMap<u64, Stray>,
    /// Inodes with a name that the project has too.
    at_home: HashSet<u64>,
    /// Deletions of files that renames have left.
    renamed: Vec<usize>,
}

/// A file that was made from one of the project's, under names that the project lacks.
#[derive(Debug, Default)]
struct Stray {
    additions: Vec<usize>,
    /// Whether the host may have removed one of the names.
    is_doubtful: bool,
}

impl Origins {
    /// An addition of a file that was made from one of the project's.
    pub(super) fn stray(&mut self, inode: u64, addition: usize, is_doubtful: bool) {
        let stray = self.strays.entry(inode).or_default();
        stray.additions.push(addition);
        stray.is_doubtful |= is_doubtful;
    }

    /// A file with several names, one of which the project has.
    pub(super) fn at_home(&mut self, inode: u64) {
        self.at_home.insert(inode);
    }

    /// A deletion of a file that a rename has left.
    pub(super) fn renamed(&mut self, deletion: usize) {
        self.renamed.push(deletion);
    }

    /// Marks as conflicts what the host may have removed and nothing in the view explains.
    pub(super) fn judge(self, entries: &mut [Entry]) {
        let Self { mut strays, at_home, renamed } = self;
        // The project has the file that they are links to.
        strays.retain(|inode, _| !at_home.contains(inode));
        if !strays.values().any(|stray| stray.is_doubtful) {
            return;
        }
        let mut strays: Vec<Stray> = strays.into_values().collect();
        // What the command has renamed for certain takes its deletion before others do, and the
        // others in an order that is the same each time.
        strays.sort_by_key(|stray| {
            (stray.is_doubtful, stray.additions.iter().map(|at| &entries[*at].path).min())
        });
        let mut sources = Sources::of(entries, &renamed);
        strays.retain(|stray| !sources.have_content(stray, entries));
        strays.retain(|stray| !sources.have_name(stray, entries));
        // Each rename has left a deletion; which is whose does not matter where there are enough.
        if strays.len() <= sources.rest(&renamed) {
            return;
        }
        let doubtful = strays.into_iter().filter(|stray| stray.is_doubtful);
        for at in doubtful.flat_map(|stray| stray.additions) {
            entries[at].conflict = true;
        }
    }
}

/// The files of the project that strays can have been made from.
struct Sources {
    /// Deletions, those that a rename has left last.
    by_content: HashMap<ContentHash, Vec<usize>>,
    by_name: HashMap<Vec<u8>, Vec<usize>>,
    taken: HashSet<usize>,
    /// What was where another file is now.
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
        Self { by_content, by_name, taken: HashSet::new(), displaced }
    }

    /// Whether one that is not taken yet has the content of `stray`; takes it.
    fn have_content(&mut self, stray: &Stray, entries: &[Entry]) -> bool {
        let mut contents = stray
            .additions
            .iter()
            .filter_map(|at| entries[*at].change.new_node().and_then(content));
        let Some(content) = contents.next() else { return false };
        take(self.by_content.get_mut(&content), &mut self.taken)
            || self.displaced.contains(&content)
    }

    /// Whether one that is not taken yet has a name of `stray`, in any directory; takes it.
    fn have_name(&mut self, stray: &Stray, entries: &[Entry]) -> bool {
        stray
            .additions
            .iter()
            .any(|at| take(self.by_name.get_mut(entries[*at].path.file_name()), &mut self.taken))
    }

    /// How many of these are not taken.
    fn rest(&self, deletions: &[usize]) -> usize {
        deletions.iter().filter(|at| !self.taken.contains(at)).count()
    }
}

fn take(candidates: Option<&mut Vec<usize>>, taken: &mut HashSet<usize>) -> bool {
    let Some(candidates) = candidates else { return false };
    while let Some(candidate) = candidates.pop() {
        if taken.insert(candidate) {
            return true;
        }
    }
    false
}

/// What a file holds. Empty files are too much alike to tell.
fn content(node: &Node) -> Option<ContentHash> {
    match node {
        Node::File { hash, size, .. } if *size > 0 => Some(*hash),
        Node::File { .. } | Node::Symlink { .. } | Node::Directory { .. } => None,
    }
}
