//! Every single change of the stored records is found, and what several processes append is one chain.
#![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::fs;
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};

use proptest::prelude::*;
use stockade_audit::{Actor, Door, Entry, KeyDirectory, Kind, Log, Records, Report, verify};

/// A data directory, and a directory for the key beside it.
struct Place {
    _directory: tempfile::TempDir,
    data: PathBuf,
    keys: KeyDirectory,
}

impl Place {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let data = directory.path().join("data");
        fs::create_dir(&data).unwrap();
        let keys = KeyDirectory::new(directory.path().join("config/stockade/audit"));
        Self { data, keys, _directory: directory }
    }

    fn log(&self) -> Log {
        let data = fs::File::open(&self.data).unwrap();
        Log::open(data.as_fd(), &self.data, Some(&self.keys)).unwrap()
    }

    fn verify(&self) -> Report {
        let data = fs::File::open(&self.data).unwrap();
        verify(data.as_fd(), &self.data, Some(&self.keys)).unwrap()
    }

    fn file(&self) -> PathBuf {
        self.data.join("audit/log.jsonl")
    }

    fn with_records(count: usize) -> Self {
        let place = Self::new();
        place.log().append(&entries(count)).unwrap();
        assert!(place.verify().valid, "{:?}", place.verify());
        place
    }
}

fn entries(count: usize) -> Vec<Entry> {
    let entry = |number: usize| {
        Entry::new("execute", Actor::this_user(Door::Command))
            .with("sandboxId", format!("box-{number}"))
    };
    (0..count).map(entry).collect()
}

