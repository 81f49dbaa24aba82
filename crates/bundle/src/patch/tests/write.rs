//! Writing patches: `git apply` produces the content of the bundle from them.

use std::io::Write as _;

use super::git;
use crate::manifest::{Change, ContentHash, Entry, Node};
use crate::patch::{Content, Rendered, Sides, parse, render};
use crate::path::RelativePath;
use crate::testing::Random;
use stockade_core::BundleLimits;

fn node(content: &[u8], mode: u32) -> Node {
    Node::File { hash: ContentHash::of(content), size: content.len() as u64, mode }
}

fn entry(path: &[u8], change: Change) -> Entry {
    Entry {
        path: RelativePath::new(path).unwrap(),
        change,
        renamed_from: None,
        tree: None,
        ignored: false,
        refused: None,
        executed_by: None,
        conflict: false,
        base_known: false,
    }
}

fn rendered(entry: &Entry, old: Option<&[u8]>, new: Option<&[u8]>) -> String {
    let side = |bytes: Option<&[u8]>| bytes.map(|bytes| Content::of(bytes.to_vec()));
    let sides = Sides { old: side(old), new: side(new), renamed: None };
    String::from_utf8(render(entry, &sides, None).text).unwrap()
}

#[test]
fn each_kind_of_change_is_written_as_git_does() {
    let change = Change::Modify { old: node(b"a\nb\n", 0o644), new: node(b"a\nc", 0o755) };
    assert_eq!(
        rendered(&entry(b"a b", change), Some(b"a\nb\n"), Some(b"a\nc")),
        "diff --git a/a b b/a b\nold mode 100644\nnew mode 100755\n--- a/a b\t\n+++ b/a b\t\n\
         @@ -1,2 +1,2 @@\n a\n-b\n+c\n\\ No newline at end of file\n"
    );
    let change = Change::Add { new: node(b"x\n", 0o644) };
    assert_eq!(
        rendered(&entry(b"n\n\xff", change), None, Some(b"x\n")),
        "diff --git \"a/n\\n\\377\" \"b/n\\n\\377\"\nnew file mode 100644\n--- /dev/null\n\
         +++ \"b/n\\n\\377\"\n@@ -0,0 +1 @@\n+x\n"
    );
    let change = Change::Delete { old: Node::Symlink { target: b"to".to_vec() } };
    assert_eq!(
        rendered(&entry("\u{e9}".as_bytes(), change), Some(b"to"), None),
        "diff --git a/é b/é\ndeleted file mode 120000\n--- a/é\n+++ /dev/null\n@@ -1 +0,0 @@\n\
         -to\n\\ No newline at end of file\n"
    );
    let change = Change::Modify { old: node(b"\0\0", 0o644), new: node(b"\0", 0o644) };
    assert_eq!(
        rendered(&entry(b"bin", change), Some(b"\0\0"), Some(b"\0")),
        "diff --git a/bin b/bin\n--- a/bin\n+++ b/bin\n@@ -1 +1 @@\n-\0\0\n\\ No newline at end of file\n\
         +\0\n\\ No newline at end of file\n"
    );
    let binary = [0; 2000];
    let change = Change::Modify { old: node(&binary, 0o644), new: node(b"x", 0o644) };
    let shown = rendered(&entry(b"bin", change), Some(&binary), Some(b"x"));
    assert_eq!(
        shown,
        "diff --git a/bin b/bin\nindex 561f00b70bfee14952f82c8704bf7249603e946c..\
         c1b0730e0133447badcfd47fd144e254807b06e1\nGIT binary patch\nliteral 1\n\
         Ic$}*M004Oac>n+a\n\nliteral 2000\nYc%1FP0Sy2E0K%a6Pi+o2C;;Hy00+<j0RR91\n\n"
    );
    let mut renamed = entry(b"new", Change::Add { new: node(b"x", 0o644) });
    renamed.renamed_from = Some(RelativePath::new("old").unwrap());
    assert_eq!(
        rendered(&renamed, None, Some(b"x")),
        "diff --git a/old b/new\nsimilarity index 100%\nrename from old\nrename to new\n"
    );
    let change = Change::Add { new: Node::Directory { mode: 0o755 } };
    assert_eq!(rendered(&entry(b"d", change), None, None), "new directory d mode 755\n");
    let change = Change::Modify { old: node(b"x", 0o644), new: node(b"x", 0o600) };
    assert_eq!(
        rendered(&entry(b"m", change), Some(b"x"), Some(b"x")),
        "diff --git a/m b/m\nold mode 100644\nnew mode 100600\n"
    );
    // Bidirectional controls and invisible characters are escaped.
    let change = Change::Add { new: node(b"", 0o644) };
    assert_eq!(
        rendered(&entry("a\u{202e}b".as_bytes(), change), None, Some(b"")),
        "diff --git \"a/a\\342\\200\\256b\" \"b/a\\342\\200\\256b\"\nnew file mode 100644\n"
    );
}

