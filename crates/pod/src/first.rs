//! What calls ask of process 1, over a socket beside the records: a line each way.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use stockade_runtime::{Error, Result};

/// The name of the socket in the directory of the records.
pub(crate) const SOCKET: &str = "first";
/// The longest line.
pub(crate) const LONGEST: u64 = 4096;
/// How long process 1 may take.
const ANSWER: Duration = Duration::from_secs(30);

/// What is asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Ask {
    /// Start an init that connects to the socket at this path.
    Init(PathBuf),
    /// Answer when no process is left of a sandbox that has ended.
    Settle,
}

impl Ask {
    pub(crate) fn parse(line: &str) -> Option<Self> {
        match line.trim_end_matches('\n').split_once(' ') {
            Some(("init", path)) if path.starts_with('/') => Some(Self::Init(path.into())),
            None if line == "settle\n" => Some(Self::Settle),
            _ => None,
        }
    }

    fn line(&self) -> String {
        match self {
            Self::Init(path) => format!("init {}\n", path.display()),
            Self::Settle => "settle\n".to_owned(),
        }
    }
}

/// The answer for what was done.
pub(crate) const DONE: &str = "done\n";

/// Asks process 1.
///
/// # Errors
/// [`Error::Unreachable`]; [`Error::Exhausted`] with its answer if it refuses.
pub(crate) async fn ask(data: &Path, ask: Ask) -> Result<()> {
    let path = data.join(SOCKET);
    let unreachable =
        |source| Error::Unreachable { what: "process 1 of the pod".to_owned(), source };
    let exchange = move || -> io::Result<String> {
        let mut stream = UnixStream::connect(&path)?;
        stream.set_read_timeout(Some(ANSWER))?;
        stream.set_write_timeout(Some(ANSWER))?;
        stream.write_all(ask.line().as_bytes())?;
        let mut line = String::new();
        BufReader::new(stream.take(LONGEST)).read_line(&mut line)?;
        Ok(line)
    };
    let answered = tokio::task::spawn_blocking(exchange).await;
    let answer = answered.map_err(|error| Error::Exhausted(error.to_string()))?;
    match answer.map_err(unreachable)?.as_str() {
        DONE => Ok(()),
        other => Err(Error::Exhausted(format!("process 1 of the pod: {}", other.trim_end()))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_can_be_asked_is_understood() {
        for ask in [Ask::Init("/a b/c".into()), Ask::Settle] {
            assert_eq!(Ask::parse(&ask.line()), Some(ask));
        }
        for line in ["", "init relative\n", "init\n", "settle", "settle now\n", "kill 1\n"] {
            assert_eq!(Ask::parse(line), None, "{line:?}");
        }
    }
}
