//! Apply operations that are killed, at each step and at random moments, and the result of
//! recovery.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Command, Stdio};

use super::fixture::{BUNDLE, FileLedger, Fixture, Item, Random, Tree, path, read, tree};
use crate::apply::recover::recover_observed;
use crate::apply::{Error, Lock, Outcome, Request, Selection, Step, apply_observed, recover};
use crate::beneath::Dir;

const VICTIM: &str = "apply::tests::crash::victim";
const ACTION: &str = "STOCKADE_TEST_ACTION";
const DIRECTORY: &str = "STOCKADE_TEST_DIRECTORY";
const STEPS: &str = "STOCKADE_TEST_STEPS";

/// Not a test: the process that the tests here start and kill. It ends itself with SIGKILL
/// after the given number of steps.
#[test]
#[ignore = "a helper process"]
fn victim() {
    let Ok(action) = std::env::var(ACTION) else { return };
    let directory = std::path::PathBuf::from(std::env::var(DIRECTORY).unwrap());
    let mut steps: usize = std::env::var(STEPS).unwrap().parse().unwrap();
    let mut observe = |_: Step| {
        steps -= 1;
        if steps == 0 {
            rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL)
                .unwrap();
        }
    };
    let open = |name: &str| Dir::open(&directory.join(name)).unwrap();
    if action == "recover" {
        recover_observed(&open("journals"), &FileLedger(directory.join("notes")), &mut observe)
            .unwrap();
        return;
    }
    let manifest = std::fs::read(directory.join("manifest.json")).unwrap();
    let request = Request {
        bundle: BUNDLE,
        manifest: &serde_json::from_slice(&manifest).unwrap(),
        blobs: &open("blobs"),
        project: &directory.join("project"),
        journals: &open("journals"),
        ledger: &FileLedger(directory.join("notes")),
        selection: &Selection::default(),
        merge: None,
        partial: &[],
        times: &std::collections::BTreeMap::new(),
    };
    let result = apply_observed(&request, &mut observe);
    match action.as_str() {
        "apply" => drop(result.unwrap()),
        _ => assert!(
            matches!(&result, Err(Error::OtherFileSystem(at)) if *at == [path("d/mounted/x")]),
            "{result:?}"
        ),
    }
}

#[test]
fn what_is_mounted_in_a_project_is_refused_before_anything_changes() {
    let fixture = Fixture::new(
        &tree(&[("a", "1"), ("d/", ""), ("d/mounted/", "")]),
        &tree(&[("a", "2"), ("d/", ""), ("d/mounted/", ""), ("d/mounted/x", "2")]),
    );
    std::fs::create_dir(fixture.at("other")).unwrap();
    // A separate file system, and the same file system through another mount.
    for mount in ["mount -t tmpfs none", "mount --bind \"$3\""] {
        let script = format!("{mount} \"$1\" && \"$2\" --exact {VICTIM} --ignored || exit 1");
        let output = Command::new("unshare")
            .args(["--user", "--map-root-user", "--mount", "sh", "-c", &script, "sh"])
            .args([fixture.in_project("d/mounted"), std::env::current_exe().unwrap()])
            .arg(fixture.at("other"))
            .envs(environment(&fixture, "refuse", usize::MAX))
            .output();
        let output = match output {
            Ok(output) if !String::from_utf8_lossy(&output.stderr).contains("unshare:") => output,
            other => {
                crate::testing::skipped(&format!("no mount namespace here: {other:?}"));
                return;
            }
        };
        assert!(output.status.success(), "{output:?}");
        assert_eq!(std::fs::read(fixture.in_project("a")).unwrap(), b"1");
        fixture.assert_clean();
    }
}

fn start(fixture: &Fixture, action: &str, steps: usize) -> std::process::Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", VICTIM, "--ignored"])
        .envs(environment(fixture, action, steps))
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

