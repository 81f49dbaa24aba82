//! Renamed directories, in overlays that root mounts: the changes are those that the command saw.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::process::Stdio;

use rustix::fs::{RenameFlags, renameat_with};

use super::*;
use crate::layer::Marks;

/// What a command does in the project.
type Step<'a> = Box<dyn Fn(&Path) + 'a>;
/// Every path of a tree.
type Tree = BTreeMap<RelativePath, Node>;

/// Calls `work` with the path of an overlay over the project that records renames.
fn in_host_overlay(fixture: &Fixture, work: impl FnOnce(&Path)) -> bool {
    if !rustix::process::geteuid().is_root() || Marks::of_new(fixture.view.changed()) == Marks::User
    {
        skipped("only root of the host mounts such an overlay");
        return false;
    }
    let beside = |name: &str| fixture.layer.parent().unwrap().join(name);
    std::fs::create_dir_all(beside("merged")).unwrap();
    let script = format!(
        "mount -t overlay overlay -o lowerdir={},upperdir={},workdir={},redirect_dir=on,index=off {} \
         && echo mounted && read line",
        fixture.root.display(),
        fixture.layer.display(),
        beside("work").display(),
        beside("merged").display(),
    );
    let mut child = Command::new("unshare")
        .args(["-m", "sh", "-ec", &script])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let is_mounted = line == "mounted\n";
    if is_mounted {
        let merged = beside("merged");
        let root = PathBuf::from(format!("/proc/{}/root", child.id()));
        work(&root.join(merged.strip_prefix("/").unwrap()));
    } else {
        skipped("root cannot mount an overlay here");
    }
    drop(writeln!(child.stdin.take().unwrap()));
    child.wait().unwrap();
    is_mounted
}

fn tree(top: &Path) -> Tree {
    let mut found = Tree::new();
    let mut pending = vec![top.to_owned()];
    while let Some(directory) = pending.pop() {
        for entry in std::fs::read_dir(&directory).unwrap() {
            let entry = entry.unwrap();
            let path = entry.path().strip_prefix(top).unwrap().as_os_str().as_bytes().to_vec();
            if path == b".git" {
                continue;
            }
            let metadata = entry.metadata().unwrap();
            let mode = metadata.permissions().mode() & 0o777;
            let node = if metadata.is_dir() {
                pending.push(entry.path());
                Node::Directory { mode }
            } else if metadata.is_symlink() {
                let target = std::fs::read_link(entry.path()).unwrap();
                Node::Symlink { target: target.as_os_str().as_bytes().to_vec() }
            } else {
                let content = std::fs::read(entry.path()).unwrap();
                Node::File { hash: ContentHash::of(&content), size: content.len() as u64, mode }
            };
            found.insert(RelativePath::new(path).unwrap(), node);
        }
    }
    found
}

/// The tree that results from changes.
fn changed(mut tree: Tree, entries: &[Entry]) -> Tree {
    for entry in entries {
        let old = match entry.change.new_node() {
            Some(new) => tree.insert(entry.path.clone(), new.clone()),
            None => tree.remove(&entry.path),
        };
        assert_eq!(old.as_ref(), entry.change.old(), "{entry:?}");
    }
    tree
}

/// The entries of a command, which must make of the project what the command left.
fn entries_of(fill: impl FnOnce(&Path), work: impl FnOnce(&Path)) -> Option<Vec<Entry>> {
    let fixture = fixture(ViewKind::Overlay, fill);
    let mut left = Tree::new();
    let is_done = in_host_overlay(&fixture, |merged| {
        work(merged);
        left = tree(merged);
    });
    is_done.then(|| {
        let entries = fixture.scan();
        assert_eq!(changed(tree(&fixture.root), &entries), left);
        assert_eq!(fixture.scan(), entries, "a second scan finds the same");
        for entry in entries.iter().filter(|entry| entry.change.new_node().is_some()) {
            assert!(fixture.view.changed().exists(&entry.path).unwrap(), "{entry:?}");
        }
        assert!(!entries.iter().any(|entry| entry.conflict), "{entries:?}");
        entries
    })
}

fn sample(root: &Path) {
    let write = |name: &str, content: &str| {
        std::fs::create_dir_all(root.join(name).parent().unwrap()).unwrap();
        std::fs::write(root.join(name), content).unwrap();
    };
    write("src/main.c", "int main(void) { return 0; }\n");
    write("src/deep/er/file", "deep\n");
    write("src/deep/other", "other\n");
    write("src/odd\n\"name\u{202e}", "odd\n");
    write("lib/one", "one\n");
    write("lib/deep/two", "two\n");
    write("top", "top\n");
    std::fs::create_dir_all(root.join("src/empty")).unwrap();
    symlink("main.c", root.join("src/link")).unwrap();
    chmod(root.join("src/deep/er"), 0o750);
    chmod(root.join("src/main.c"), 0o640);
}

