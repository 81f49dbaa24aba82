//! What an agent records: each signature and each refusal. Nothing of what is signed. The records of a
//! run are kept up to a number; those of a sandbox that lives on are sent to an observer that stores them.

use std::sync::{Mutex, PoisonError};

/// How many records are kept. What follows is counted only.
const MAX_RECORDS: usize = 256;

/// Whether something was signed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// It was.
    Signed,
    /// It was refused, for this reason.
    Refused(&'static str),
    /// It was permitted, and could not be signed for this reason.
    Failed(String),
}

/// One request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// What was asked for.
    pub request: String,
    /// The fingerprint of the key.
    pub key: Option<String>,
    /// What became of it.
    pub decision: Decision,
}

/// Receives the records of an agent, one by one. It must not block.
pub trait Observer: Send + Sync + std::fmt::Debug {
    /// Something was signed or refused.
    fn observe(&self, record: Record);
}

/// The records of an agent.
#[derive(Debug, Default)]
pub struct Records {
    kept: Mutex<Buffer>,
    observer: Option<Box<dyn Observer>>,
}

#[derive(Debug, Default)]
struct Buffer {
    records: Vec<Record>,
    lost: u64,
}

impl Records {
    /// Records that are sent, and not kept.
    pub fn sent_to(observer: Box<dyn Observer>) -> Self {
        Self { kept: Mutex::default(), observer: Some(observer) }
    }

    pub(crate) fn add(&self, record: Record) {
        if let Some(observer) = &self.observer {
            return observer.observe(record);
        }
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.records.len() < MAX_RECORDS {
            kept.records.push(record);
        } else {
            kept.lost = kept.lost.saturating_add(1);
        }
    }

    /// The records since the last call, and how many more there were.
    pub fn take(&self) -> (Vec<Record>, u64) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let Buffer { records, lost } = std::mem::take(&mut *kept);
        (records, lost)
    }
}
