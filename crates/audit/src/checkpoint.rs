//! The checkpoint of a data directory: the number, hash and signature of its newest record, in the
//! directory of the key. It is written after each record, so that missing records at the end are found.

use std::io::Read as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use rustix::fs::{self, Mode, OFlags};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::error::Error;
use crate::keys::Keys;
use crate::line::{Head, hex, unhex};

const FLAGS: OFlags = OFlags::CLOEXEC.union(OFlags::NOFOLLOW);
/// The most bytes of a checkpoint.
const MAX_BYTES: u64 = 16 << 10;

/// The stored form.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Stored {
    data: String,
    chain: String,
    count: u64,
    hash: String,
    signature: Option<String>,
}

/// A checkpoint and the data directory that it is for.
#[derive(Debug)]
pub(crate) struct Checkpoint {
    pub(crate) data: String,
    pub(crate) head: Head,
}

/// The name of the checkpoint's file: derived from the path of the data directory.
pub(crate) fn file_name(data: &Path) -> String {
    format!("{}.json", &hex(&Sha256::digest(data.as_os_str().as_bytes()))[..32])
}

impl Keys {
    /// The checkpoint of a data directory, if its signature is valid.
    pub(crate) fn checkpoint(&self, data: &Path) -> Result<Option<Checkpoint>, Error> {
        self.read_checkpoint(&file_name(data))
    }

    fn read_checkpoint(&self, name: &str) -> Result<Option<Checkpoint>, Error> {
        let failed = |errno| Error::key("checkpoint", "read", errno);
        let file = match fs::openat(self.directory(), name, OFlags::RDONLY | FLAGS, Mode::empty()) {
            Ok(file) => file,
            Err(Errno::NOENT) => return Ok(None),
            Err(errno) => return Err(failed(errno)),
        };
        let mut text = Vec::new();
        let read = std::fs::File::from(file).take(MAX_BYTES).read_to_end(&mut text);
        read.map_err(|source| Error::Key { what: "checkpoint", operation: "read", source })?;
        let Ok(Stored { data, chain, count, hash, signature }) = serde_json::from_slice(&text)
        else {
            return Ok(None);
        };
        let Some(hash) = unhex(&hash) else { return Ok(None) };
        let head = Head { chain, seq: count, hash, signature };
        Ok(head.is_signed_by(&self.key.verifying_key()).then_some(Checkpoint { data, head }))
    }

    /// All checkpoints.
    pub(crate) fn checkpoints(&self) -> Result<Vec<Checkpoint>, Error> {
        let failed = |errno| Error::key("checkpoint", "read", errno);
        let mut found = Vec::new();
        for entry in fs::Dir::read_from(self.directory()).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let name = entry.file_name().to_string_lossy();
            if name.ends_with(".json") {
                found.extend(self.read_checkpoint(&name)?);
            }
        }
        Ok(found)
    }

    /// Stores the checkpoint of a data directory.
    pub(crate) fn store_checkpoint(&self, data: &Path, head: &Head) -> Result<(), Error> {
        let failed = |errno| Error::key("checkpoint", "written", errno);
        let stored = Stored {
            data: data.to_string_lossy().into_owned(),
            chain: head.chain.clone(),
            count: head.seq,
            hash: hex(&head.hash),
            signature: head.signature.clone(),
        };
        let mut text = serde_json::to_vec(&stored).map_err(Error::Json)?;
        text.push(b'\n');
        let flags = OFlags::RDWR | OFlags::CREATE | FLAGS;
        let mode = Mode::RUSR | Mode::WUSR;
        let name = file_name(data);
        let file = fs::openat(self.directory(), &name, flags, mode).map_err(failed)?;
        // One write of less than a block: a process that is killed leaves the old or the new one.
        let written = rustix::io::pwrite(&file, &text, 0).map_err(failed)?;
        if written != text.len() {
            return Err(failed(Errno::NOSPC));
        }
        fs::ftruncate(&file, text.len() as u64).map_err(failed)
    }
}
