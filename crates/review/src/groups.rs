//! Many paths in few lines: those of one directory that are treated in the same way are one group.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use stockade_bundle::RelativePath;

/// Paths that are treated in the same way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    /// The path, or the directory of the paths; `None` is the project's root.
    pub path: Option<RelativePath>,
    /// The number of paths.
    pub paths: usize,
}

/// Groups paths by directory. Each path is in the group of the topmost directory that has no path of
/// `others`; if every directory above it has one, in the group of its own directory. A path that would
/// be alone in its group stays as it is.
pub fn by_directory(paths: &BTreeSet<RelativePath>, others: &BTreeSet<RelativePath>) -> Vec<Group> {
    let mut groups: BTreeMap<Option<RelativePath>, Vec<&RelativePath>> = BTreeMap::new();
    for path in paths {
        let top = ancestors(path)
            .into_iter()
            .chain(has_any(paths, path, true).then(|| path.clone()))
            .find(|directory| !has_any(others, directory, false));
        groups.entry(top.or_else(|| path.parent())).or_default().push(path);
    }
    let all = paths;
    let group = |(directory, paths): (Option<RelativePath>, Vec<&RelativePath>)| match *paths {
        [one] => Group { path: Some(one.clone()), paths: 1 },
        _ => Group { path: directory, paths: count(paths.iter().copied(), all) },
    };
    groups.into_iter().map(group).collect()
}

/// The number of paths that are treated in the same way as all of `all`: a directory counts by what is in it.
pub(crate) fn count<'p>(
    paths: impl IntoIterator<Item = &'p RelativePath>,
    all: &BTreeSet<RelativePath>,
) -> usize {
    paths.into_iter().filter(|path| !has_any(all, path, true)).count()
}

/// The directories above a path, from the topmost one.
fn ancestors(path: &RelativePath) -> Vec<RelativePath> {
    let mut all: Vec<_> = std::iter::successors(path.parent(), RelativePath::parent).collect();
    all.reverse();
    all
}

/// Whether a set has a path below a directory, or the directory itself unless only those below count.
fn has_any(set: &BTreeSet<RelativePath>, directory: &RelativePath, only_below: bool) -> bool {
    if !only_below && set.contains(directory) {
        return true;
    }
    // `out.txt` sorts between `out` and `out/a`.
    set.range((Bound::Excluded(directory), Bound::Unbounded))
        .take_while(|path| path.as_bytes().starts_with(directory.as_bytes()))
        .any(|path| path.is_within(directory))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(paths: &[&str]) -> BTreeSet<RelativePath> {
        paths.iter().map(|path| RelativePath::new(*path).unwrap()).collect()
    }

    fn lines(paths: &[&str], others: &[&str]) -> Vec<String> {
        let shown = |group: Group| match group.path {
            Some(path) => format!("{path} {}", group.paths),
            None => format!(". {}", group.paths),
        };
        by_directory(&set(paths), &set(others)).into_iter().map(shown).collect()
    }

    #[test]
    fn paths_are_grouped_by_the_topmost_directory_that_is_theirs_alone() {
        let few: &[(&[&str], &[&str], &[&str])] = &[
            (&["out", "out/1", "out/2", "out/sub", "out/sub/3"], &["a.txt"], &["out 3"]),
            (&["out/1", "out/2"], &["outer", "out.txt"], &["out 2"]),
            (&["src/gen/x.o", "src/gen/y.o"], &["src/a.c"], &["src/gen 2"]),
            (&["src/x.o", "src/y.o"], &["src/a.c"], &["src 2"]),
            (&["x.log", "y.log"], &["a"], &[". 2"]),
            (&["x.log"], &["a"], &["x.log 1"]),
            (&["out/only"], &[], &["out/only 1"]),
            (&[".git/index", ".git/objects/aa/b"], &["a"], &[".git 2"]),
            (&["out", "x.log"], &[], &[". 2"]),
        ];
        for (paths, others, expected) in few {
            assert_eq!(lines(paths, others), *expected, "{paths:?} {others:?}");
        }
    }
}