fn rename(root: &Path, from: &str, to: &str) {
    std::fs::rename(root.join(from), root.join(to)).unwrap();
}

fn exchange(root: &Path, from: &str, to: &str) {
    renameat_with(CWD, root.join(from), CWD, root.join(to), RenameFlags::EXCHANGE).unwrap();
}

#[test]
fn a_renamed_directory_is_its_files_under_the_new_name() {
    let entries = entries_of(sample, |root| rename(root, "src", "code"));
    let Some(entries) = entries else { return };
    let renamed = entries
        .iter()
        .filter_map(|entry| Some((entry.renamed_from.as_ref()?.quoted(), entry.path.quoted())));
    let renamed: Vec<_> = renamed.collect();
    assert!(renamed.contains(&("src/main.c".into(), "code/main.c".into())), "{renamed:?}");
    assert_eq!(renamed.len(), 5, "{renamed:?}");
}

#[test]
fn every_kind_of_rename_is_followed() {
    let write = |root: &Path, name: &str| std::fs::write(root.join(name), "new\n").unwrap();
    let remove = |root: &Path, name: &str| std::fs::remove_dir_all(root.join(name)).unwrap();
    let cases: Vec<(&str, Step<'_>)> = vec![
        (
            "chain",
            Box::new(|r| {
                rename(r, "src/deep", "b");
                rename(r, "b", "c");
                rename(r, "c", "src/x");
            }),
        ),
        ("across", Box::new(|r| rename(r, "src/deep", "lib/deeper"))),
        (
            "into new",
            Box::new(|r| {
                std::fs::create_dir_all(r.join("new/a")).unwrap();
                rename(r, "src", "new/a/b");
            }),
        ),
        (
            "edit after",
            Box::new(|r| {
                rename(r, "src", "code");
                write(r, "code/deep/er/file");
                write(r, "code/deep/added");
                std::fs::remove_file(r.join("code/main.c")).unwrap();
            }),
        ),
        (
            "edit before",
            Box::new(|r| {
                write(r, "src/deep/er/file");
                std::fs::remove_file(r.join("src/deep/other")).unwrap();
                rename(r, "src", "code");
            }),
        ),
        (
            "back",
            Box::new(|r| {
                rename(r, "src", "code");
                rename(r, "code", "src");
            }),
        ),
        (
            "back and changed",
            Box::new(|r| {
                rename(r, "src", "code");
                write(r, "code/deep/other");
                rename(r, "code", "src");
            }),
        ),
        ("over an empty one", Box::new(|r| rename(r, "lib", "src/empty"))),
        (
            "over an emptied one",
            Box::new(|r| {
                remove(r, "lib/deep");
                std::fs::remove_file(r.join("lib/one")).unwrap();
                rename(r, "src", "lib");
            }),
        ),
        (
            "in the place of another",
            Box::new(|r| {
                rename(r, "lib", "old");
                rename(r, "src", "lib");
            }),
        ),
        (
            "a new one in its place",
            Box::new(|r| {
                rename(r, "src", "code");
                std::fs::create_dir_all(r.join("src/deep")).unwrap();
                write(r, "src/deep/fresh");
            }),
        ),
        (
            "nested, inner first",
            Box::new(|r| {
                rename(r, "src/deep", "src/inner");
                rename(r, "src", "code");
                rename(r, "code/inner/er", "code/outer");
            }),
        ),
        (
            "nested, outer first",
            Box::new(|r| {
                rename(r, "src", "code");
                rename(r, "code/deep", "code/inner");
                rename(r, "code/inner", "lib/inner");
            }),
        ),
        (
            "into its sibling",
            Box::new(|r| {
                rename(r, "lib", "src/deep/lib");
                rename(r, "src/deep", "deep");
            }),
        ),
        (
            "exchange",
            Box::new(|r| {
                exchange(r, "src", "lib");
                write(r, "src/one");
            }),
        ),
        ("exchange with a file", Box::new(|r| exchange(r, "src/deep", "top"))),
        ("exchange of levels", Box::new(|r| exchange(r, "src/deep", "lib"))),
        (
            "odd names",
            Box::new(|r| {
                for (from, to) in [("src", "a\nb"), ("a\nb", "-x: y\\"), ("lib", "\u{202e}")] {
                    rename(r, from, to);
                }
            }),
        ),
        (
            "removed after",
            Box::new(|r| {
                rename(r, "src", "code");
                remove(r, "code");
            }),
        ),
        (
            "replaced by a file",
            Box::new(|r| {
                rename(r, "src", "code");
                write(r, "src");
            }),
        ),
        (
            "mode",
            Box::new(|r| {
                rename(r, "src", "code");
                chmod(r.join("code/deep"), 0o700);
            }),
        ),
        (
            "opaque below",
            Box::new(|r| {
                remove(r, "src/deep");
                std::fs::create_dir_all(r.join("src/deep/er")).unwrap();
                rename(r, "src", "code");
            }),
        ),
    ];
    for (name, work) in cases {
        let Some(entries) = entries_of(sample, work) else { return };
        assert_eq!(entries.is_empty(), name == "back", "{name}");
    }
}

