//! An example of a document that was run or skipped.

use stockade_snippet::Transcript;

/// The result of an example.
#[derive(Debug)]
pub(super) struct ExampleResult {
    /// The name of its document, as given or found.
    pub(super) document: String,
    /// The line of its opening fence.
    pub(super) line: u32,
    /// Its transcript, with positions in the document; `None` if it was skipped.
    pub(super) transcript: Option<Transcript>,
}

impl ExampleResult {
    /// Whether it failed.
    pub(super) fn failed(&self) -> bool {
        self.transcript.as_ref().is_some_and(|transcript| !transcript.is_clean())
    }

    /// Its status in a report.
    pub(super) fn status(&self) -> &'static str {
        match &self.transcript {
            None => "skipped",
            Some(transcript) if transcript.is_clean() => "passed",
            Some(_) => "failed",
        }
    }
}