/// A text of a few kinds of lines, so that many of them are equal.
fn text(random: &mut Random) -> Vec<u8> {
    let mut text = Vec::new();
    for _ in 0..random.below(30) {
        let lines = [
            &b"one"[..],
            b"two",
            b"",
            b"\xff",
            b"-- x",
            b"@@ -1 +1 @@",
            b"\0",
            b"a\r",
            b"\xe2\x80\xae",
        ];
        text.extend(lines[random.below(lines.len())]);
        text.push(b'\n');
    }
    if random.below(3) == 0 {
        text.pop();
    }
    text
}

/// `git apply` accepts what is rendered, and turns the old content into the new one.
#[test]
fn git_applies_what_is_rendered() {
    let mut random = Random::new(11);
    for round in 0..40 {
        let scratch = tempfile::tempdir().unwrap();
        let root = scratch.path();
        let mut patch = Vec::new();
        let mut wanted = Vec::new();
        for number in 0..8 {
            let name = [&b"plain"[..], b"a b", b"n\nl", b"\xff\"\\", "é".as_bytes(), b"t\tt"]
                [random.below(6)];
            let name = [name, number.to_string().as_bytes()].concat();
            let path = RelativePath::new(name.clone()).unwrap();
            let (old, new) = (text(&mut random), text(&mut random));
            let exists = |random: &mut Random| random.below(4) != 0;
            let (had, has) = (exists(&mut random), exists(&mut random));
            let old_node = node(&old, 0o644);
            let new_node = node(&new, if random.below(2) == 0 { 0o644 } else { 0o755 });
            let change = match (had, has) {
                (true, true) if old_node == new_node => continue,
                (true, true) => Change::Modify { old: old_node, new: new_node },
                (true, false) => Change::Delete { old: old_node },
                (false, true) => Change::Add { new: new_node },
                (false, false) => continue,
            };
            if had {
                std::fs::write(root.join(path.as_os_str()), &old).unwrap();
            }
            let sides = Sides {
                old: had.then(|| Content::of(old.clone())),
                new: has.then(|| Content::of(new.clone())),
                renamed: None,
            };
            let one = render(&entry(&name, change), &sides, None);
            let parsed = parse(&one.text, &BundleLimits::RUN).unwrap();
            assert_eq!(parsed.len(), 1);
            patch.extend(one.text);
            wanted.push((path, has.then_some(new)));
        }
        std::fs::File::create(root.join(".patch")).unwrap().write_all(&patch).unwrap();
        let check = ["apply", "--check", "--unidiff-zero", ".patch"];
        let Some(checked) = git(root, &check) else { return };
        let shown = String::from_utf8_lossy(&patch);
        assert!(checked.status.success(), "{round}: {checked:?}\n{shown}");
        assert!(git(root, &["apply", ".patch"]).unwrap().status.success(), "{round}\n{shown}");
        for (path, content) in wanted {
            let found = std::fs::read(root.join(path.as_os_str())).ok();
            assert_eq!(found, content, "{round}: {path}\n{shown}");
        }
    }
}

fn change(path: &[u8], old: Option<&[u8]>, new: &[u8]) -> Rendered {
    let change = match old {
        Some(old) => Change::Modify { old: node(old, 0o644), new: node(new, 0o644) },
        None => Change::Add { new: node(new, 0o644) },
    };
    let side = |bytes: &[u8]| Content::of(bytes.to_vec());
    let sides = Sides { old: old.map(side), new: Some(side(new)), renamed: None };
    render(&entry(path, change), &sides, None)
}

fn readable(path: &[u8], old: Option<&[u8]>, new: &[u8]) -> String {
    String::from_utf8(change(path, old, new).readable.unwrap()).unwrap()
}

