//! Tests of files inside, on ordinary directories and on file systems of user namespaces.

mod attack;
mod refusal;
mod transfer;
mod tree;

use std::fs;
use std::io::{self, Read as _};
use std::os::unix::fs::symlink;

use super::testing::{Fixture, path};
use stockade_runtime::{Error, FileKind, ReadRange, WriteOptions};

/// The kind of a file operation's error.
fn kind<T: std::fmt::Debug>(result: stockade_runtime::Result<T>) -> io::ErrorKind {
    match result.unwrap_err() {
        Error::File { source, .. } | Error::Host { source, .. } => source.kind(),
        error => panic!("{error}"),
    }
}

fn write(fixture: &Fixture, at: &str, content: &[u8]) -> stockade_runtime::Result<u64> {
    fixture.root.write(&path(at), &mut &*content, WriteOptions::default())
}

fn read(fixture: &Fixture, at: &str) -> stockade_runtime::Result<Vec<u8>> {
    let (file, length) = fixture.root.open_read(&path(at), ReadRange::default())?;
    let mut content = Vec::new();
    file.take(length).read_to_end(&mut content).unwrap();
    Ok(content)
}

#[test]
fn what_is_written_is_read_back() {
    for fixture in Fixture::all() {
        let big = vec![7; 3 << 20];
        for (name, content) in [("empty", &b""[..]), ("binary", b"\0\xff\n"), ("big", &big)] {
            let at = format!("/project/{name}");
            assert_eq!(write(&fixture, &at, content).unwrap(), content.len() as u64);
            assert!(read(&fixture, &at).unwrap() == content, "{}: {name}", fixture.name);
        }
        let odd = b"/project/a b\n\xff\"".to_vec();
        fixture.root.write(&path(&odd), &mut &b"odd"[..], WriteOptions::default()).unwrap();
        let (file, _) = fixture.root.open_read(&path(&odd), ReadRange::default()).unwrap();
        assert_eq!(io::read_to_string(file).unwrap(), "odd");
        assert_eq!(fixture.leftovers("project"), Vec::<std::path::PathBuf>::new());
    }
}

#[test]
fn a_part_of_a_file_is_read() {
    let fixture = Fixture::plain();
    write(&fixture, "/project/file", b"0123456789").unwrap();
    for (offset, length, part) in [
        (0, None, "0123456789"),
        (4, Some(3), "456"),
        (8, Some(9), "89"),
        (20, None, ""),
        (u64::MAX, None, ""),
    ] {
        let range = ReadRange { offset, length };
        let (file, length) = fixture.root.open_read(&path("/project/file"), range).unwrap();
        assert_eq!(io::read_to_string(file.take(length)).unwrap(), part);
    }
}

#[test]
fn new_files_have_the_mode_and_owner_that_were_asked_for() {
    for fixture in Fixture::all() {
        let user = fixture.host(fixture.user());
        let options = WriteOptions { mode: 0o6757, ..WriteOptions::default() };
        let at = "/project/made/on the way/file";
        fixture.root.write(&path(at), &mut &b"x"[..], options).unwrap();
        assert_eq!(fixture.owner_and_mode(at), (user, 0o6757), "{}", fixture.name);
        assert_eq!(fixture.owner_and_mode("/project/made/on the way"), (user, 0o755));
        let info = fixture.root.stat(&path(at)).unwrap();
        assert_eq!((info.name.as_slice(), info.kind), (&b"file"[..], FileKind::File));
        assert_eq!((info.size_bytes, info.mode, info.owner), (1, 0o6757, fixture.user()));

        let options = WriteOptions { make_parents: false, ..WriteOptions::default() };
        let refused = fixture.root.write(&path("/project/no/file"), &mut &b""[..], options);
        assert_eq!(kind(refused), io::ErrorKind::NotFound);
    }
}

#[test]
fn a_file_that_is_written_over_keeps_its_mode_and_owner() {
    for fixture in Fixture::all() {
        let root = stockade_core::sandbox::User { user: 0, group: 0 };
        let cases = [("/project/own", 0o640, fixture.user()), ("/project/shared", 0o4666, root)];
        for (at, mode, owner) in cases {
            fixture.put(at, "old", mode, owner);
            write(&fixture, at, b"new").unwrap();
            let expected = (fixture.host(owner), mode & 0o777);
            assert_eq!(fixture.owner_and_mode(at), expected, "{} {at}", fixture.name);
            assert_eq!(read(&fixture, at).unwrap(), b"new");
        }
    }
}

#[test]
fn a_content_that_breaks_off_changes_nothing() {
    struct Broken(bool);
    impl io::Read for Broken {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            if std::mem::replace(&mut self.0, true) {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            buffer[0] = b'x';
            Ok(1)
        }
    }
    for fixture in Fixture::all() {
        write(&fixture, "/project/file", b"whole").unwrap();
        for at in ["/project/file", "/project/new"] {
            let broken = fixture.root.write(&path(at), &mut Broken(false), WriteOptions::default());
            assert_eq!(kind(broken), io::ErrorKind::UnexpectedEof);
        }
        assert_eq!(read(&fixture, "/project/file").unwrap(), b"whole");
        assert_eq!(kind(fixture.root.stat(&path("/project/new"))), io::ErrorKind::NotFound);
        assert_eq!(fixture.leftovers("project"), Vec::<std::path::PathBuf>::new());
    }
}

