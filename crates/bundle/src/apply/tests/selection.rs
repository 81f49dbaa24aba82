//! Which entries are selected, added because others require them, left out and refused.

use super::fixture::{Fixture, path, tree};
use crate::apply::{Error, Selection, Skip};
use crate::manifest::{ExecutedBy, Refusal};

fn skipped(applied: &crate::apply::ApplyOutcome) -> Vec<(String, Skip)> {
    applied.skipped.iter().map(|skip| (skip.path.quoted(), skip.reason.clone())).collect()
}

#[test]
fn named_paths_bring_their_new_parents_and_nothing_else() {
    let fixture = Fixture::new(
        &tree(&[("x", "1")]),
        &tree(&[
            ("a/", ""),
            ("a/b/", ""),
            ("a/b/c", "1"),
            ("a/b/d", "1"),
            ("a-b", "1"),
            ("x", "2"),
        ]),
    );
    let applied = fixture.select(&["a/b/c"]).unwrap();
    assert_eq!(applied.changed, [path("a"), path("a/b"), path("a/b/c")]);
    assert_eq!(fixture.tree(), tree(&[("a/", ""), ("a/b/", ""), ("a/b/c", "1"), ("x", "1")]));
    // A directory includes its content, and entries that were applied before are not conflicts.
    let applied = fixture.select(&["a"]).unwrap();
    assert_eq!(applied.changed, [path("a/b/d")]);
    assert_eq!(applied.already_present, [path("a"), path("a/b"), path("a/b/c")]);
    fixture.apply().unwrap();
    assert_eq!(fixture.manifest.entries.len(), 6);
    let unknown = fixture.select(&["a/b", "y", "a/b/c/d"]).unwrap_err();
    assert!(
        matches!(&unknown, Error::NotInBundle(at) if *at == [path("y"), path("a/b/c/d")]),
        "{unknown:?}"
    );
}

#[test]
fn ignored_entries_are_taken_only_when_asked_for() {
    let make = || {
        let mut fixture = Fixture::new(
            &tree(&[]),
            &tree(&[("src/", ""), ("src/a", "1"), ("src/a.o", "1"), ("out/", ""), ("out/x", "1")]),
        );
        for name in ["src/a.o", "out", "out/x"] {
            fixture.entry(name).ignored = true;
        }
        fixture
    };
    let plain = make();
    let applied = plain.apply().unwrap();
    assert_eq!(applied.changed, [path("src"), path("src/a")]);
    assert_eq!(
        skipped(&applied),
        ["out", "out/x", "src/a.o"].map(|name| (name.to_owned(), Skip::Ignored))
    );
    assert_eq!(make().select(&["src"]).unwrap().changed, [path("src"), path("src/a")]);
    assert_eq!(make().select(&["out"]).unwrap().changed, [path("out"), path("out/x")]);
    assert_eq!(make().select(&["out/x"]).unwrap().changed, [path("out"), path("out/x")]);
    assert_eq!(make().select(&["src/a.o"]).unwrap().changed, [path("src"), path("src/a.o")]);
    let all = Selection { include_ignored: true, ..Selection::default() };
    assert_eq!(make().apply_with(&all, &mut |_| {}).unwrap().changed.len(), 5);
}

#[test]
fn refused_entries_are_never_taken() {
    let mut fixture = Fixture::new(
        &tree(&[]),
        &tree(&[
            (".git/", ""),
            (".git/config", "evil"),
            (".stockade-apply-1/", ""),
            (".stockade-apply-1/0", "evil"),
            ("a", "1"),
        ]),
    );
    for name in [".git", ".git/config"] {
        fixture.entry(name).refused = Some(Refusal::GitDirectory);
    }
    for named in [".git", ".git/config"] {
        let error = fixture.select(&["a", named]).unwrap_err();
        assert!(matches!(error, Error::Refused(_)), "{error:?}");
    }
    assert_eq!(fixture.tree(), tree(&[]));
    let applied = fixture.apply().unwrap();
    assert_eq!(applied.changed, [path("a")]);
    let refused = |name: &str| (name.to_owned(), Skip::Refused(Refusal::GitDirectory));
    let reserved = |name: &str| (name.to_owned(), Skip::Reserved);
    assert_eq!(
        skipped(&applied),
        [
            refused(".git"),
            refused(".git/config"),
            reserved(".stockade-apply-1"),
            reserved(".stockade-apply-1/0")
        ]
    );
    assert_eq!(fixture.tree(), tree(&[("a", "1")]));
}

