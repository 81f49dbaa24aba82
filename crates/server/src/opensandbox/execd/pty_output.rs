//! The recorded output of a shell, for a client that joins it.

use stockade_api::{OperationId, OutputChunk, ReadOutput};

use super::super::target::{PortState, Target};
use crate::failure::Failure;

/// The most bytes of earlier output that a client receives.
const REPLAYED_BYTES: usize = 1 << 20;

/// The end of the output so far.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Output {
    /// The offset of the first byte of `bytes` in the whole output.
    pub(super) offset: u64,
    pub(super) bytes: Vec<u8>,
    /// How many bytes each stream has.
    pub(super) stdout: u64,
    pub(super) stderr: u64,
}

impl Output {
    /// The length of the whole output.
    pub(super) const fn end(&self) -> u64 {
        self.stdout + self.stderr
    }

    fn add(&mut self, chunk: OutputChunk, since: u64) {
        let begin = self.end();
        let data = match chunk {
            OutputChunk::Stdout { data } => {
                self.stdout += data.0.len() as u64;
                data.0
            }
            OutputChunk::Stderr { data } => {
                self.stderr += data.0.len() as u64;
                data.0
            }
            OutputChunk::Truncated { bytes } => {
                // A gap: only what follows can be replayed.
                self.stdout += bytes;
                self.bytes.clear();
                return;
            }
            OutputChunk::Exit(_) => return,
        };
        let known = usize::try_from(since.saturating_sub(begin)).unwrap_or(usize::MAX);
        self.bytes.extend(data.iter().skip(known));
        let excess = self.bytes.len().saturating_sub(REPLAYED_BYTES);
        self.bytes.drain(..excess);
        self.offset = self.end() - self.bytes.len() as u64;
    }
}

/// Reads the output so far, from an offset on.
pub(super) async fn read(
    state: &PortState,
    target: &Target,
    operation: &OperationId,
    since: u64,
) -> Result<Output, Failure> {
    let workflow_id = operation.clone();
    let request = ReadOutput { workflow_id, from: 0, follow: false, from_sandbox: false };
    let mut items = state.sandboxes.read_output(&target.caller, request).await?;
    let mut output = Output::default();
    while let Some(item) = items.next().await {
        output.add(item?.chunk, since);
    }
    Ok(output)
}

/// How many bytes of each stream a client knows that knows so many of both.
pub(super) async fn split(
    state: &PortState,
    target: &Target,
    operation: &OperationId,
    known: u64,
) -> Result<(u64, u64), Failure> {
    if known == 0 {
        return Ok((0, 0));
    }
    let workflow_id = operation.clone();
    let request = ReadOutput { workflow_id, from: 0, follow: false, from_sandbox: false };
    let mut items = state.sandboxes.read_output(&target.caller, request).await?;
    let (mut stdout, mut stderr) = (0, 0);
    while let Some(item) = items.next().await {
        let left = known - stdout - stderr;
        match item?.chunk {
            OutputChunk::Stdout { data } => stdout += left.min(data.0.len() as u64),
            OutputChunk::Stderr { data } => stderr += left.min(data.0.len() as u64),
            OutputChunk::Truncated { bytes } => stdout += left.min(bytes),
            OutputChunk::Exit(_) => {}
        }
    }
    Ok((stdout, stderr))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn output(since: u64, chunks: Vec<OutputChunk>) -> (u64, String, u64) {
        let mut output = Output::default();
        for chunk in chunks {
            output.add(chunk, since);
        }
        (output.offset, String::from_utf8(output.bytes.clone()).unwrap(), output.end())
    }

    #[test]
    fn what_a_client_knows_is_not_repeated() {
        let out = |text: &str| OutputChunk::Stdout { data: text.as_bytes().into() };
        let err = |text: &str| OutputChunk::Stderr { data: text.as_bytes().into() };
        let all = || vec![out("one"), err("two"), out("three")];
        assert_eq!(output(0, all()), (0, "onetwothree".to_owned(), 11));
        assert_eq!(output(4, all()), (4, "wothree".to_owned(), 11));
        assert_eq!(output(11, all()), (11, String::new(), 11));
        assert_eq!(output(u64::MAX, all()), (11, String::new(), 11));
        let gap = vec![out("one"), OutputChunk::Truncated { bytes: 5 }, out("two")];
        assert_eq!(output(0, gap), (8, "two".to_owned(), 11));
        let long = vec![out(&"x".repeat(REPLAYED_BYTES)), out("end")];
        assert_eq!(output(0, long).0, 3);
    }
}