/// Random operations with a few names: whatever they were, the changes make of the project what the
/// command left.
#[test]
fn random_renames_are_followed() {
    let mut seed = 0x2545_f491_4f6c_dd1d_u64;
    let mut next = move |below: usize| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        usize::try_from(seed % below as u64).unwrap()
    };
    for _ in 0..60 {
        let mut work = |root: &Path| {
            for _ in 0..14 {
                let paths: Vec<_> = tree(root).into_keys().collect();
                let mut pick = || paths.get(next(paths.len().max(1)));
                let (Some(one), Some(other)) = (pick(), pick()) else { return };
                let at = |path: &RelativePath| root.join(path.as_os_str());
                let beside = at(other).parent().unwrap().join(["src", "lib", "x"][next(3)]);
                // Many of them fail, such as a rename into itself.
                let _ = match next(7) {
                    0 => std::fs::write(at(one), format!("{one:?}\n")).err(),
                    1 => std::fs::remove_dir_all(at(one)).err(),
                    2 => std::fs::create_dir(&beside).err(),
                    3 => renameat_with(CWD, at(one), CWD, at(other), RenameFlags::EXCHANGE)
                        .err()
                        .map(Into::into),
                    4 => std::fs::rename(at(one), at(other)).err(),
                    _ => std::fs::rename(at(one), beside).err(),
                };
            }
        };
        if entries_of(sample, &mut work).is_none() {
            return;
        }
    }
}

/// A program inside can give its files any attribute that begins with `user.`; those mean nothing where
/// the overlay has its own elsewhere.
#[test]
fn attributes_of_the_sandbox_are_no_marks() {
    let entries = entries_of(sample, |root| {
        std::fs::create_dir(root.join("mine")).unwrap();
        let set = |name: &str, value: &[u8]| {
            for path in ["mine", "lib"] {
                let flags = rustix::fs::XattrFlags::empty();
                rustix::fs::setxattr(root.join(path), name, value, flags).unwrap();
            }
        };
        set("user.overlay.redirect", b"/src");
        set("user.overlay.opaque", b"y");
        set("user.overlay.origin", b"x");
    });
    if let Some(entries) = entries {
        assert_eq!(entries.iter().map(summarize).collect::<Vec<_>>(), ["+mine"]);
    }
}

/// What is filled counts before it is copied.
#[test]
fn renamed_content_is_limited() {
    let fill = |root: &Path| {
        std::fs::create_dir(root.join("big")).unwrap();
        let file = std::fs::File::create(root.join("big/file")).unwrap();
        file.set_len(1 << 40).unwrap();
    };
    let fixture = fixture(ViewKind::Overlay, fill);
    if in_host_overlay(&fixture, |root| rename(root, "big", "large")) {
        let error = fixture.scan_with(&BundleLimits::RUN).unwrap_err();
        assert!(matches!(error, Error::Limit(_)), "{error:?}");
        assert!(!fixture.layer.join("large/file").exists());
    }
}

/// A directory in one that replaces another hides what the project has there.
#[test]
fn a_directory_in_a_replaced_one_is_replaced_too() {
    let entries = entries_of(sample, |root| {
        std::fs::remove_dir_all(root.join("src")).unwrap();
        std::fs::create_dir_all(root.join("src/deep/er")).unwrap();
    });
    if let Some(entries) = entries {
        let removed = |path: &str| entries.iter().any(|entry| entry.path.quoted() == path);
        assert!(removed("src/deep/er/file") && removed("src/deep/other"));
    }
}
