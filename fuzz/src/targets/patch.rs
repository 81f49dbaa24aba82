//! A unified diff that a stranger wrote.

use stockade_bundle::RelativePath;
use stockade_bundle::patch::{FilePatch, Operation, Side, parse};
use stockade_core::BundleLimits;

/// Words of the format.
pub(super) const WORDS: &[&str] = &[
    "diff --git a/f b/f\n",
    "diff --git ",
    "--- a/",
    "+++ b/",
    "--- /dev/null\n",
    "+++ /dev/null\n",
    "@@ -1 +1 @@\n",
    "@@ -0,0 +1 @@\n",
    "@@ -1 +0,0 @@\n",
    "new file mode 100644\n",
    "new file mode 120000\n",
    "deleted file mode 100644\n",
    "old mode 100644\n",
    "new mode 100755\n",
    "rename from ",
    "rename to ",
    "copy from ",
    "copy to ",
    "similarity index 100%\n",
    "index 1..2 100644\n",
    "index 0..1\n",
    "GIT binary patch\n",
    "Binary files a/f and b/f differ\n",
    "literal ",
    "delta ",
    "\\ No newline at end of file\n",
    "-- \n",
    "\"a/",
    "\\303\\251",
    "\\000",
    "../",
    "/",
    "\t",
    "\n",
    "\n+",
    "\n-",
    "\n ",
];

/// Reads a patch; text without a patch in it counts as refused. What was accepted is in its
/// limits, names only paths that stay below, and each hunk holds what its header says.
pub(super) fn run(bytes: &[u8]) -> bool {
    let limits = &BundleLimits::SANDBOX;
    let Ok(files) = parse(bytes, limits) else { return false };
    assert!(files.len() as u64 <= limits.entries);
    files.iter().for_each(|file| check(file, limits));
    !files.is_empty()
}

fn check(file: &FilePatch<'_>, limits: &BundleLimits) {
    let (old, new) = (file.old_path.as_ref(), file.new_path.as_ref());
    match file.operation {
        Operation::Add => assert!(old.is_none() && new.is_some(), "{file:?}"),
        Operation::Delete => assert!(old.is_some() && new.is_none(), "{file:?}"),
        Operation::Modify => assert!(old.is_some() && old == new, "{file:?}"),
        Operation::Rename | Operation::Copy => {
            assert!(old.is_some() && new.is_some() && old != new, "{file:?}");
        }
    }
    for path in [old, new].into_iter().flatten() {
        assert!(path.as_bytes().len() as u64 <= limits.path_bytes, "{path:?}");
        assert_eq!(RelativePath::new(path.as_bytes()).as_ref(), Ok(path));
    }
    for mode in [file.old_mode, file.new_mode].into_iter().flatten() {
        assert!(matches!(mode, 0o100_000..=0o100_777 | 0o120_000), "{mode:o}");
    }
    assert!(!file.binary || file.hunks.is_empty(), "{file:?}");
    for hunk in &file.hunks {
        let besides = |side| hunk.lines.iter().filter(|line| line.side != side).count();
        assert_eq!(besides(Side::New), hunk.old_count as usize, "{hunk:?}");
        assert_eq!(besides(Side::Old), hunk.new_count as usize, "{hunk:?}");
    }
}
