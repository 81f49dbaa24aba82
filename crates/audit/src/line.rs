//! A record as a line of the file: its place in the chain, its hash, its signature, and what it says.

use std::io::{BufRead, BufReader, Read};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ed25519_dalek::{Signature, Signer as _, SigningKey, VerifyingKey};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use sha2::{Digest as _, Sha256};

use crate::entry::{Entry, MAX_ENTRY_BYTES};
pub(crate) use crate::hex::hex;

/// Distinguishes the hash of a record from every other hash.
const DOMAIN: &[u8] = b"stockade 2026-11 audit record\0";
/// The most bytes of a line: a record, and its place in the chain.
pub(crate) const MAX_LINE_BYTES: usize = MAX_ENTRY_BYTES + 1024;

/// A hash.
pub(crate) type Hash = [u8; 32];

/// What the first record of a chain has before it.
pub(crate) const NONE: Hash = [0; 32];

/// A line as it is stored.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Line {
    /// The id of the chain.
    pub(crate) chain: String,
    /// The number of the record, from 1.
    pub(crate) seq: u64,
    /// The hash of the record before it.
    pub(crate) previous: String,
    /// The hash of this record.
    pub(crate) hash: String,
    /// The signature of the hash; absent without a key.
    pub(crate) signature: Option<String>,
    /// What was found instead of the expected record before it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) gap: Option<Gap>,
    /// What the record says, exactly as it was hashed.
    pub(crate) record: Box<RawValue>,
}

/// What a writer found instead of the record that the checkpoint names: records were removed or
/// changed before.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Gap {
    /// The chain of the checkpoint.
    pub(crate) expected_chain: String,
    /// The number in the checkpoint.
    pub(crate) expected_seq: u64,
    /// The number of the last record that was found.
    pub(crate) found_seq: u64,
}

/// The newest record of a chain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) chain: String,
    pub(crate) seq: u64,
    pub(crate) hash: Hash,
    pub(crate) signature: Option<String>,
}

impl Line {
    /// The line after `head`, with its newline, and the new head.
    pub(crate) fn after(
        head: &Head,
        gap: Option<Gap>,
        entry: &Entry,
        key: Option<&SigningKey>,
    ) -> Result<(String, Head), serde_json::Error> {
        let record = RawValue::from_string(entry.to_json()?)?;
        let seq = head.seq + 1;
        let hash = hash(&head.chain, seq, &head.hash, gap.as_ref(), record.get());
        let signature = key.map(|key| STANDARD.encode(key.sign(&hash).to_bytes()));
        let line = Self {
            chain: head.chain.clone(),
            seq,
            previous: hex(&head.hash),
            hash: hex(&hash),
            signature: signature.clone(),
            gap,
            record,
        };
        let mut text = serde_json::to_string(&line)?;
        text.push('\n');
        Ok((text, Head { chain: line.chain, seq, hash, signature }))
    }

    /// Parses a line without its newline. One that was not written in exactly this form is none.
    pub(crate) fn parse(text: &[u8]) -> Option<Self> {
        let line: Self = serde_json::from_slice(text).ok()?;
        (serde_json::to_vec(&line).ok()? == text).then_some(line)
    }

    /// The hash that it names, if that is the hash of its content.
    pub(crate) fn checked_hash(&self) -> Option<Hash> {
        let previous = unhex(&self.previous)?;
        let actual = hash(&self.chain, self.seq, &previous, self.gap.as_ref(), self.record.get());
        (unhex(&self.hash)? == actual).then_some(actual)
    }

    /// This record as the newest one, if its hash is right.
    pub(crate) fn head(&self) -> Option<Head> {
        let (chain, seq, signature) = (self.chain.clone(), self.seq, self.signature.clone());
        Some(Head { chain, seq, hash: self.checked_hash()?, signature })
    }
}

impl Head {
    /// The head of a chain without records.
    pub(crate) const fn empty(chain: String) -> Self {
        Self { chain, seq: 0, hash: NONE, signature: None }
    }

    /// Whether the signature is one of this key.
    pub(crate) fn is_signed_by(&self, key: &VerifyingKey) -> bool {
        let bytes = self.signature.as_ref().and_then(|text| STANDARD.decode(text).ok());
        let signature = bytes.and_then(|bytes| Signature::from_slice(&bytes).ok());
        signature.is_some_and(|signature| key.verify_strict(&self.hash, &signature).is_ok())
    }
}

fn hash(chain: &str, seq: u64, previous: &Hash, gap: Option<&Gap>, record: &str) -> Hash {
    let gap = gap.and_then(|gap| serde_json::to_string(gap).ok()).unwrap_or_default();
    let mut hasher = Sha256::new();
    hasher.update(DOMAIN);
    hasher.update(previous);
    hasher.update(seq.to_be_bytes());
    for part in [chain, &gap, record] {
        hasher.update((part.len() as u64).to_be_bytes());
        hasher.update(part.as_bytes());
    }
    hasher.finalize().into()
}

/// 64 lower-case hexadecimal digits as bytes.
pub(crate) fn unhex(text: &str) -> Option<Hash> {
    let mut bytes = [0; 32];
    if text.len() != 64 || !text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')) {
        return None;
    }
    for (byte, pair) in bytes.iter_mut().zip(text.as_bytes().chunks(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
    }
    Some(bytes)
}

/// A stored record.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Record {
    /// The id of its chain.
    pub chain: String,
    /// Its number.
    pub seq: u64,
    /// Its hash.
    pub hash: String,
    /// What it says.
    #[serde(flatten)]
    pub entry: Entry,
}

/// The lines of the file; what has no newline at the end, or is too long, is `None`.
#[derive(Debug)]
pub(crate) struct Lines<R>(BufReader<R>);

impl<R: Read> Lines<R> {
    pub(crate) fn new(file: R) -> Self {
        Self(BufReader::new(file))
    }

    /// The next line, without its newline. `Some(None)` for one that is incomplete or too long.
    pub(crate) fn next_line(&mut self) -> std::io::Result<Option<Option<Vec<u8>>>> {
        let mut line = Vec::new();
        let limit = MAX_LINE_BYTES as u64 + 1;
        if (&mut self.0).take(limit).read_until(b'\n', &mut line)? == 0 {
            return Ok(None);
        }
        if line.pop() == Some(b'\n') {
            return Ok(Some(Some(line)));
        }
        // The rest of the line.
        loop {
            let (found, length) = {
                let buffer = self.0.fill_buf()?;
                match buffer.iter().position(|byte| *byte == b'\n') {
                    Some(position) => (true, position + 1),
                    None => (false, buffer.len()),
                }
            };
            self.0.consume(length);
            if found || length == 0 {
                return Ok(Some(None));
            }
        }
    }
}

/// The records of a file, in order. What is no record is left out: `verify` reports it.
#[derive(Debug)]
pub struct Records<R>(Lines<R>);

impl<R: Read> Records<R> {
    /// The records of this file.
    pub fn new(file: R) -> Self {
        Self(Lines::new(file))
    }
}

impl<R: Read> Iterator for Records<R> {
    type Item = std::io::Result<Record>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let line = match self.0.next_line() {
                Err(error) => return Some(Err(error)),
                Ok(None) => return None,
                Ok(Some(line)) => line,
            };
            let Some(line) = line.and_then(|line| Line::parse(&line)) else { continue };
            let Ok(entry) = serde_json::from_str(line.record.get()) else { continue };
            let Line { chain, seq, hash, .. } = line;
            return Some(Ok(Record { chain, seq, hash, entry }));
        }
    }
}
