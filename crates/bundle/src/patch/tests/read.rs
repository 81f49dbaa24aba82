//! Parsing patches: the usual forms, ambiguous ones, git's own, and mutated ones.

use std::collections::BTreeSet;
use std::os::unix::fs::symlink;

use stockade_core::BundleLimits;

use super::git;
use crate::patch::{Fault, FilePatch, Operation, parse};
use crate::testing::{Random, chmod};

const LIMITS: BundleLimits = BundleLimits::SANDBOX;

fn read(patch: &str) -> Vec<FilePatch<'_>> {
    parse(patch.as_bytes(), &LIMITS).unwrap_or_else(|error| panic!("{error}\n{patch}"))
}

fn fault(patch: &str) -> Fault {
    match parse(patch.as_bytes(), &LIMITS) {
        Err(error) => error.fault,
        Ok(files) => panic!("accepted: {patch}\n{files:?}"),
    }
}

const EDIT: &str =
    "diff --git a/f b/f\nindex 1..2 100644\n--- a/f\n+++ b/f\n@@ -1,2 +1,2 @@\n a\n-b\n+c\n";

#[test]
fn the_usual_forms_are_read() {
    let mail = format!("From: somebody\nSubject: x\n\n---\n f | 2 +-\n\n{EDIT}-- \n2.47\n");
    let files = read(&mail);
    assert_eq!(files.len(), 1);
    assert_eq!((files[0].operation, files[0].hunks[0].lines.len()), (Operation::Modify, 3));
    assert_eq!(files[0].new_mode, Some(0o100_644));

    let plain =
        read("--- a/x y\t2026-01-01 00:00\n+++ b/x y\t2026-01-01\n@@ -1 +1 @@ fn main\n-b\n+c\n");
    assert_eq!(plain[0].old_path.as_ref().unwrap().as_bytes(), b"x y");
    let added = read("--- /dev/null\n+++ b/new\n@@ -0,0 +1 @@\n+x\n\\ No newline at end of file\n");
    assert_eq!((added[0].operation, &added[0].old_path), (Operation::Add, &None));
    assert!(!added[0].hunks[0].lines[0].newline);
    let renamed =
        read("diff --git a/o o b/n n\nsimilarity index 100%\nrename from o o\nrename to n n\n");
    assert_eq!(renamed[0].operation, Operation::Rename);
    let mode = read("diff --git a/s b/s\nold mode 100644\nnew mode 100755\n");
    assert_eq!(mode[0].new_mode, Some(0o100_755));
    let empty =
        read("diff --git \"a/\\303\\251\" \"b/\\303\\251\"\nnew file mode 100644\nindex 0..1\n");
    assert_eq!(empty[0].new_path.as_ref().unwrap().as_bytes(), "é".as_bytes());
    let link = read(
        "diff --git a/d/l b/d/l\nnew file mode 120000\n--- /dev/null\n+++ b/d/l\n@@ -0,0 +1 @@\n+../x\n\\ No newline at end of file\n",
    );
    assert_eq!(link[0].new_mode, Some(0o120_000));
}