fn lines(path: &Path) -> Vec<Vec<u8>> {
    let text = fs::read(path).unwrap();
    text.split_inclusive(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect()
}

fn kinds(report: &Report) -> Vec<Kind> {
    report.findings.iter().map(|finding| finding.kind).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_changed_byte_is_found(at in any::<prop::sample::Index>(), flip in 1_u8..=255) {
        let place = Place::with_records(5);
        let mut text = fs::read(place.file()).unwrap();
        let at = at.index(text.len());
        text[at] ^= flip;
        fs::write(place.file(), text).unwrap();
        prop_assert!(!place.verify().valid);
    }

    #[test]
    fn an_added_or_removed_byte_is_found(at in any::<prop::sample::Index>(), byte in any::<Option<u8>>()) {
        let place = Place::with_records(5);
        let mut text = fs::read(place.file()).unwrap();
        let at = at.index(text.len());
        match byte {
            Some(byte) => text.insert(at, byte),
            None => { text.remove(at); }
        }
        fs::write(place.file(), text).unwrap();
        prop_assert!(!place.verify().valid);
    }

    #[test]
    fn a_cut_off_end_is_found_also_after_the_next_record(at in any::<prop::sample::Index>()) {
        let place = Place::with_records(5);
        let text = fs::read(place.file()).unwrap();
        fs::write(place.file(), &text[..at.index(text.len())]).unwrap();
        prop_assert!(!place.verify().valid);
        place.log().append(&entries(3)).unwrap();
        prop_assert!(!place.verify().valid);
    }

    #[test]
    fn a_removed_moved_or_repeated_record_is_found(one in 0_usize..6, other in 0_usize..6) {
        let place = Place::with_records(6);
        let all = lines(&place.file());
        let mut removed = all.clone();
        removed.remove(one);
        fs::write(place.file(), removed.concat()).unwrap();
        prop_assert!(!place.verify().valid);
        let mut repeated = all.clone();
        repeated.insert(other, all[one].clone());
        fs::write(place.file(), repeated.concat()).unwrap();
        prop_assert!(!place.verify().valid);
        if one != other {
            let mut moved = all;
            moved.swap(one, other);
            fs::write(place.file(), moved.concat()).unwrap();
            prop_assert!(!place.verify().valid);
        }
    }

    #[test]
    fn a_chain_that_is_written_again_with_another_key_is_found(count in 1_usize..9) {
        let place = Place::with_records(4);
        let forger = Place::with_records(count);
        fs::copy(forger.file(), place.file()).unwrap();
        prop_assert!(!place.verify().valid);
        place.log().append(&entries(1)).unwrap();
        prop_assert!(!place.verify().valid);
    }
}

#[test]
fn an_older_state_of_the_whole_file_is_found() {
    let place = Place::with_records(3);
    let old = fs::read(place.file()).unwrap();
    place.log().append(&entries(2)).unwrap();
    fs::write(place.file(), old).unwrap();
    assert_eq!(kinds(&place.verify()), [Kind::CutOff]);
    place.log().append(&entries(2)).unwrap();
    assert_eq!(kinds(&place.verify()), [Kind::Missing]);
}

#[test]
fn a_removed_file_is_found_also_after_the_next_record() {
    let place = Place::with_records(3);
    fs::remove_dir_all(place.data.join("audit")).unwrap();
    assert_eq!(kinds(&place.verify()), [Kind::CutOff]);
    place.log().append(&entries(1)).unwrap();
    assert!(!place.verify().valid);
}

/// As an attacker, or who restores a backup, replaces the directory below a server that runs.
#[test]
fn an_older_copy_of_the_directory_is_found_and_has_the_next_record() {
    for what in ["renamed", "removed"] {
        let place = Place::with_records(3);
        let log = place.log();
        let (audit, copy) = (place.data.join("audit"), place.data.join("copy"));
        fs::create_dir(&copy).unwrap();
        fs::copy(place.file(), copy.join("log.jsonl")).unwrap();
        log.append(&entries(2)).unwrap();
        assert!(place.verify().valid);
        if what == "renamed" {
            fs::rename(&audit, place.data.join("replaced")).unwrap();
            fs::rename(&copy, &audit).unwrap();
        } else {
            fs::remove_dir_all(&audit).unwrap();
            fs::rename(&copy, &audit).unwrap();
        }
        assert_eq!(kinds(&place.verify()), [Kind::CutOff], "{what}");
        log.append(&entries(2)).unwrap();
        assert_eq!(lines(&place.file()).len(), 5, "{what}: the records are where they are read");
        assert_eq!(kinds(&place.verify()), [Kind::Missing], "{what}");
        // A process that starts later does not make it valid either.
        place.log().append(&entries(1)).unwrap();
        assert_eq!(kinds(&place.verify()), [Kind::Missing], "{what}");
    }
}

#[test]
fn several_processes_append_to_one_chain() {
    let place = Place::new();
    let logs: Vec<_> = (0..4).map(|_| place.log()).collect();
    std::thread::scope(|scope| {
        for log in &logs {
            scope.spawn(|| {
                for entry in entries(25) {
                    log.append(std::slice::from_ref(&entry)).unwrap();
                }
            });
        }
    });
    let report = place.verify();
    assert!(report.valid, "{report:?}");
    assert_eq!((report.records, report.signed, report.checkpoint), (100, 100, Some(100)));
    let data = fs::File::open(&place.data).unwrap();
    let records = Records::open(data.as_fd()).unwrap().unwrap();
    assert_eq!(
        records.map(|record| record.unwrap().seq).collect::<Vec<_>>(),
        (1..=100).collect::<Vec<_>>()
    );
}

#[test]
fn an_incomplete_line_of_a_crash_is_removed() {
    let place = Place::with_records(2);
    let mut text = fs::read(place.file()).unwrap();
    text.extend(b"{\"chain\":\"");
    fs::write(place.file(), text).unwrap();
    assert!(!place.verify().valid);
    place.log().append(&entries(1)).unwrap();
    assert!(place.verify().valid, "{:?}", place.verify());
}

#[test]
fn a_data_directory_may_be_moved() {
    let mut place = Place::with_records(3);
    let moved = place.data.with_file_name("moved");
    fs::rename(&place.data, &moved).unwrap();
    place.data = moved;
    assert!(place.verify().valid, "{:?}", place.verify());
    place.log().append(&entries(1)).unwrap();
    assert!(place.verify().valid, "{:?}", place.verify());
}

#[test]
fn only_the_user_can_read_the_key() {
    use std::os::unix::fs::PermissionsExt as _;
    let place = Place::with_records(1);
    let key = place.keys.path().join("key");
    assert_eq!(fs::metadata(&key).unwrap().permissions().mode() & 0o777, 0o600);
    fs::set_permissions(&key, fs::Permissions::from_mode(0o644)).unwrap();
    let data = fs::File::open(&place.data).unwrap();
    assert!(Log::open(data.as_fd(), &place.data, Some(&place.keys)).is_err());
}
