//! Checks the stored records: each hash, each signature, the order, and the end.

use std::fs::File;
use std::io::{Seek as _, SeekFrom};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::path::Path;

use rustix::fs::{self, Mode, OFlags};
use rustix::io::Errno;
use serde::Serialize;

use crate::checkpoint::Checkpoint;
use crate::entry::Entry;
use crate::error::Error;
use crate::keys::{KeyDirectory, PublicKey};
use crate::line::{Gap, Head, Line, Lines, NONE, hex, unhex};
use crate::log::{FILE, lock, open_directory};

/// The most findings that are listed.
const MAX_FINDINGS: usize = 100;

/// What is wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Kind {
    /// A line is no record, or its hash is not that of its content.
    Changed,
    /// A signature is missing or is not one of the key.
    Forged,
    /// Records are missing before this one.
    Missing,
    /// A record is not at its place.
    Reordered,
    /// Records are missing at the end.
    CutOff,
    /// The records are not those that the checkpoint is for.
    Replaced,
    /// There is no checkpoint, so that missing records at the end would not be found.
    NoCheckpoint,
}

/// Something that is wrong.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// What is wrong.
    pub kind: Kind,
    /// The number of the line, from 1; absent at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<u64>,
    /// The number of the record.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seq: Option<u64>,
    /// What it is, as text.
    pub message: String,
}

/// The result of a verification.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// Whether nothing is wrong.
    pub valid: bool,
    /// The number of records.
    pub records: u64,
    /// The number of records with a valid signature.
    pub signed: u64,
    /// The id of the chain.
    pub chain: Option<String>,
    /// The hash of the last record.
    pub head: Option<String>,
    /// The number of the last record according to the checkpoint.
    pub checkpoint: Option<u64>,
    /// The public key.
    pub public_key: Option<String>,
    /// What is wrong.
    pub findings: Vec<Finding>,
}

/// Checks the records of a data directory against the key and the checkpoint of this user.
///
/// # Errors
/// If the records or the key cannot be read.
pub fn verify(
    data: BorrowedFd<'_>,
    path: &Path,
    keys: Option<&KeyDirectory>,
) -> Result<Report, Error> {
    let keys = keys.map(KeyDirectory::open).transpose()?.flatten();
    let file = open(data)?;
    // No other process appends meanwhile.
    if let Some(file) = &file {
        lock(file.as_fd(), fs::FlockOperation::NonBlockingLockShared)?;
    }
    let mut state = State::new(keys.as_ref().map(crate::keys::Keys::public));
    if let Some(file) = file {
        let failed = |source| Error::Log { operation: "read", source };
        let mut lines = Lines::new(file);
        while let Some(line) = lines.next_line().map_err(failed)? {
            state.check(line.as_deref());
        }
    }
    if let Some(keys) = &keys {
        let own = keys.checkpoint(path)?;
        // The data directory may have been moved; the newest checkpoint of the chain counts.
        let newest = match &state.head {
            Some(head) if own.as_ref().is_none_or(|own| own.head.chain == head.chain) => {
                let same = |one: &Checkpoint| one.head.chain == head.chain;
                keys.checkpoints()?.into_iter().filter(same).max_by_key(|one| one.head.seq)
            }
            _ => None,
        };
        state.check_end(newest.or(own));
    }
    Ok(state.report())
}

fn open(data: BorrowedFd<'_>) -> Result<Option<File>, Error> {
    let Some(directory) = open_directory(data, false)? else { return Ok(None) };
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    match fs::openat(&directory, FILE, flags, Mode::empty()) {
        Ok(file) => Ok(Some(File::from(file))),
        Err(Errno::NOENT) => Ok(None),
        Err(errno) => Err(Error::log("opened", errno)),
    }
}

/// The stored records of a data directory.
impl crate::Records<File> {
    /// Opens the records of a data directory; `None` if there are none.
    ///
    /// # Errors
    /// If they cannot be opened.
    pub fn open(data: BorrowedFd<'_>) -> Result<Option<Self>, Error> {
        Ok(open(data)?.map(Self::new))
    }

    /// The same with only the records in about the last `bytes` of the file.
    ///
    /// # Errors
    /// If they cannot be opened.
    pub fn open_end(data: BorrowedFd<'_>, bytes: u64) -> Result<Option<Self>, Error> {
        let failed = |source| Error::Log { operation: "read", source };
        let Some(mut file) = open(data)? else { return Ok(None) };
        let size = file.metadata().map_err(failed)?.len();
        // The first line is incomplete, and no record.
        file.seek(SeekFrom::Start(size.saturating_sub(bytes))).map_err(failed)?;
        Ok(Some(Self::new(file)))
    }
}

struct State {
    key: Option<PublicKey>,
    /// The last record that was read.
    head: Option<Head>,
    lines: u64,
    signed: u64,
    checkpoint: Option<u64>,
    findings: Vec<Finding>,
    /// Whether the checkpoint's record was found with its hash.
    hashes: Hashes,
    total: usize,
}

/// The hash of each record by its number, for the comparison with a checkpoint.
#[derive(Default)]
struct Hashes(Vec<(u64, [u8; 32])>);

impl Hashes {
    /// Only the last few can be those of a checkpoint, unless records were added.
    const KEPT: usize = 4096;

