//! Input that is known when a command starts: an immutable file in memory. The command has its
//! descriptor from the start.
//!
//! The file is sent with the request, from the client to the keeper and to init, one message each.
//! So the command never sees a partial input. The file is in memory because a command's input may
//! be secret; that memory does not count towards the sandbox's own limit, so it has separate
//! bounds.

use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::{AsRawFd as _, OwnedFd};

use rustix::fs::{MemfdFlags, Mode, OFlags, SealFlags};

use super::wire::{CommandHead, Failure};
use stockade_runtime::WHOLE_INPUT_BYTES;

/// The maximal input of all running commands of a sandbox together, in bytes.
pub(super) const MAX_INPUT_BYTES: u64 = 4 * WHOLE_INPUT_BYTES as u64;

const SEALS: SealFlags =
    SealFlags::GROW.union(SealFlags::SHRINK).union(SealFlags::WRITE).union(SealFlags::SEAL);

/// The file that a client sent.
#[derive(Debug)]
pub(super) struct InputFile {
    pub(super) file: OwnedFd,
    pub(super) length_bytes: u64,
}

/// A file with these bytes, positioned at its start. All users may read it, for programs that open
/// their standard input again; no user may write or execute it.
///
/// # Errors
/// When no memory or descriptor is available for it.
pub(super) fn file(bytes: &[u8]) -> io::Result<OwnedFd> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let mut file = File::from(rustix::fs::memfd_create("input", flags)?);
    file.write_all(bytes)?;
    rustix::fs::fchmod(&file, Mode::RUSR | Mode::RGRP | Mode::ROTH)?;
    rustix::fs::fcntl_add_seals(&file, SEALS)?;
    // A new open file description: `file` is positioned at its end and is open for writing.
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    Ok(rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?)
}

impl InputFile {
    /// The file that came with a command whose input is given whole; `None` for any other command.
    ///
    /// # Errors
    /// [`Failure::Invalid`] for a file that is not sealed in this way, or too long.
    pub(super) fn receive(
        head: &CommandHead,
        descriptor: Option<OwnedFd>,
    ) -> Result<Option<Self>, Failure> {
        if !head.input_is_given {
            return Ok(None);
        }
        let given = descriptor.filter(|_| head.terminal.is_none()).and_then(|file| {
            let is_sealed = rustix::fs::fcntl_get_seals(&file).is_ok_and(|is| is.contains(SEALS));
            let length_bytes = u64::try_from(rustix::fs::fstat(&file).ok()?.st_size).ok()?;
            let is_bounded = length_bytes <= WHOLE_INPUT_BYTES as u64;
            (is_sealed && is_bounded).then_some(Self { file, length_bytes })
        });
        let invalid = || Failure::Invalid("the command's input is not a readable file".to_owned());
        given.ok_or_else(invalid).map(Some)
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Seek as _};
    use std::os::fd::AsFd as _;

    use super::*;
    use stockade_runtime::WindowSize;

    const HEAD: CommandHead = CommandHead {
        working_directory: None,
        user: None,
        terminal: None,
        takes_input: true,
        input_is_given: true,
        timeout: None,
        output_limit_bytes: None,
    };

    #[test]
    fn it_is_read_from_its_start_and_never_changed() {
        let mut given = File::from(file(b"some bytes").unwrap());
        let again = format!("/proc/self/fd/{}", given.as_raw_fd());
        assert!(given.write_all(b"x").is_err());
        assert!(given.set_len(0).is_err());
        // Root may open it for writing, but cannot change it.
        if let Ok(mut writer) = File::options().write(true).open(&again) {
            assert!(writer.write_all(b"x").is_err() && writer.set_len(100).is_err());
        }
        let mut text = String::new();
        given.read_to_string(&mut text).unwrap();
        assert_eq!(text, "some bytes");
        given.rewind().unwrap();
        let mut other = String::new();
        File::open(again).unwrap().read_to_string(&mut other).unwrap();
        assert_eq!(other, text);
        assert_eq!(given.metadata().unwrap().len(), 10);
    }

    #[test]
    fn it_is_taken_when_it_is_asked_for_and_what_it_must_be() {
        let none = CommandHead { input_is_given: false, ..HEAD };
        assert!(InputFile::receive(&none, Some(file(b"").unwrap())).unwrap().is_none());
        let taken = InputFile::receive(&HEAD, Some(file(&[7; 5000]).unwrap())).unwrap().unwrap();
        assert_eq!(taken.length_bytes, 5000);
        let refused = |head: &CommandHead, descriptor| {
            assert!(matches!(InputFile::receive(head, descriptor), Err(Failure::Invalid(_))));
        };
        refused(&HEAD, None);
        refused(&HEAD, Some(tempfile::tempfile().unwrap().into()));
        refused(&HEAD, Some(std::io::stdin().as_fd().try_clone_to_owned().unwrap()));
        let size = Some(WindowSize { rows: 24, columns: 80 });
        let terminal = CommandHead { terminal: size, ..HEAD };
        refused(&terminal, Some(file(b"").unwrap()));
        let unsealed = rustix::fs::memfd_create("input", MemfdFlags::ALLOW_SEALING).unwrap();
        refused(&HEAD, Some(unsealed.try_clone().unwrap()));
        rustix::fs::ftruncate(&unsealed, WHOLE_INPUT_BYTES as u64 + 1).unwrap();
        rustix::fs::fcntl_add_seals(&unsealed, SEALS).unwrap();
        refused(&HEAD, Some(unsealed));
    }
}
