//! An example of a document that was run, or left out.

use stockade_snippet::Transcript;

/// What came of an example.
#[derive(Debug)]
pub(super) struct Judged {
    /// The name of its document, as it was found.
    pub(super) document: String,
    /// The line of its fence.
    pub(super) line: u32,
    /// What it did, with places in the document; `None` when it was left out.
    pub(super) transcript: Option<Transcript>,
}

impl Judged {
    /// Whether it failed.
    pub(super) fn failed(&self) -> bool {
        self.transcript.as_ref().is_some_and(|transcript| !transcript.is_clean())
    }

    /// What it is called in a report.
    pub(super) fn status(&self) -> &'static str {
        match &self.transcript {
            None => "skipped",
            Some(transcript) if transcript.is_clean() => "passed",
            Some(_) => "failed",
        }
    }
}