#[test]
fn executed_entries_have_to_be_allowed() {
    let mut fixture = Fixture::new(&tree(&[]), &tree(&[(".envrc", "evil"), ("a", "1")]));
    fixture.entry(".envrc").executed_by = Some(ExecutedBy::Shell);
    let error = fixture.apply().unwrap_err();
    assert!(
        matches!(&error, Error::Executed { paths, has_unseen: false }
            if *paths == [(path(".envrc"), ExecutedBy::Shell)]),
        "{error:?}"
    );
    assert_eq!(fixture.tree(), tree(&[]));
    fixture.select(&["a"]).unwrap();
    assert_eq!(fixture.tree(), tree(&[("a", "1")]));
    let allowed = Selection { allow_executed: true, ..Selection::default() };
    fixture.apply_with(&allowed, &mut |_| {}).unwrap();
    assert_eq!(fixture.tree(), tree(&[(".envrc", "evil"), ("a", "1")]));
}

#[test]
fn contents_that_no_diff_shows_have_to_be_accepted() {
    let mut fixture = Fixture::new(&tree(&[]), &tree(&[("a", "1"), ("b", "2")]));
    let unseen = std::collections::BTreeMap::from([(path("a"), 1)]);
    let hidden = Selection { unseen, ..Selection::default() };
    let error = fixture.apply_with(&hidden, &mut |_| {}).unwrap_err();
    assert!(matches!(&error, Error::Unseen(at) if *at == [(path("a"), 1)]), "{error:?}");
    assert_eq!(fixture.tree(), tree(&[]));
    fixture.entry("b").executed_by = Some(ExecutedBy::Shell);
    let error = fixture.apply_with(&hidden, &mut |_| {}).unwrap_err();
    assert!(matches!(&error, Error::Executed { has_unseen: true, .. }), "{error:?}");
    let named = Selection { paths: vec![path("b")], allow_executed: true, ..hidden };
    fixture.apply_with(&named, &mut |_| {}).unwrap();
    assert_eq!(fixture.tree(), tree(&[("b", "2")]));
}

#[test]
fn the_halves_of_a_rename_go_together() {
    let make = || {
        let mut fixture = Fixture::new(
            &tree(&[("from", "1"), ("other", "1")]),
            &tree(&[("to/", ""), ("to/here", "1"), ("other", "2")]),
        );
        fixture.entry("to/here").renamed_from = Some(path("from"));
        fixture
    };
    let renamed = [path("from"), path("to"), path("to/here")];
    assert_eq!(make().select(&["from"]).unwrap().changed, renamed);
    assert_eq!(make().select(&["to/here"]).unwrap().changed, renamed);
    assert_eq!(make().select(&["other"]).unwrap().changed, [path("other")]);

    let mut refused = make();
    refused.entry("to/here").refused = Some(Refusal::GitDirectory);
    let applied = refused.apply().unwrap();
    assert_eq!(applied.changed, [path("other"), path("to")]);
    assert!(
        skipped(&applied).contains(&("from".to_owned(), Skip::MissingDependency(path("to/here"))))
    );
    assert_eq!(std::fs::read(refused.in_project("from")).unwrap(), b"1");

    let mut ignored = make();
    ignored.entry("to/here").ignored = true;
    let applied = ignored.apply().unwrap();
    assert_eq!(
        skipped(&applied),
        [
            ("from".to_owned(), Skip::MissingDependency(path("to/here"))),
            ("to/here".to_owned(), Skip::Ignored)
        ]
    );
    assert_eq!(ignored.select(&["from"]).unwrap().changed, [path("from"), path("to/here")]);
}