    fn add(&mut self, head: &Head) {
        if self.0.len() >= 2 * Self::KEPT {
            self.0.drain(..Self::KEPT);
        }
        self.0.push((head.seq, head.hash));
    }

    fn has(&self, head: &Head) -> bool {
        self.0.contains(&(head.seq, head.hash))
    }
}

impl State {
    fn new(key: Option<PublicKey>) -> Self {
        Self {
            key,
            head: None,
            lines: 0,
            signed: 0,
            checkpoint: None,
            findings: Vec::new(),
            hashes: Hashes::default(),
            total: 0,
        }
    }

    fn find(&mut self, kind: Kind, seq: Option<u64>, message: String) {
        self.total += 1;
        if self.findings.len() < MAX_FINDINGS {
            let line = (self.lines > 0).then_some(self.lines);
            self.findings.push(Finding { kind, line, seq, message });
        }
    }

    fn check(&mut self, line: Option<&[u8]>) {
        self.lines += 1;
        let Some(line) = line.and_then(Line::parse) else {
            self.find(Kind::Changed, None, "the line is no audit record".to_owned());
            return;
        };
        let seq = line.seq;
        let is_entry = serde_json::from_str::<Entry>(line.record.get()).is_ok();
        let hash = line.checked_hash().filter(|_| is_entry);
        if hash.is_none() {
            self.find(Kind::Changed, Some(seq), format!("record {seq} was changed"));
        }
        self.check_place(&line);
        // Without a right hash, the next record is compared with the hash that this one names.
        let stored = hash.or_else(|| unhex(&line.hash)).unwrap_or(NONE);
        let head = Head { chain: line.chain, seq, hash: stored, signature: line.signature };
        match &self.key {
            Some(key) if hash.is_some() && head.is_signed_by(&key.0) => self.signed += 1,
            Some(_) => {
                let message = format!("record {seq} has no valid signature of this user's key");
                self.find(Kind::Forged, Some(seq), message);
            }
            None => {}
        }
        self.hashes.add(&head);
        self.head = Some(head);
    }

    fn check_place(&mut self, line: &Line) {
        let seq = line.seq;
        if let Some(Gap { expected_seq, found_seq, .. }) = &line.gap {
            let message = format!(
                "record {seq} was written when the last record was {found_seq} instead of {expected_seq}"
            );
            self.find(Kind::Missing, Some(seq), message);
        }
        let (chain, last, hash) = match &self.head {
            Some(head) => (Some(head.chain.as_str()), head.seq, hex(&head.hash)),
            None => (None, 0, hex(&NONE)),
        };
        let is_other = chain.is_some_and(|chain| chain != line.chain);
        let is_next = seq == last + 1;
        let is_linked = line.previous == hash;
        if is_other {
            self.find(Kind::Replaced, Some(seq), format!("record {seq} belongs to other records"));
        } else if !is_next && line.gap.is_none() {
            let (kind, message) = if seq > last + 1 {
                (Kind::Missing, format!("records {} to {} are missing", last + 1, seq - 1))
            } else {
                (Kind::Reordered, format!("record {seq} follows record {last}"))
            };
            self.find(kind, Some(seq), message);
        } else if !is_linked && line.gap.is_none() {
            let message = format!("record {seq} was not written after this record {last}");
            self.find(Kind::Changed, Some(seq), message);
        }
    }

    fn check_end(&mut self, checkpoint: Option<Checkpoint>) {
        self.checkpoint = checkpoint.as_ref().map(|checkpoint| checkpoint.head.seq);
        self.lines = 0;
        match (checkpoint.map(|checkpoint| (checkpoint.data, checkpoint.head)), self.head.clone()) {
            (None, None) => {}
            (None, Some(_)) => {
                let message = "this user has no checkpoint of these records".to_owned();
                self.find(Kind::NoCheckpoint, None, message);
            }
            (Some((_, expected)), None) => {
                let message = format!("all {} records are missing", expected.seq);
                self.find(Kind::CutOff, None, message);
            }
            (Some((_, expected)), Some(found)) if found.chain != expected.chain => {
                let message = format!("the {} records of the checkpoint are missing", expected.seq);
                self.find(Kind::Replaced, None, message);
            }
            (Some((_, expected)), Some(found)) if found.seq < expected.seq => {
                let (from, to) = (found.seq + 1, expected.seq);
                self.find(Kind::CutOff, Some(to), format!("records {from} to {to} are missing"));
            }
            (Some((data, expected)), Some(_)) if !self.hashes.has(&expected) => {
                let seq = expected.seq;
                let message = format!("record {seq} is not that of the checkpoint for {data}");
                self.find(Kind::Changed, Some(seq), message);
            }
            (Some(_), Some(_)) => {}
        }
    }

    fn report(self) -> Report {
        Report {
            valid: self.total == 0,
            records: self.head.as_ref().map_or(0, |head| head.seq),
            signed: self.signed,
            chain: self.head.as_ref().map(|head| head.chain.clone()),
            head: self.head.as_ref().map(|head| hex(&head.hash)),
            checkpoint: self.checkpoint,
            public_key: self.key.map(|key| key.to_string()),
            findings: self.findings,
        }
    }
}
