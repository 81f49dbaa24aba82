//! Bundles that are refused as a whole, with the project untouched.

use std::os::unix::fs::symlink;
use std::sync::atomic::{AtomicBool, Ordering};

use super::fixture::{Fixture, Item, Tree, path, tree};
use crate::apply::{BlobFault, Difference, Error, Lock, Selection, Skip, SkippedChange, Step};
use crate::beneath::Rename;
use crate::manifest::{ContentHash, Refusal};

fn conflicts(result: Result<crate::apply::ApplyOutcome, Error>) -> Vec<(String, Difference)> {
    match result {
        Err(Error::Conflicts(conflicts)) => conflicts
            .into_iter()
            .map(|conflict| (conflict.path.quoted(), conflict.difference))
            .collect(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn parts_of_a_repository_are_judged_by_what_the_project_holds_now() {
    let mut new = tree(&[("fine", "1"), ("lib/", ""), ("lib/HEAD", "1"), ("lib/config", "1")]);
    let fixture = Fixture::new(&tree(&[("lib/", "")]), &new);
    for name in ["lib/objects", "lib/refs"] {
        std::fs::create_dir(fixture.in_project(name)).unwrap();
    }
    let applied = fixture.apply().unwrap();
    let refused = |name: &str| {
        let reason = Skip::Refused(Refusal::BareRepository);
        SkippedChange { path: path(name), reason }
    };
    assert_eq!(applied.skipped, [refused("lib/HEAD"), refused("lib/config")]);
    new.retain(|at, _| !["lib/HEAD", "lib/config"].map(path).contains(at));
    new.extend(tree(&[("lib/objects/", ""), ("lib/refs/", "")]));
    assert_eq!(fixture.tree(), new);
    assert_eq!(fixture.marked().len(), 1);
    match fixture.select(&["lib/config"]) {
        Err(Error::Refused(refused)) => assert_eq!(refused.len(), 1),
        other => panic!("{other:?}"),
    }
}

#[test]
fn all_conflicts_are_told_together_and_nothing_changes() {
    let old = tree(&[
        ("content", "1"),
        ("gone", "1"),
        ("mode", "1"),
        ("parent/", ""),
        ("parent/x", "1"),
        ("same", "1"),
        ("size", "1"),
        ("target", "-> a"),
        ("type", "1"),
        ("while", "1"),
        ("dir-file/", ""),
        ("dir-mode/", ""),
    ]);
    let mut new = tree(&[
        ("added", "2"),
        ("content", "2"),
        ("gone", "2"),
        ("mode", "2"),
        ("parent/", ""),
        ("parent/x", "2"),
        ("parent/y/", ""),
        ("parent/y/z", "2"),
        ("same", "2"),
        ("size", "2"),
        ("target", "-> b"),
        ("type", "2"),
        ("while", "2"),
        ("dir-file", "2"),
    ]);
    new.insert(path("dir-mode"), Item::Directory(0o700));
    let mut fixture = Fixture::new(&old, &new);
    fixture.entry("while").conflict = true;
    let write = |name: &str, text: &str| std::fs::write(fixture.in_project(name), text).unwrap();
    let remove = |name: &str| std::fs::remove_file(fixture.in_project(name)).unwrap();
    write("added", "other");
    write("content", "9");
    write("size", "999");
    write("dir-file/mine", "mine");
    remove("gone");
    remove("target");
    symlink("c", fixture.in_project("target")).unwrap();
    remove("type");
    std::fs::create_dir(fixture.in_project("type")).unwrap();
    fixture.project.chmod(&path("mode"), 0o600).unwrap();
    fixture.project.chmod(&path("dir-mode"), 0o711).unwrap();
    let elsewhere = fixture.at("elsewhere");
    std::fs::rename(fixture.in_project("parent"), &elsewhere).unwrap();
    symlink(&elsewhere, fixture.in_project("parent")).unwrap();

    let before = fixture.tree();
    let found = conflicts(fixture.apply());
    let expected = [
        ("added", Difference::Exists),
        ("content", Difference::Content),
        ("dir-file", Difference::NotEmpty),
        ("dir-mode", Difference::Mode),
        ("gone", Difference::Missing),
        ("mode", Difference::Mode),
        ("parent/x", Difference::Parent),
        ("parent/y", Difference::Parent),
        ("size", Difference::Content),
        ("target", Difference::Target),
        ("type", Difference::Type),
        ("while", Difference::DuringRun),
    ];
    assert_eq!(found, expected.map(|(path, difference)| (path.to_owned(), difference)));
    assert_eq!(fixture.tree(), before);
    assert_eq!(std::fs::read(elsewhere.join("x")).unwrap(), b"1");
    fixture.assert_clean();
}

#[test]
fn a_missing_or_altered_content_changes_nothing() {
    for fault in [BlobFault::Missing, BlobFault::Altered] {
        for altered in ["2", "three!", ""] {
            let fixture = Fixture::new(
                &tree(&[("a", "1"), ("b", "1")]),
                &tree(&[("a", "other"), ("b", "three")]),
            );
            let blob = fixture.at("blobs").join(ContentHash::of(b"three").to_hex());
            match fault {
                BlobFault::Missing => std::fs::remove_file(blob).unwrap(),
                BlobFault::Altered => std::fs::write(blob, altered).unwrap(),
            }
            let error = fixture.apply().unwrap_err();
            assert!(
                matches!(&error, Error::Blob { path: at, fault: f } if *at == path("b") && *f == fault),
                "{error:?}"
            );
            assert_eq!(fixture.tree(), tree(&[("a", "1"), ("b", "1")]));
            fixture.assert_clean();
        }
    }
}

#[test]
fn an_edit_during_the_apply_survives_and_undoes_it() {
    let old = tree(&[("a", "1"), ("b", "1"), ("c", "1"), ("d/", ""), ("d/x", "1")]);
    let new = tree(&[("a", "2"), ("b", "2"), ("e/", ""), ("e/f", "2")]);
    // Each edit is made at its step; the paths that it changes follow.
    type Edit = fn(&Fixture);
    let edits: [(Step, Edit, Tree); 6] = [
        (
            Step::Armed,
            |f| std::fs::write(f.in_project("b"), "9").unwrap(),
            tree(&[("a", "1"), ("b", "9"), ("c", "1"), ("d/", ""), ("d/x", "1")]),
        ),
        (
            Step::Armed,
            |f| std::fs::remove_file(f.in_project("b")).unwrap(),
            tree(&[("a", "1"), ("c", "1"), ("d/", ""), ("d/x", "1")]),
        ),
        (
            Step::Armed,
            |f| std::fs::write(f.in_project("e"), "mine").unwrap(),
            tree(&[("a", "1"), ("b", "1"), ("c", "1"), ("d/", ""), ("d/x", "1"), ("e", "mine")]),
        ),
        (
            Step::Armed,
            |f| std::fs::write(f.in_project("d/new"), "mine").unwrap(),
            tree(&[
                ("a", "1"),
                ("b", "1"),
                ("c", "1"),
                ("d/", ""),
                ("d/x", "1"),
                ("d/new", "mine"),
            ]),
        ),
        (
            // After it was displaced, as a program that has it open does.
            Step::Swapped(6),
            |f| {
                let stage = stage_of(f);
                let held = std::fs::read_dir(&stage)
                    .unwrap()
                    .map(|entry| entry.unwrap().path())
                    .find(|at| std::fs::read(at).is_ok_and(|content| content == b"1"))
                    .unwrap();
                std::fs::write(held, "9").unwrap();
            },
            Tree::new(),
        ),
        (
            // In a new file, while the rest is still being swapped, followed by a conflict.
            // Three files were removed before.
            Step::Swapped(5),
            |f| {
                std::fs::write(f.in_project("a"), "9").unwrap();
                std::fs::write(f.in_project("e"), "mine").unwrap();
            },
            Tree::new(),
        ),
    ];
    for (at, edit, expected) in edits {
        let fixture = Fixture::new(&old, &new);
        let result = fixture.apply_with(&Selection::default(), &mut |step| {
            if step == at {
                edit(&fixture);
            }
        });
        match at {
            Step::Armed => {
                conflicts(result);
                assert_eq!(fixture.tree(), expected);
            }
            Step::Swapped(6) => {
                let changed = conflicts(result);
                assert_eq!(changed.len(), 1);
                let tree = fixture.tree();
                let edited: Vec<_> = tree
                    .values()
                    .filter(|item| matches!(item, Item::File(content, _) if content == b"9"))
                    .collect();
                assert_eq!((edited.len(), tree.len()), (1, old.len()));
            }
            _ => {
                let error = result.unwrap_err();
                let Error::PartlyUndone { cause, not_restored: left } = error else {
                    panic!("{error:?}")
                };
                assert!(matches!(*cause, Error::Conflicts(_)), "{cause:?}");
                assert_eq!(std::fs::read(fixture.in_project("a")).unwrap(), b"9");
                let kept = left.iter().find(|left| left.path == path("a")).unwrap();
                let kept = fixture
                    .in_project(kept.preserved_at.as_ref().unwrap().as_os_str().to_str().unwrap());
                assert_eq!(std::fs::read(kept).unwrap(), b"1");
                assert_eq!(std::fs::read(fixture.in_project("b")).unwrap(), b"1");
                continue;
            }
        }
        fixture.assert_clean();
    }
}

fn stage_of(fixture: &Fixture) -> std::path::PathBuf {
    std::fs::read_dir(fixture.at("project"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .find(|at| {
            at.file_name().unwrap().to_str().is_some_and(|n| n.starts_with(".stockade-apply-"))
        })
        .unwrap()
}

#[test]
fn a_parent_that_becomes_a_link_meanwhile_leads_nowhere() {
    let old = tree(&[("d/", ""), ("d/a", "1"), ("d/b", "1")]);
    let new = tree(&[("d/", ""), ("d/a", "2"), ("d/c", "2")]);
    let fixture = Fixture::new(&old, &new);
    let outside = fixture.at("outside");
    std::fs::create_dir(&outside).unwrap();
    std::fs::write(outside.join("a"), "1").unwrap();
    std::fs::write(outside.join("b"), "1").unwrap();
    symlink(&outside, fixture.in_project("link")).unwrap();
    let exchange = || {
        let project = &fixture.project;
        project.rename(&path("d"), project, &path("link"), Rename::Exchange).unwrap();
    };
    // Once at each step, as long as the apply operation runs.
    for at in 1..20 {
        let mut steps = 0;
        let result = fixture.apply_with(&Selection::default(), &mut |_| {
            steps += 1;
            if steps == at {
                exchange();
            }
        });
        if steps < at {
            assert!(at > 10 && result.is_ok(), "{at}: {result:?}");
            break;
        }
        exchange();
        for (name, content) in [("a", Some("1")), ("b", Some("1")), ("c", None)] {
            drop(std::fs::remove_file(fixture.in_project("d").join(name)));
            if let Some(content) = content {
                std::fs::write(fixture.in_project("d").join(name), content).unwrap();
            }
        }
    }
    // At random moments.
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                exchange();
            }
        });
        for _ in 0..200 {
            drop(fixture.apply());
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert_eq!(std::fs::read(outside.join("a")).unwrap(), b"1");
    assert_eq!(std::fs::read(outside.join("b")).unwrap(), b"1");
    assert_eq!(std::fs::read_dir(&outside).unwrap().count(), 2);
}

#[test]
fn a_project_that_became_a_link_is_refused() {
    let fixture = Fixture::new(&tree(&[]), &tree(&[("a", "1")]));
    std::fs::rename(fixture.at("project"), fixture.at("elsewhere")).unwrap();
    symlink(fixture.at("elsewhere"), fixture.at("project")).unwrap();
    let error = fixture.apply().unwrap_err();
    assert!(
        matches!(error, Error::Beneath(crate::beneath::Error::ThroughLink { .. })),
        "{error:?}"
    );
    assert_eq!(fixture.tree(), tree(&[]));
}

#[test]
fn one_apply_at_a_time() {
    let fixture = Fixture::new(&tree(&[]), &tree(&[("a", "1")]));
    let lock = Lock::acquire(&fixture.project).unwrap();
    assert!(matches!(fixture.apply(), Err(Error::Busy)));
    assert!(matches!(Lock::acquire(&fixture.project), Err(Error::Busy)));
    drop(lock);
    fixture.apply().unwrap();
}

#[test]
fn a_user_is_told_of_directories_it_may_not_change() {
    if rustix::process::geteuid().is_root() {
        crate::testing::skipped("root may change any directory");
        return;
    }
    let mut old = tree(&[("free", "1"), ("locked/", ""), ("locked/a", "1")]);
    old.insert(path("locked"), Item::Directory(0o555));
    let mut new = old.clone();
    new.insert(path("free"), Item::File(b"2".to_vec(), 0o644));
    new.insert(path("locked/a"), Item::File(b"2".to_vec(), 0o644));
    let fixture = Fixture::new(&old, &new);
    let error = fixture.apply().unwrap_err();
    assert!(matches!(&error, Error::NotWritable(at) if *at == [path("locked/a")]), "{error:?}");
    assert_eq!(fixture.tree(), old);
    fixture.assert_clean();

    // The user may remove the directory as a whole, or change its mode.
    let fixture = Fixture::new(&old, &tree(&[("free", "1")]));
    fixture.apply().unwrap();
    assert_eq!(fixture.tree(), tree(&[("free", "1")]));
}