#[test]
fn what_could_be_misread_is_refused() {
    use crate::path::Error as Path;
    let renamed = |from: &str, to: &str| {
        format!("diff --git a/o b/n\nsimilarity index 90%\nrename from {from}\nrename to {to}\n")
    };
    let link = |target: &str| {
        format!(
            "diff --git a/l b/l\nnew file mode 120000\n--- /dev/null\n+++ b/l\n@@ -0,0 +1 @@\n+{target}\n\\ No newline at end of file\n"
        )
    };
    let cases = [
        (
            EDIT.replace("a/f b/f", "a/../f b/../f").replace("/f\n", "/../f\n"),
            Fault::Path(Path::Component),
        ),
        (EDIT.replace("+++ b/f", "+++ b/g"), Fault::Names),
        (EDIT.replace("diff --git a/f b/f", "diff --git a/g b/g"), Fault::Names),
        (EDIT.replace("--- a/f", "--- /etc/passwd"), Fault::Path(Path::Absolute)),
        (EDIT.replace("--- a/f", "--- f"), Fault::Prefix),
        (EDIT.replace("--- a/f", "--- \"a/f"), Fault::Quoting),
        (EDIT.replace("--- a/f", "--- \"a/f\\000\""), Fault::Path(Path::Nul)),
        (EDIT.replace("+++ b/f\n", ""), Fault::Sides),
        (EDIT.replace("--- a/f", "--- /dev/null"), Fault::Contradiction),
        (EDIT.replace("100644", "100644\nnew file mode 100644"), Fault::Contradiction),
        (EDIT.replace("100644", "160000"), Fault::Mode),
        (EDIT.replace("100644", "104755"), Fault::Mode),
        (EDIT.replace("-1,2 +1,2", "-1,2 +1,3"), Fault::HunkLength),
        (EDIT.replace("-1,2 +1,2", "-1,1 +1,1"), Fault::HunkLength),
        (EDIT.replace("-1,2 +1,2", "-1,9999999999 +1,2"), Fault::HunkHeader),
        (EDIT.replace("-1,2 +1,2", "-0,2 +1,2"), Fault::HunkHeader),
        (format!("{EDIT}@@ -1 +1 @@\n-x\n+y\n"), Fault::HunkOrder),
        (
            EDIT.replace("-b\n", "-b\n\\ No newline at end of file\n") + "@@ -9 +9 @@\n-x\n+y\n",
            Fault::NoNewline,
        ),
        (format!("{EDIT}+more\n"), Fault::HunkLength),
        ("@@ -1 +1 @@\n-a\n+b\n".to_owned(), Fault::UnexpectedLine),
        (renamed("o", "m"), Fault::Names),
        (renamed("/o", "n"), Fault::Path(Path::Absolute)),
        ("diff --git a/o b/n\nrename from o\n".to_owned(), Fault::Contradiction),
        ("diff --git a/o b/n\nold mode 100644\nnew mode 100755\n".to_owned(), Fault::Names),
        ("diff --git a/f b/f\n".to_owned(), Fault::Empty),
        ("diff --git a/f b/f\nold mode 100644\nold mode 100644\n".to_owned(), Fault::Repeated),
        (link("/etc/passwd"), Fault::Link),
        (link("../x"), Fault::Link),
        ("diff --git a/l b/l\nold mode 100644\nnew mode 120000\n".to_owned(), Fault::Link),
        (
            "diff --git a/f b/f\nGIT binary patch\nliteral 5\nnot base 85\n\n".to_owned(),
            Fault::Binary,
        ),
    ];
    for (patch, wanted) in cases {
        assert_eq!(fault(&patch), wanted, "{patch}");
    }
    let long = EDIT.replace("/f", &format!("/{}", "d/".repeat(600) + "f"));
    assert!(matches!(fault(&long), Fault::Limit(exceeded) if exceeded.limit == "path_bytes"));
    let many = EDIT.repeat(1001);
    assert!(matches!(fault(&many), Fault::Limit(exceeded) if exceeded.limit == "entries"));
}