#[test]
fn hidden_bytes_are_visible_to_a_reader() {
    for (new, line) in [
        (&b"/*\0*/EVIL()\n"[..], "+/*^@*/EVIL()\n"),
        (b"EVIL()\r//\n", "+EVIL()^M//\n"),
        (b"a\r\n", "+a^M\n"),
        (b"a\xe2\x80\xaeb\n", "+a<U+202E>b\n"),
        (b"caf\xe9\n", "+caf<E9>\n"),
        (b"\x1b[2J\n", "+^[[2J\n"),
        (
            b"\xff\xfea\0\n\0b\0\n\0",
            "decoded from UTF-16LE\n--- a/f\n+++ b/f\n@@ -0,0 +1,2 @@\n+a\n+b\n",
        ),
    ] {
        let shown = readable(b"f", None, new).replace("--- /dev/null", "--- a/f");
        assert!(shown.contains(line), "{shown}");
        let shown = change(b"f", None, new);
        assert!(!shown.binary && shown.unseen == 0);
    }
    for plain in ["a\n", "gr\u{fc}n \u{2713}\tx", "\u{2764}\u{fe0f}\n", ""] {
        assert_eq!(change(b"f", None, plain.as_bytes()).readable, None, "{plain}");
    }
}

#[test]
fn a_text_in_two_encodings_is_shown_in_both() {
    // The program is a quarter of the content; the rest is UTF-16.
    let program = "EVIL();\n".repeat(50);
    let wide: Vec<u8> = "x".repeat(600).encode_utf16().flat_map(u16::to_le_bytes).collect();
    let both = [b"\xff\xfe", program.as_bytes(), &wide].concat();
    for content in [both.clone(), both[2..].to_vec()] {
        assert!(readable(b"x.js", None, &content).contains("+EVIL();\n"));
    }
    let marked = [b"\xff\xfe", program.as_bytes()].concat();
    assert!(readable(b"x.js", None, &marked).contains("+EVIL();\n"));
}

#[test]
fn a_long_line_is_shown_in_parts() {
    let old: String = (0..20_000).map(|n| format!("f({n});")).collect();
    let new = format!("{}EVIL();{}", &old[..60_002], &old[60_002..]);
    let shown = readable(b"f", Some(old.as_bytes()), new.as_bytes());
    assert!(shown.contains("EVIL()") && shown.len() < 10_000, "{}", shown.len());
    let exact = change(b"f", Some(old.as_bytes()), new.as_bytes());
    assert_eq!((exact.added, exact.removed, exact.unseen), (1, 1, 0));
}

#[test]
fn what_no_diff_shows_is_counted() {
    let binary = [7; 2000];
    for (path, mode, unseen) in [
        (&b"image.png"[..], 0o644, 0),
        (b"tool", 0o755, 2000),
        (b"x.js", 0o644, 2000),
        (b"libx.so.1", 0o644, 2000),
        (b"data", 0o644, 0),
    ] {
        let entry = entry(path, Change::Add { new: node(&binary, mode) });
        let sides = Sides { old: None, new: Some(Content::of(binary.to_vec())), renamed: None };
        let rendered = render(&entry, &sides, None);
        assert_eq!((rendered.unseen, rendered.binary), (unseen, true), "{path:?}");
    }
    // Of an unknown old content, the whole new one is shown.
    let change = Change::Modify { old: node(b"x", 0o644), new: node(b"EVIL\n", 0o644) };
    let sides = Sides {
        old: Some(Content::Unknown(1)),
        new: Some(Content::of(b"EVIL\n".to_vec())),
        renamed: None,
    };
    let rendered = render(&entry(b"f", change), &sides, None);
    assert!(rendered.unseen == 0 && rendered.readable.unwrap().ends_with(b"\n+EVIL\n"));
}

#[test]
fn added_and_removed_lines_are_counted() {
    let change = Change::Modify { old: node(b"x", 0o644), new: node(b"y", 0o644) };
    let sides = Sides {
        old: Some(Content::of(b"1\n2\n3\n".to_vec())),
        new: Some(Content::of(b"1\n3\n4\n5\n".to_vec())),
        renamed: None,
    };
    let rendered = render(&entry(b"f", change), &sides, None);
    assert_eq!((rendered.added, rendered.removed, rendered.binary), (2, 1, false));
}
