//! Files that a command renamed or linked, combined with changes that the host made meanwhile.

use super::*;

/// Old files, long enough to be distinguished, and some of the same name.
fn project(root: &Path) {
    for name in ["old.py", "a", "b", "same/name", "tree/name", "tree/deep/x"] {
        write(root, name, &format!("the content of {name}\n"));
    }
    std::fs::create_dir_all(root.join("other")).unwrap();
}

/// The entries that a scan finds if the host acts after the command and before the scan; `None` if
/// no overlay is available.
fn scan_summary(command: &str, host: &str) -> Option<Vec<String>> {
    let fixture = fixture(ViewKind::Overlay, project);
    if !fixture.in_overlay(command) {
        return None;
    }
    let status = Command::new("sh").args(["-ec", host]).current_dir(&fixture.root).status();
    assert!(status.unwrap().success(), "{host}");
    let reported = fixture.summary();
    fixture.view.remove().unwrap();
    Some(reported)
}

/// Creates names in each directory of the project, and removes some of them.
const BUSY_HOST: &str =
    "for d in . same tree tree/deep other; do echo h > $d/h; echo > $d/i; rm $d/i; done";

/// A summary of an entry without the path that it was renamed from.
fn without_source(entry: &str) -> String {
    match entry.split_once(" from ") {
        Some((path, rest)) => match rest.split_once(' ') {
            Some((_, marks)) => format!("{path} {marks}"),
            None => path.to_owned(),
        },
        None => entry.to_owned(),
    }
}

fn check(cases: &[(&str, &str, &[&str])]) {
    for (command, host, expected) in cases {
        let Some(mut told) = scan_summary(command, host) else { return };
        // Only the cases about renames name the path that a similar text was renamed from.
        if !expected.iter().any(|entry| entry.contains(" from ")) {
            told.iter_mut().for_each(|entry| *entry = without_source(entry));
        }
        assert_eq!(told, *expected, "{command} | {host}");
    }
}

#[test]
fn what_the_command_renamed_or_linked_is_no_conflict_where_the_host_was() {
    check(&[
        ("mv old.py new.py; echo n >> new.py", BUSY_HOST, &["+new.py from old.py", "-old.py"]),
        (
            "mv old.py new.py; echo other > new.py; chmod 700 new.py",
            BUSY_HOST,
            &["+new.py", "-old.py"],
        ),
        ("mv old.py new.py; : > new.py", BUSY_HOST, &["+new.py", "-old.py"]),
        ("mv old.py new.py", BUSY_HOST, &["+new.py from old.py", "-old.py"]),
        ("echo n >> a; ln a g", BUSY_HOST, &["~a", "+g"]),
        ("ln a g", BUSY_HOST, &["+g"]),
        ("ln a g; rm a", BUSY_HOST, &["-a", "+g from a"]),
        ("ln a g; ln g other/g; mv g e; echo n >> e", BUSY_HOST, &["~a", "+e", "+other/g"]),
        ("mv a c; mv b a; echo n >> c", BUSY_HOST, &["~a", "-b", "+c"]),
        ("mv a c; mv c other/d; echo n >> other/d; rm b", BUSY_HOST, &["-a", "-b", "+other/d"]),
        ("mv a a.bak; echo n > a", BUSY_HOST, &["~a", "+a.bak"]),
        ("rm b; mv a b; mv b c; echo n >> c", BUSY_HOST, &["-a", "-b", "+c"]),
        (
            "mkdir lib; mv old.py lib/new.py; echo n >> lib/new.py",
            BUSY_HOST,
            &["+lib", "+lib/new.py", "-old.py"],
        ),
        (
            "mv tree/name other/name; echo n >> other/name; rm -r tree",
            BUSY_HOST,
            &[
                "+other/name",
                "-tree",
                "-tree/deep",
                "-tree/deep/h conflict",
                "-tree/deep/x",
                "-tree/h conflict",
                "-tree/name",
            ],
        ),
    ]);
}

#[test]
fn what_the_host_did_to_the_same_names_is_a_conflict() {
    let edited = "mv old.py new.py; echo n >> new.py";
    check(&[
        // The host creates the new name.
        (edited, "echo h > new.py", &["~new.py conflict", "-old.py"]),
        (edited, "mkdir new.py", &["~new.py", "-old.py"]),
        ("echo n >> a; ln a g", "echo h > g", &["~a", "~g conflict"]),
        // The host replaces or edits the old one.
        (edited, "echo h > .h; mv .h old.py", &["+new.py", "-old.py conflict"]),
        (edited, "echo h >> old.py", &["+new.py from old.py", "-old.py conflict"]),
        ("echo n >> a; ln a g", "echo h > .h; mv .h a", &["~a conflict", "+g"]),
        // The host removes or renames the old one.
        (edited, "rm old.py", &["+new.py conflict"]),
        (edited, "mv old.py new.py", &["~new.py conflict"]),
        (edited, "mv old.py other.py", &["+new.py conflict"]),
        ("echo n >> a; ln a g", "rm a", &["+a conflict", "+g conflict"]),
        // The host removes what the command edited, also if the command removed something else.
        ("echo n >> a", "rm a", &["+a conflict"]),
        ("echo n >> a; rm b", "rm a", &["+a conflict", "-b"]),
        ("echo n >> a; sed -i s/b/c/ b", "rm a", &["+a conflict", "~b"]),
        ("echo n >> a; mv b c", "rm a", &["+a conflict", "-b", "+c from b"]),
        ("echo n >> a; mv b c; echo n >> c", "rm a", &["+a conflict", "-b", "+c conflict"]),
        (
            "echo n >> tree/name; mv same/name zone; mv zone other/name; echo n >> other/name",
            "rm tree/name",
            &["+other/name", "-same/name", "+tree/name conflict"],
        ),
        (
            "echo n >> a; mkdir z; mv same/name z/a; echo n >> z/a",
            "rm a",
            &["+a conflict", "-same/name", "+z", "+z/a"],
        ),
        // The host removes it with its directory.
        (
            "echo n >> tree/name; echo n > tree/new",
            "rm -r tree",
            &["+tree", "+tree/name conflict", "+tree/new"],
        ),
    ]);
}

/// Without an overlay a rename cannot be distinguished from a file that the host has removed.
#[test]
fn a_rename_in_a_copy_is_no_conflict() {
    let fixture = fixture(ViewKind::Copy, project);
    std::thread::sleep(std::time::Duration::from_millis(20));
    std::fs::rename(fixture.layer.join("old.py"), fixture.layer.join("new.py")).unwrap();
    fixture.write("new.py", "the content of old.py and more\n");
    std::fs::hard_link(fixture.layer.join("a"), fixture.layer.join("g")).unwrap();
    fixture.write("a", "more\n");
    std::fs::write(fixture.root.join("unrelated"), "h").unwrap();
    assert_eq!(fixture.summary(), ["~a", "+g", "+new.py", "-old.py"]);
    std::fs::write(fixture.root.join("new.py"), "h").unwrap();
    std::fs::write(fixture.root.join("old.py"), "h").unwrap();
    assert_eq!(fixture.summary(), ["~a", "+g", "~new.py conflict"]);
}
