//! Entries that replace, in the same layer, what earlier entries made and what others still name.

use std::fs;
use std::path::Path;

use stockade_bundle::beneath::Dir;
use tar::{Builder, EntryType, Header};

use super::{Error, LayerRecord, unpack};
use crate::limits::Limits;

/// An entry: its type, name, link target and content.
type Row<'a> = (EntryType, &'a str, &'a str, &'a str);

fn archive(rows: &[Row<'_>]) -> Vec<u8> {
    let mut builder = Builder::new(Vec::new());
    for (kind, name, link, content) in rows {
        let mut header = Header::new_gnu();
        // The library refuses names that a hostile archive has.
        header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
        header.as_old_mut().linkname[..link.len()].copy_from_slice(link.as_bytes());
        header.set_entry_type(*kind);
        header.set_mode(if *kind == EntryType::Directory { 0o700 } else { 0o644 });
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(1);
        header.set_size(content.len() as u64);
        header.set_cksum();
        builder.append(&header, content.as_bytes()).unwrap();
    }
    builder.into_inner().unwrap()
}

fn unpacked(to: &Path, rows: &[Row<'_>]) -> Result<LayerRecord, Error> {
    let (to, archive) = (Dir::open(to).unwrap(), archive(rows));
    unpack(&*archive, &to, &[], None, &Limits::default(), false)
}

const DIRECTORY: EntryType = EntryType::Directory;
const LINK: EntryType = EntryType::Symlink;

#[test]
fn a_directory_with_content_can_become_a_link() {
    let dir = tempfile::tempdir().unwrap();
    let (layer, outside) = (dir.path().join("layer"), dir.path().join("outside"));
    fs::create_dir_all(outside.join("b")).unwrap();
    fs::create_dir(&layer).unwrap();
    let before = fs::metadata(outside.join("b")).unwrap();
    let target = outside.to_str().unwrap();
    unpacked(
        &layer,
        &[(DIRECTORY, "a/", "", ""), (DIRECTORY, "a/b/", "", ""), (LINK, "a", target, "")],
    )
    .unwrap();
    assert_eq!(fs::read_link(layer.join("a")).unwrap(), outside);
    // The times and modes of the former directories are those of nothing now.
    let after = fs::metadata(outside.join("b")).unwrap();
    assert_eq!(after.permissions(), before.permissions());
    assert_eq!(after.modified().unwrap(), before.modified().unwrap());
}

#[test]
fn a_hard_link_that_replaces_the_directory_of_its_target_leads_nowhere() {
    let dir = tempfile::tempdir().unwrap();
    let rows = [
        (DIRECTORY, "a/", "", ""),
        (EntryType::Regular, "a/b", "", "content"),
        (EntryType::Link, "a", "a/b", ""),
    ];
    assert!(unpacked(dir.path(), &rows).is_err());
}