fn environment(fixture: &Fixture, action: &str, steps: usize) -> [(&'static str, OsString); 3] {
    let manifest = serde_json::to_vec(&fixture.manifest).unwrap();
    std::fs::write(fixture.at("manifest.json"), manifest).unwrap();
    [
        (ACTION, action.into()),
        (DIRECTORY, fixture.at("").into_os_string()),
        (STEPS, steps.to_string().into()),
    ]
}

/// Whether the process was killed; otherwise it completed before.
fn was_killed(fixture: &Fixture, action: &str, steps: usize) -> bool {
    let status = start(fixture, action, steps).wait().unwrap();
    assert!(status.success() || status.signal() == Some(9), "{status:?}");
    !status.success()
}

/// All kinds of changes together.
fn before_and_after() -> (Tree, Tree) {
    let mut old = tree(&[
        ("a", "1"),
        ("dir-file/", ""),
        ("dir-file/x", "1"),
        ("file-dir", "1"),
        ("gone/", ""),
        ("gone/sub/", ""),
        ("gone/sub/x", "1"),
        ("link", "-> a"),
        ("mode/", ""),
        ("mode/x", "1"),
        ("stays", "1"),
    ]);
    old.insert(path("gone/sub"), Item::Directory(0o555));
    let mut new = tree(&[
        ("a", "2"),
        ("dir-file", "2"),
        ("file-dir/", ""),
        ("file-dir/y", "2"),
        ("link", "-> b"),
        ("mode/", ""),
        ("mode/x", "2"),
        ("new/", ""),
        ("new/locked/", ""),
        ("new/locked/z", "2"),
        ("stays", "1"),
    ]);
    new.insert(path("mode"), Item::Directory(0o500));
    new.insert(path("new/locked"), Item::Directory(0o555));
    (old, new)
}

#[test]
fn a_kill_after_any_step_leaves_all_old_or_all_new() {
    let (old, new) = before_and_after();
    let mut outcomes = std::collections::BTreeMap::new();
    for steps in 1.. {
        let fixture = Fixture::new(&old, &new);
        if !was_killed(&fixture, "apply", steps) {
            assert!(steps > 40, "only {steps} steps were told");
            break;
        }
        let recovered = recover(&fixture.journals, &fixture.ledger()).unwrap();
        let outcome = match recovered.as_slice() {
            [one] => match &one.outcome {
                Outcome::NotStarted => "not begun",
                Outcome::Undone(left) if left.is_empty() => "undone",
                Outcome::Finished => "finished",
                other => panic!("{steps}: {other:?}"),
            },
            other => panic!("{steps}: {other:?}"),
        };
        *outcomes.entry(outcome).or_insert(0) += 1;
        let expected = if outcome == "finished" { &new } else { &old };
        assert_eq!(fixture.tree(), *expected, "{steps}: {outcome}");
        // Exactly what was applied is recorded.
        let touched = fixture.manifest.entries.iter().map(|entry| entry.path.quoted());
        let noted: BTreeSet<_> = touched.filter(|_| outcome == "finished").collect();
        assert_eq!(fixture.marked(), noted, "{steps}: {outcome}");
        fixture.assert_clean();
        assert!(recover(&fixture.journals, &fixture.ledger()).unwrap().is_empty());
        fixture.apply().unwrap();
        assert_eq!(fixture.tree(), new);
    }
    assert_eq!(outcomes.len(), 3, "{outcomes:?}");
}

#[test]
fn a_recovery_may_be_killed_too() {
    let (old, new) = before_and_after();
    let mut random = Random::new(7);
    for steps in (1..45).step_by(3) {
        let fixture = Fixture::new(&old, &new);
        if !was_killed(&fixture, "apply", steps) {
            break;
        }
        for _ in 0..3 {
            was_killed(&fixture, "recover", 1 + random.below(20));
        }
        recover(&fixture.journals, &fixture.ledger()).unwrap();
        let tree = fixture.tree();
        assert!(tree == old || tree == new, "{steps}: {tree:#?}");
        fixture.assert_clean();
    }
}

#[test]
fn the_next_apply_recovers_by_itself() {
    let (old, new) = before_and_after();
    for steps in [2, 20, 35] {
        let fixture = Fixture::new(&old, &new);
        assert!(was_killed(&fixture, "apply", steps));
        fixture.apply().unwrap();
        assert_eq!(fixture.tree(), new);
        fixture.assert_clean();
    }
}

#[test]
fn a_kill_at_any_moment_leaves_all_old_or_all_new() {
    let (mut old, mut new) = (Tree::new(), Tree::new());
    for number in 0..400 {
        let content = |text: &str| Item::File(text.repeat(100).into_bytes(), 0o644);
        let name = path(&format!("f{number}"));
        if number % 3 != 0 {
            old.insert(name.clone(), content("old"));
        }
        if number % 3 != 1 {
            new.insert(name, content("new"));
        }
    }
    // Measures how long it takes without a kill.
    let fixture = Fixture::new(&old, &new);
    let started = std::time::Instant::now();
    assert!(!was_killed(&fixture, "apply", usize::MAX));
    let whole = started.elapsed();
    let mut random = Random::new(11);
    for round in 0..25 {
        let fixture = Fixture::new(&old, &new);
        let mut child = start(&fixture, "apply", usize::MAX);
        std::thread::sleep(
            whole.mul_f64(f64::from(u32::try_from(random.below(1000)).unwrap()) / 1000.0),
        );
        child.kill().unwrap();
        child.wait().unwrap();
        recover(&fixture.journals, &fixture.ledger()).unwrap();
        let tree = fixture.tree();
        assert!(tree == old || tree == new, "round {round}");
        fixture.assert_clean();
    }
}

#[test]
fn an_edit_between_crash_and_recovery_survives() {
    let old = tree(&[
        ("edited", "1"),
        ("gone", "1"),
        ("gone-dir/", ""),
        ("gone-dir/x", "1"),
        ("removed", "1"),
        ("replaced", "1"),
        ("untouched", "1"),
    ]);
    let new = tree(&[
        ("edited", "2"),
        ("removed", "2"),
        ("replaced", "2"),
        ("untouched", "2"),
        ("new/", ""),
        ("new/edited", "2"),
        ("new/untouched", "2"),
    ]);
    let fixture = Fixture::new(&old, &new);
    // All swapped, not committed: the steps are 2 of the journal, 10 staged, synced, armed and
    // 10 swapped.
    assert!(was_killed(&fixture, "apply", 2 + 10 + 2 + 10));
    let at = |name: &str| fixture.in_project(name);
    std::fs::write(at("edited"), "mine").unwrap();
    std::fs::write(at("new/edited"), "mine").unwrap();
    std::fs::write(at("new/mine"), "mine").unwrap();
    std::fs::write(at("gone"), "mine").unwrap();
    std::fs::remove_file(at("removed")).unwrap();
    std::fs::write(at("temporary"), "2").unwrap();
    std::fs::rename(at("temporary"), at("replaced")).unwrap();

    let recovered = recover(&fixture.journals, &fixture.ledger()).unwrap();
    let [one] = recovered.as_slice() else { panic!("{recovered:?}") };
    let Outcome::Undone(left) = &one.outcome else { panic!("{one:?}") };
    let left: Vec<_> = left
        .iter()
        .map(|left| {
            let kept = left.preserved_at.as_ref().map(|kept| {
                std::fs::read_to_string(fixture.at("project").join(kept.as_os_str())).unwrap()
            });
            (left.path.quoted(), kept)
        })
        .collect();
    let old_content = Some("1".to_owned());
    assert_eq!(
        left,
        [
            ("edited".to_owned(), old_content.clone()),
            ("gone".to_owned(), old_content.clone()),
            ("new".to_owned(), None),
            ("new/edited".to_owned(), None),
            ("removed".to_owned(), old_content.clone()),
            ("replaced".to_owned(), old_content),
        ]
    );
    let mut now = read(&fixture.project);
    now.retain(|path, _| !path.as_bytes().starts_with(b".stockade-kept-"));
    assert_eq!(
        now,
        tree(&[
            ("edited", "mine"),
            ("gone", "mine"),
            ("gone-dir/", ""),
            ("gone-dir/x", "1"),
            ("new/", ""),
            ("new/edited", "mine"),
            ("new/mine", "mine"),
            ("replaced", "2"),
            ("untouched", "1"),
        ])
    );
    assert_eq!(fixture.journals.entries().unwrap(), []);
}

#[test]
fn a_recovery_leaves_a_running_apply_alone() {
    let (old, new) = before_and_after();
    let fixture = Fixture::new(&old, &new);
    let mut seen = 0;
    fixture
        .apply_with(&Selection::default(), &mut |_| {
            seen += 1;
            assert!(recover(&fixture.journals, &fixture.ledger()).unwrap().is_empty());
        })
        .unwrap();
    assert!(seen > 40);
    assert_eq!(fixture.tree(), new);

    // The same for a killed one whose project another process has locked.
    let fixture = Fixture::new(&old, &new);
    assert!(was_killed(&fixture, "apply", 30));
    let lock = Lock::acquire(&fixture.project).unwrap();
    assert!(recover(&fixture.journals, &fixture.ledger()).unwrap().is_empty());
    drop(lock);
    assert_eq!(recover(&fixture.journals, &fixture.ledger()).unwrap().len(), 1);
    assert_eq!(fixture.tree(), old);
}

#[test]
fn a_project_that_moved_is_found_by_the_next_apply_to_it() {
    let (old, new) = before_and_after();
    let fixture = Fixture::new(&old, &new);
    assert!(was_killed(&fixture, "apply", 30));
    std::fs::rename(fixture.at("project"), fixture.at("moved")).unwrap();
    for _ in 0..2 {
        let recovered = recover(&fixture.journals, &fixture.ledger()).unwrap();
        assert!(matches!(recovered[0].outcome, Outcome::ProjectMissing), "{recovered:?}");
    }
    // Another directory at its path is not mistaken for it.
    std::fs::create_dir(fixture.at("project")).unwrap();
    let recovered = recover(&fixture.journals, &fixture.ledger()).unwrap();
    assert!(matches!(recovered[0].outcome, Outcome::ProjectMissing), "{recovered:?}");
    let moved = fixture.at("moved");
    let request = Request {
        bundle: BUNDLE,
        manifest: &fixture.manifest,
        blobs: &fixture.blobs,
        project: &moved,
        journals: &fixture.journals,
        ledger: &fixture.ledger(),
        selection: &Selection::default(),
        merge: None,
        partial: &[],
        times: &std::collections::BTreeMap::new(),
    };
    apply_observed(&request, &mut |_| {}).unwrap();
    assert_eq!(fixture.tree(), new);
    fixture.assert_clean();
    std::fs::remove_dir(fixture.at("project")).unwrap();
    std::fs::rename(moved, fixture.at("project")).unwrap();
}

#[test]
fn a_damaged_journal_is_told_and_stops_only_applying() {
    let fixture = Fixture::new(&tree(&[]), &tree(&[("a", "1")]));
    std::fs::write(fixture.at("journals/1-2-3.armed"), "{").unwrap();
    std::fs::write(fixture.at("journals/4-5-6.new"), "{").unwrap();
    let recovered = recover(&fixture.journals, &fixture.ledger()).unwrap();
    assert!(matches!(recovered[0].outcome, Outcome::Failed(_)), "{recovered:?}");
    assert!(fixture.apply().is_err());
    std::fs::remove_file(fixture.at("journals/1-2-3.armed")).unwrap();
    fixture.apply().unwrap();
    fixture.assert_clean();
}
