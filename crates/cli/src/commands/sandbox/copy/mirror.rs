//! What `cp --delete` removes: paths of the destination that the source does not have. What patterns
//! exclude is neither copied nor removed, nor are the directories that contain it.

use std::collections::BTreeSet;

use stockade_bundle::RelativePath;

use super::exclude::Exclusions;

/// A path below the destination, and whether it is a directory.
pub(super) type Found = (RelativePath, bool);

/// The paths to remove, without those below another one. `found` is everything below the destination,
/// each directory before its content; `has` whether the source has a path.
pub(super) fn extraneous(
    found: &[Found],
    has: impl Fn(&RelativePath) -> bool,
    excluded: &mut Exclusions,
) -> Vec<Found> {
    let mut kept = BTreeSet::new();
    let mut extraneous = Vec::new();
    for (path, is_directory) in found {
        let is_excluded = excluded.excludes(path, *is_directory);
        if is_excluded || has(path) {
            let mut parent = path.parent();
            while let Some(directory) = parent.filter(|_| is_excluded) {
                parent = directory.parent();
                kept.insert(directory);
            }
        } else {
            extraneous.push((path.clone(), *is_directory));
        }
    }
    extraneous.retain(|(path, _)| !kept.contains(path));
    let mut removed: BTreeSet<RelativePath> = BTreeSet::new();
    extraneous.retain(|(path, _)| {
        let mut parent = path.parent();
        while let Some(directory) = parent {
            if removed.contains(&directory) {
                return false;
            }
            parent = directory.parent();
        }
        removed.insert(path.clone())
    });
    extraneous
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(found: &[&str], source: &[&str], excluded: &[&str]) -> Vec<String> {
        let path = |text: &str| RelativePath::new(text.trim_end_matches('/')).unwrap();
        let found: Vec<Found> =
            found.iter().map(|text| (path(text), text.ends_with('/'))).collect();
        let source: BTreeSet<_> = source.iter().map(|text| path(text)).collect();
        let patterns: Vec<_> = excluded.iter().map(Into::into).collect();
        let mut excluded = Exclusions::new(&patterns, &[]).unwrap();
        let text = |(path, _): Found| String::from_utf8(path.as_bytes().to_vec()).unwrap();
        extraneous(&found, |path| source.contains(path), &mut excluded)
            .into_iter()
            .map(text)
            .collect()
    }

    #[test]
    fn what_the_source_lacks_is_removed_once() {
        let found = ["a/", "a/b", "a/c", "d/", "d/e/", "d/e/f", "g"];
        assert_eq!(paths(&found, &["a", "a/b", "g"], &[]), ["a/c", "d"]);
        assert_eq!(paths(&found, &["a", "a/b", "a/c", "d", "d/e", "d/e/f", "g"], &[]), [""; 0]);
        assert_eq!(paths(&found, &[], &[]), ["a", "d", "g"]);
    }

    #[test]
    fn what_is_excluded_stays_with_its_directories() {
        let found = ["a/", "a/keep.log", "a/b", "d/", "d/x.log", "e.log", "f"];
        assert_eq!(paths(&found, &[], &["*.log"]), ["a/b", "f"]);
        // Everything below an excluded directory stays too.
        let found = ["build/", "build/x", "build/y/", "build/y/z", "w"];
        assert_eq!(paths(&found, &[], &["build/"]), ["w"]);
    }
}