/// Git's own output is parsed, with the same paths.
#[test]
fn the_patches_of_git_are_read() {
    let scratch = tempfile::tempdir().unwrap();
    let root = scratch.path();
    if git(root, &["init", "-q"]).is_none() {
        return;
    }
    let mut random = Random::new(5);
    let names = ["plain", "a b", "n\nl", "é", "q\"q", "back\\s", "d/inner", "d/x y"];
    std::fs::create_dir(root.join("d")).unwrap();
    let fill = |random: &mut Random| {
        for name in names {
            let path = root.join(name);
            let _ = std::fs::remove_file(&path);
            match random.below(6) {
                0 => {}
                1 => symlink(["plain", "d"][random.below(2)], &path).unwrap(),
                2 => std::fs::write(&path, [0, 1, 2, u8::try_from(random.below(200)).unwrap()])
                    .unwrap(),
                _ => {
                    let lines = (0..random.below(20)).map(|_| ["x\n", "y\n", "z"][random.below(3)]);
                    std::fs::write(&path, lines.collect::<String>()).unwrap();
                    chmod(&path, [0o644, 0o755][random.below(2)]);
                }
            }
        }
    };
    for round in 0..40 {
        fill(&mut random);
        git(root, &["add", "-A"]).unwrap();
        git(root, &["commit", "-q", "--allow-empty", "-m", "x"]).unwrap();
        fill(&mut random);
        git(root, &["add", "-A"]).unwrap();
        let patch = git(root, &["diff", "--cached", "--binary", "-M", "-C"]).unwrap().stdout;
        let shown = String::from_utf8_lossy(&patch);
        let files = parse(&patch, &LIMITS).unwrap_or_else(|e| panic!("{round}: {e}\n{shown}"));
        let ours: BTreeSet<Vec<u8>> = files
            .iter()
            .flat_map(|file| [&file.old_path, &file.new_path])
            .flatten()
            .map(|path| path.as_bytes().to_vec())
            .collect();
        let listed = git(root, &["diff", "--cached", "--name-status", "-z", "-M", "-C"]).unwrap();
        // Status letters are not needed here, and no name equals one.
        let theirs: BTreeSet<Vec<u8>> = listed
            .stdout
            .split(|b| *b == 0)
            .filter(|field| names.iter().any(|name| name.as_bytes() == *field))
            .map(<[u8]>::to_vec)
            .collect();
        assert_eq!(ours, theirs, "{round}\n{shown}");
    }
}

/// Patches in which bytes were changed, or lines moved or duplicated, are refused or parsed,
/// without a panic; every parsed patch satisfies all guarantees.
#[test]
fn mutated_patches_never_panic() {
    let seeds = [
        EDIT.to_owned(),
        "diff --git a/o b/n\nsimilarity index 90%\nrename from o\nrename to n\n--- a/o\n+++ b/n\n@@ -3,0 +4 @@\n+x\n".to_owned(),
        "diff --git \"a/\\303\\251\" \"b/\\303\\251\"\ndeleted file mode 120000\n--- \"a/\\303\\251\"\n+++ /dev/null\n@@ -1 +0,0 @@\n-t\n\\ No newline at end of file\n".to_owned(),
        "diff --git a/f b/f\nindex 1..2 100644\nGIT binary patch\ndelta 4\nLcmZ3(!N0J6g|j~x0ssI2000\n\nliteral 1\nIcmZPo000310RR91\n\n".to_owned(),
        "--- a/x\n+++ b/x\n@@ -1,3 +1,2 @@\n a\n-b\n c\n@@ -10 +9,2 @@\n x\n+y\n".to_owned(),
    ];
    let mut random = Random::new(17);
    let mut accepted = 0;
    for round in 0..60_000 {
        let mut patch = seeds[round % seeds.len()].clone().into_bytes();
        for _ in 0..1 + random.below(4) {
            let (at, other) = (random.below(patch.len()), random.below(patch.len()));
            match random.below(4) {
                0 => patch[at] = u8::try_from(random.below(256)).unwrap(),
                1 => patch[at] = b"\n\\\"/.@+- 0123"[random.below(13)],
                2 => patch.swap(at, other),
                _ => {
                    let (from, to) = (at.min(other), at.max(other));
                    let piece = patch[from..to].to_vec();
                    patch.splice(from..from, piece);
                }
            }
        }
        let Ok(files) = parse(&patch, &LIMITS) else { continue };
        for file in &files {
            accepted += 1;
            assert!(file.old_path.is_some() || file.new_path.is_some());
            for hunk in &file.hunks {
                let count = |other| hunk.lines.iter().filter(|line| line.side != other).count();
                assert_eq!(count(crate::patch::Side::New), hunk.old_count as usize);
                assert_eq!(count(crate::patch::Side::Old), hunk.new_count as usize);
            }
        }
    }
    assert!(accepted > 1000, "{accepted}");
}
