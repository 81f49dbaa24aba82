//! The splitter: it splits one stream of a command's output into three, standard output, standard
//! error and the exit code (FireFlow's `SandboxStreamSplitterNode`).

use super::{Channel, Cursor, Error, Item, Reader, Size, Writer, channel};

/// A part of a command's output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Chunk {
    /// Bytes of its standard output.
    Stdout(Vec<u8>),
    /// Bytes of its standard error.
    Stderr(Vec<u8>),
    /// Its exit code; the last chunk.
    Exit(i32),
}

impl Size for Chunk {
    fn size_bytes(&self) -> u64 {
        match self {
            Self::Stdout(bytes) | Self::Stderr(bytes) => bytes.size_bytes(),
            Self::Exit(_) => 0,
        }
    }
}

/// A part of one of the three streams.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Piece<T> {
    /// Its number in the source stream: it gives the order across the three.
    pub sequence: u64,
    /// The value.
    pub value: T,
    /// How many bytes of the source stream were lost before it, from either output.
    pub lost_bytes: u64,
}

impl Size for Piece<Vec<u8>> {
    fn size_bytes(&self) -> u64 {
        self.value.size_bytes()
    }
}

impl Size for Piece<i32> {
    fn size_bytes(&self) -> u64 {
        0
    }
}

/// The three streams.
#[derive(Debug, Clone)]
pub struct Split {
    /// Standard output.
    pub stdout: Channel<Piece<Vec<u8>>>,
    /// Standard error.
    pub stderr: Channel<Piece<Vec<u8>>>,
    /// The exit code: one item, or none and an error.
    pub exit: Channel<Piece<i32>>,
}

/// Splits a stream, in a separate task. All three end in every case: with the exit code, with the
/// error of the source, with [`Error::NoExit`], or with [`Error::Abandoned`] when the async runtime
/// stops. Each keeps up to `kept_bytes`.
pub fn split(source: &Channel<Chunk>, kept_bytes: u64) -> Split {
    let (stdout, stdout_channel) = channel(kept_bytes);
    let (stderr, stderr_channel) = channel(kept_bytes);
    let (exit, exit_channel) = channel(kept_bytes);
    let source = source.subscribe(Cursor::default());
    tokio::spawn(run(source, stdout, stderr, exit));
    Split { stdout: stdout_channel, stderr: stderr_channel, exit: exit_channel }
}

async fn run(
    mut source: Reader<Chunk>,
    stdout: Writer<Piece<Vec<u8>>>,
    stderr: Writer<Piece<Vec<u8>>>,
    exit: Writer<Piece<i32>>,
) {
    let mut lost = [0, 0];
    let error = loop {
        match source.next().await {
            Some(Ok(Item::Truncated { bytes })) => lost = lost.map(|before| before + bytes),
            Some(Ok(Item::Value { sequence, value: Chunk::Stdout(value) })) => {
                let lost_bytes = std::mem::take(&mut lost[0]);
                stdout.send(Piece { sequence, value, lost_bytes });
            }
            Some(Ok(Item::Value { sequence, value: Chunk::Stderr(value) })) => {
                let lost_bytes = std::mem::take(&mut lost[1]);
                stderr.send(Piece { sequence, value, lost_bytes });
            }
            Some(Ok(Item::Value { sequence, value: Chunk::Exit(value) })) => {
                exit.send(Piece { sequence, value, lost_bytes: lost[0].max(lost[1]) });
                stdout.close();
                stderr.close();
                exit.close();
                return;
            }
            Some(Err(error)) => break error,
            None => break Error::NoExit,
        }
    };
    stdout.fail(error.clone());
    stderr.fail(error.clone());
    exit.fail(error);
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn all<T: Clone>(channel: &Channel<Piece<T>>) -> (Vec<(u64, T, u64)>, Option<Error>)
    where
        Piece<T>: Size,
    {
        let mut reader = channel.subscribe(Cursor::default());
        let mut values = Vec::new();
        loop {
            match reader.next().await {
                Some(Ok(Item::Value { value, .. })) => {
                    values.push((value.sequence, value.value, value.lost_bytes));
                }
                Some(Ok(Item::Truncated { bytes })) => panic!("{bytes} bytes are gone"),
                Some(Err(error)) => return (values, Some(error)),
                None => return (values, None),
            }
        }
    }

    #[tokio::test]
    async fn what_the_source_has_lost_is_told_on_both_outputs() {
        let (writer, source) = channel(2);
        for chunk in [
            Chunk::Stdout(b"lost".to_vec()),
            Chunk::Stdout(b"a".to_vec()),
            Chunk::Stderr(b"b".to_vec()),
            Chunk::Exit(0),
        ] {
            writer.send(chunk);
        }
        let split = split(&source, 100);
        assert_eq!(all(&split.stdout).await, (vec![(1, b"a".to_vec(), 4)], None));
        assert_eq!(all(&split.stderr).await, (vec![(2, b"b".to_vec(), 4)], None));
        assert_eq!(all(&split.exit).await, (vec![(3, 0, 0)], None));
    }

    #[tokio::test]
    async fn an_error_of_the_source_ends_all_three() {
        let (writer, source) = channel(100);
        let split = split(&source, 100);
        writer.send(Chunk::Stdout(b"a".to_vec()));
        writer.fail(Error::Failed("the sandbox is gone".to_owned()));
        let error = Some(Error::Failed("the sandbox is gone".to_owned()));
        assert_eq!(all(&split.stdout).await, (vec![(0, b"a".to_vec(), 0)], error.clone()));
        assert_eq!(all(&split.stderr).await, (vec![], error.clone()));
        assert_eq!(all(&split.exit).await, (vec![], error));
    }
}