#[test]
fn links_lead_inside_only() {
    for fixture in Fixture::all() {
        write(&fixture, "/project/target", b"inside").unwrap();
        let links = [
            ("absolute", "/project/target"),
            ("relative", "../project/target"),
            ("chain", "absolute"),
            ("beyond the top", "../../../../../../../project/target"),
            ("host", "/etc/passwd"),
            ("dangling", "made/by link"),
            ("directory", "/project"),
            ("slash", "/project/"),
            ("loop", "loop"),
        ];
        fixture.as_user(|| {
            for (name, target) in links {
                symlink(target, fixture.at("project").join(name)).unwrap();
            }
        });
        for name in ["absolute", "relative", "chain", "beyond the top", "directory/chain"] {
            let at = format!("/project/{name}");
            assert_eq!(read(&fixture, &at).unwrap(), b"inside", "{}: {name}", fixture.name);
        }
        // Inside there is no such file.
        assert_eq!(kind(read(&fixture, "/project/host")), io::ErrorKind::NotFound);
        assert!(
            read(&fixture, "/project/loop").is_err()
                && write(&fixture, "/project/loop", b"").is_err()
        );
        assert_eq!(kind(read(&fixture, "/project/slash")), io::ErrorKind::IsADirectory);
        assert_eq!(kind(write(&fixture, "/project/slash", b"")), io::ErrorKind::IsADirectory);

        let info = fixture.root.stat(&path("/project/chain")).unwrap();
        assert_eq!((info.kind, info.link.as_deref()), (FileKind::Link, Some(&b"absolute"[..])));

        assert_eq!(kind(write(&fixture, "/project/dangling", b"")), io::ErrorKind::NotFound);
        fixture.put_directory("/project/made", 0o755, fixture.user());
        for (name, behind) in
            [("chain", "target"), ("beyond the top", "target"), ("dangling", "made/by link")]
        {
            let content = format!("through {name}");
            write(&fixture, &format!("/project/{name}"), content.as_bytes()).unwrap();
            assert_eq!(fs::read_to_string(fixture.at("project").join(behind)).unwrap(), content);
            assert!(fs::symlink_metadata(fixture.at("project").join(name)).unwrap().is_symlink());
        }
    }
}

#[test]
fn directories_are_made_and_listed() {
    for fixture in Fixture::all() {
        let make = |at: &str| fixture.root.make_directory(&path(at), WriteOptions::default());
        make("/project/a/b").unwrap();
        make("/project/a/b").unwrap();
        make("/").unwrap();
        let user = fixture.host(fixture.user());
        assert_eq!(fixture.owner_and_mode("/project/a/b"), (user, 0o755));
        let options = WriteOptions { mode: 0o1700, ..WriteOptions::default() };
        fixture.root.make_directory(&path("/project/private"), options).unwrap();
        assert_eq!(fixture.owner_and_mode("/project/private"), (user, 0o1700));
        fixture.as_user(|| symlink("a/b", fixture.at("project/to b")).unwrap());
        make("/project/to b/below").unwrap();

        write(&fixture, "/project/\u{e9}", b"12").unwrap();
        write(&fixture, "/project/Z", b"").unwrap();
        let listed = fixture.root.read_directory(&path("/project")).unwrap();
        let names: Vec<_> = listed.iter().map(|info| info.name.as_slice()).collect();
        let sorted = [&b"Z"[..], b"a", b"private", b"to b", "\u{e9}".as_bytes()];
        assert_eq!(names, sorted, "{}", fixture.name);
        assert_eq!(listed[3].link.as_deref(), Some(&b"a/b"[..]));
        assert!(listed.iter().all(|info| info.owner == fixture.user()));
        let below = fixture.root.read_directory(&path("/project/to b")).unwrap();
        assert_eq!(below[0].name, b"below");
        let modified = fs::metadata(fixture.at("project/Z")).unwrap().modified().unwrap();
        let since = modified.duration_since(std::time::UNIX_EPOCH).unwrap();
        assert_eq!(u128::try_from(listed[0].modified_ms).unwrap(), since.as_millis());
    }
}

#[test]
fn files_and_directories_are_renamed_and_removed() {
    for fixture in Fixture::all() {
        let rename = |from: &str, to: &str| fixture.root.rename(&path(from), &path(to));
        let remove = |at: &str| fixture.root.remove(&path(at));
        write(&fixture, "/project/tree/file", b"1").unwrap();
        write(&fixture, "/project/other", b"2").unwrap();
        rename("/project/tree", "/tmp/moved").unwrap();
        rename("/project/other", "/tmp/moved/file").unwrap();
        assert_eq!(read(&fixture, "/tmp/moved/file").unwrap(), b"2");
        assert_eq!(kind(rename("/project/none", "/project/x")), io::ErrorKind::NotFound);
        write(&fixture, "/project/full/file", b"").unwrap();
        assert_eq!(kind(rename("/tmp/moved", "/project/full")), io::ErrorKind::DirectoryNotEmpty);
        assert_eq!(kind(rename("/tmp/moved/file", "/project/full")), io::ErrorKind::IsADirectory);

        fixture.as_user(|| symlink("/project", fixture.at("tmp/moved/link")).unwrap());
        fixture.put_directory("/tmp/moved/locked", 0o700, fixture.user());
        fixture.put("/tmp/moved/locked/file", "", 0, fixture.user());
        let mut deep = fixture.at("tmp/moved/locked");
        for _ in 0..50 {
            deep.push("d");
        }
        fixture.as_user(|| fs::create_dir_all(deep).unwrap());
        super::testing::chmod(fixture.at("tmp/moved/locked"), 0);
        remove("/tmp/moved").unwrap();
        assert_eq!(kind(fixture.root.stat(&path("/tmp/moved"))), io::ErrorKind::NotFound);
        assert!(
            fixture.root.stat(&path("/project/full/file")).is_ok(),
            "the link was not followed"
        );
        assert_eq!(kind(remove("/tmp/moved")), io::ErrorKind::NotFound);
        assert_eq!(kind(remove("/")), io::ErrorKind::ResourceBusy);
    }
}
