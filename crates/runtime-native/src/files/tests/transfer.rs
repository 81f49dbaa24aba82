//! Copying whole directories in and out.

use std::fs;
use std::io::{self, Seek as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, symlink};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FileType, Mode};

use super::{kind, read, write};
use crate::files::testing::{Fixture, chmod, own, path};
use stockade_runtime::Error;

/// A directory with every kind of entry that is copied.
fn source(fixture: &Fixture) -> PathBuf {
    let source = fixture.outside.path().join("source");
    fs::create_dir_all(source.join("read only/below")).unwrap();
    fs::write(source.join("program"), "#!").unwrap();
    chmod(source.join("program"), 0o4755);
    fs::write(source.join("secret"), "secret").unwrap();
    chmod(source.join("secret"), 0o600);
    fs::write(source.join("read only/below/odd\nname"), vec![9; 100_000]).unwrap();
    let mut holes = fs::File::create(source.join("holes")).unwrap();
    holes.seek(io::SeekFrom::Start(1 << 22)).unwrap();
    holes.write_all(b"end").unwrap();
    symlink("/etc/passwd", source.join("link")).unwrap();
    let old = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000_000);
    fs::File::open(source.join("program")).unwrap().set_modified(old).unwrap();
    chmod(source.join("read only"), 0o555);
    source
}

/// Checks a copy against its original.
fn expect_copy(copy: &Path) {
    let stat = |name: &str| fs::symlink_metadata(copy.join(name)).unwrap();
    let mode = |name| stat(name).mode() & 0o7777;
    assert_eq!((mode("program"), mode("secret")), (0o755, 0o600));
    assert_eq!(stat("program").mtime(), 1_000_000_000);
    assert_eq!(stat("holes").len(), (1 << 22) + 3);
    assert!(stat("holes").blocks() * 512 < 1 << 20);
    assert_eq!(fs::read_link(copy.join("link")).unwrap(), Path::new("/etc/passwd"));
    let odd = fs::read(copy.join("read only/below/odd\nname")).unwrap();
    assert_eq!(odd, vec![9; 100_000]);
}

fn pipe(path: impl AsRef<Path>) {
    let mode = Mode::from_bits_truncate(0o666);
    rustix::fs::mknodat(CWD, path.as_ref(), FileType::Fifo, mode, 0).unwrap();
}

#[test]
fn a_directory_of_the_host_is_shipped() {
    for fixture in Fixture::all() {
        let source = source(&fixture);
        fixture.root.ship(&source, &path("/project/made/here")).unwrap();
        expect_copy(&fixture.at("project/made/here"));
        let user = fixture.host(fixture.user());
        assert_eq!(fixture.owner_and_mode("/project/made/here/secret"), (user, 0o600));
        assert_eq!(fixture.owner_and_mode("/project/made/here/read only"), (user, 0o555));
        assert_eq!(fixture.owner_and_mode("/project/made/here/link").0, user);
    }
}

#[test]
fn what_is_shipped_replaces_files_and_fills_directories() {
    for fixture in Fixture::all() {
        let source = source(&fixture);
        write(&fixture, "/project/program", b"in the way").unwrap();
        write(&fixture, "/project/kept", b"kept").unwrap();
        fixture.as_user(|| symlink("kept", fixture.at("project/secret")).unwrap());
        fixture.as_user(|| pipe(fixture.at("project/link")));
        fixture.root.ship(&source, &path("/project")).unwrap();
        expect_copy(&fixture.at("project"));
        assert_eq!(read(&fixture, "/project/kept").unwrap(), b"kept");

        fixture.put_directory("/project/x", 0o755, fixture.user());
        fs::write(source.join("x"), "").unwrap();
        let refused = fixture.root.ship(&source, &path("/project"));
        assert_eq!(kind(refused), io::ErrorKind::IsADirectory);
        fs::remove_file(source.join("x")).unwrap();
        fixture.root.remove(&path("/project/x")).unwrap();
        fixture.as_user(|| symlink("/etc", fixture.at("project/x")).unwrap());
        fs::create_dir(source.join("x")).unwrap();
        let refused = fixture.root.ship(&source, &path("/project"));
        assert_eq!(kind(refused), io::ErrorKind::NotADirectory);
    }
}

