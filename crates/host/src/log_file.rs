//! The file of a log. When it is full it gets another name, and a new one is begun, so that a log never
//! fills the disk.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use stockade_core::{Code, Problem};
use tracing_subscriber::fmt::MakeWriter;

/// How many full files are kept.
const KEPT: u32 = 5;

/// The file. Its clones are the same.
#[derive(Debug, Clone)]
pub(crate) struct LogFile(Arc<Mutex<Current>>);

#[derive(Debug)]
struct Current {
    path: PathBuf,
    full_at: u64,
    file: File,
    length: u64,
}

impl LogFile {
    /// Continues the file at a path, or begins it. Only this user can read a new one.
    ///
    /// # Errors
    /// [`Code::Io`].
    pub(crate) fn open(path: &Path, full_at: u64) -> Result<Self, Problem> {
        let opened = open(path).and_then(|file| Ok((file.metadata()?, file)));
        let (metadata, file) = opened.map_err(|error| {
            let message = format!("the log {} cannot be written", path.display());
            Problem::new(Code::Io, message).because(error.to_string())
        })?;
        if !metadata.is_file() {
            let message = format!("the log {} is not a file", path.display());
            return Err(Problem::new(Code::InvalidInput, message)
                .because("it could not be renamed when it is full")
                .remedied_by("omit --log-file: the log is then on the standard error"));
        }
        let (path, length) = (path.to_owned(), metadata.len());
        let current = Current { path, full_at, file, length };
        Ok(Self(Arc::new(Mutex::new(current))))
    }
}

fn open(path: &Path) -> io::Result<File> {
    // A pipe without a reader must not stop the server.
    let flags = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
    OpenOptions::new().append(true).create(true).mode(0o600).custom_flags(flags).open(path)
}

impl Current {
    /// Writes a line. A line is in one file, unless it alone is longer than one.
    fn write(&mut self, line: &[u8]) -> io::Result<()> {
        let length = line.len() as u64;
        if self.length > 0 && self.length.saturating_add(length) > self.full_at {
            self.rotate()?;
        }
        self.file.write_all(line)?;
        self.length = self.length.saturating_add(length);
        Ok(())
    }

    /// Begins another file. The oldest one is deleted by the last renaming over it.
    fn rotate(&mut self) -> io::Result<()> {
        let rename = |from: PathBuf, to: PathBuf| match std::fs::rename(from, to) {
            // There are not as many yet, or somebody has removed one.
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        };
        for number in (1..KEPT).rev() {
            rename(self.numbered(number), self.numbered(number + 1))?;
        }
        rename(self.path.clone(), self.numbered(1))?;
        self.file = open(&self.path)?;
        self.length = 0;
        Ok(())
    }

    fn numbered(&self, number: u32) -> PathBuf {
        let mut name = self.path.clone().into_os_string();
        name.push(format!(".{number}"));
        name.into()
    }
}

/// Writes one event, whose lines come in one piece.
#[derive(Debug)]
pub(crate) struct Event<'a>(&'a LogFile);

impl io::Write for Event<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut current = self.0.0.lock().unwrap_or_else(PoisonError::into_inner);
        current.write(bytes)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for LogFile {
    type Writer = Event<'a>;

    fn make_writer(&'a self) -> Event<'a> {
        Event(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_file_gets_another_name_and_the_oldest_is_deleted() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("log");
        let log = |size| LogFile::open(&path, size).unwrap();
        let line = |log: &LogFile, number: u32| {
            log.make_writer().write_all(format!("line {number:02}\n").as_bytes()).unwrap();
        };
        let first = log(16);
        for number in 0..20 {
            line(&first, number);
        }
        let read = |name: &str| std::fs::read_to_string(scratch.path().join(name)).ok();
        assert_eq!(read("log").unwrap(), "line 18\nline 19\n");
        assert_eq!(read("log.1").unwrap(), "line 16\nline 17\n");
        assert_eq!(read("log.5").unwrap(), "line 08\nline 09\n");
        assert_eq!(std::fs::read_dir(scratch.path()).unwrap().count(), 6);
        // The next server continues it; a long line is not divided.
        let next = log(24);
        line(&next, 20);
        next.make_writer().write_all(&[b'x'; 40]).unwrap();
        assert_eq!(read("log.1").unwrap(), "line 18\nline 19\nline 20\n");
        assert_eq!(read("log").unwrap().len(), 40);
        // A file that somebody has removed does not end the log.
        std::fs::remove_file(&path).unwrap();
        line(&next, 21);
        line(&next, 22);
        assert_eq!(read("log").unwrap(), "line 21\nline 22\n");
        use std::os::unix::fs::PermissionsExt as _;
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn a_device_or_a_directory_is_no_file_of_a_log() {
        let code = |path: &str| LogFile::open(Path::new(path), 1).unwrap_err().code;
        assert_eq!(code("/dev/null"), Code::InvalidInput);
        assert_eq!(code("/"), Code::Io);
    }
}