#[test]
fn only_files_directories_and_links_are_shipped() {
    let fixture = Fixture::plain();
    let source = fixture.outside.path().join("source");
    let to = path("/project/to");
    assert_eq!(kind(fixture.root.ship(&source, &to)), io::ErrorKind::NotFound);
    fs::create_dir(&source).unwrap();
    pipe(source.join("pipe"));
    let refused = fixture.root.ship(&source, &to);
    assert!(matches!(refused, Err(Error::Invalid(_))), "{refused:?}");
    assert_eq!(kind(fixture.root.ship(&source.join("pipe"), &to)), io::ErrorKind::NotADirectory);
    fs::remove_file(source.join("pipe")).unwrap();
    write(&fixture, "/project/file", b"").unwrap();
    let refused = fixture.root.ship(&source, &path("/project/file"));
    assert_eq!(kind(refused), io::ErrorKind::NotADirectory);
}

#[test]
fn a_directory_inside_is_collected() {
    for fixture in Fixture::all() {
        let source = source(&fixture);
        fixture.root.ship(&source, &path("/project/tree")).unwrap();
        fixture.as_user(|| {
            pipe(fixture.at("project/tree/pipe"));
            chmod(fixture.at("project/tree/program"), 0o6777);
        });
        let to = fixture.outside.path().join("collected");
        fixture.root.collect(&path("/project/tree"), &to, 1 << 23).unwrap();
        expect_copy(&to);
        assert!(fs::symlink_metadata(to.join("pipe")).is_err());
        let copied = fs::metadata(to.join("program")).unwrap();
        assert_eq!((copied.uid(), copied.gid()), (own().user, own().group));
        assert_eq!(fs::metadata(to.join("read only")).unwrap().mode() & 0o7777, 0o755);

        let again = fixture.root.collect(&path("/project/tree"), &to, 1 << 23);
        assert_eq!(kind(again), io::ErrorKind::AlreadyExists);
        expect_copy(&to);
    }
}

#[test]
fn what_cannot_be_collected_whole_leaves_nothing() {
    for fixture in Fixture::all() {
        let nothing = fixture.outside.path().join("out");
        fs::create_dir(&nothing).unwrap();
        let to = nothing.join("collected");
        let collect = |from: &str, limit| fixture.root.collect(&path(from), &to, limit);
        write(&fixture, "/project/one", &[1; 1000]).unwrap();
        write(&fixture, "/project/two", &[1; 1000]).unwrap();
        let refused = collect("/project", 1999);
        assert!(matches!(refused, Err(Error::Invalid(_))), "{refused:?}");
        fixture.as_user(|| {
            fs::File::create(fixture.at("project/holes")).unwrap().set_len(1 << 40).unwrap();
        });
        let refused = collect("/project", 1 << 39);
        assert!(matches!(refused, Err(Error::Invalid(_))), "{refused:?}");
        fixture.root.remove(&path("/project/holes")).unwrap();

        let mut deep = fixture.at("project");
        for _ in 0..128 {
            deep.push("d");
        }
        fixture.as_user(|| fs::create_dir_all(deep).unwrap());
        let refused = collect("/project", 1 << 20);
        assert!(matches!(refused, Err(Error::Invalid(_))), "{refused:?}");
        assert_eq!(kind(collect("/project/one", 1 << 20)), io::ErrorKind::NotADirectory);
        assert_eq!(kind(collect("/project/none", 1 << 20)), io::ErrorKind::NotFound);
        let missing = nothing.join("missing/collected");
        let refused = fixture.root.collect(&path("/project"), &missing, 1 << 20);
        assert_eq!(kind(refused), io::ErrorKind::NotFound);
        assert_eq!(fs::read_dir(&nothing).unwrap().count(), 0, "{}", fixture.name);

        fixture.root.remove(&path("/project/d")).unwrap();
        collect("/project", 2000).unwrap();
    }
}
