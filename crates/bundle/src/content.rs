//! Copying the content of files: shared with the original where the file system supports that,
//! with holes preserved, and never more than requested, even if the file changes during the
//! copy.

use std::fs::File;
use std::io::{self, Read as _};

use rustix::fs::SeekFrom;
use rustix::io::Errno;

/// No extent of a file with holes is shorter than a page. Smaller steps would make no progress
/// if another process punches and fills holes during the copy.
const STEP_BYTES: u64 = 4096;

/// Copies the first `length_bytes` of a file, or all of it if it is shorter, to an empty file.
/// Both files are positioned at their start. Returns the length of the copy, holes included.
///
/// # Errors
/// `FileTooLarge` when more than `data_bytes` would have to be stored; errors of reading and
/// writing.
pub fn copy(from: &File, to: &File, length_bytes: u64, data_bytes: u64) -> io::Result<u64> {
    let (length, stored) = measure(from)?;
    if rustix::fs::ioctl_ficlone(to, from).is_ok() {
        let (length, stored) = measure(to)?;
        if length > length_bytes {
            to.set_len(length_bytes)?;
        }
        return if stored > data_bytes { too_large() } else { Ok(length.min(length_bytes)) };
    }
    if stored < length {
        return copy_sparse(from, to, length.min(length_bytes), data_bytes);
    }
    copy_part(from, to, length_bytes, data_bytes)
}

/// Length and stored bytes.
fn measure(file: &File) -> io::Result<(u64, u64)> {
    let stat = rustix::fs::fstat(file)?;
    Ok((stat.st_size.cast_unsigned(), stat.st_blocks.cast_unsigned().saturating_mul(512)))
}

/// Copies the next part of a file. The standard library tries `copy_file_range` and `sendfile`,
/// then a buffer.
fn copy_part(from: &File, mut to: &File, length: u64, allowed: u64) -> io::Result<u64> {
    let mut part = from.take(length.min(allowed.saturating_add(1)));
    let copied = io::copy(&mut part, &mut to)?;
    if copied > allowed { too_large() } else { Ok(copied) }
}

/// Copies only the data of a file with holes (`lseek(2)`, `SEEK_DATA`).
fn copy_sparse(from: &File, to: &File, length: u64, mut allowed: u64) -> io::Result<u64> {
    let mut at = 0;
    while at < length {
        let data = match rustix::fs::seek(from, SeekFrom::Data(at)) {
            // There is no more data.
            Err(Errno::NXIO) => break,
            other => other?,
        };
        if data >= length {
            break;
        }
        let hole = match rustix::fs::seek(from, SeekFrom::Hole(data)) {
            // The file was truncated during the copy.
            Err(Errno::NXIO) => break,
            other => other?.max(data + STEP_BYTES).min(length),
        };
        rustix::fs::seek(from, SeekFrom::Start(data))?;
        rustix::fs::seek(to, SeekFrom::Start(data))?;
        let copied = copy_part(from, to, hole - data, allowed)?;
        if copied < hole - data {
            break;
        }
        allowed -= copied;
        at = hole;
    }
    let length = length.min(measure(from)?.0);
    to.set_len(length)?;
    Ok(length)
}

fn too_large<T>() -> io::Result<T> {
    Err(io::ErrorKind::FileTooLarge.into())
}

#[cfg(test)]
mod tests {
    use std::io::{Seek as _, SeekFrom, Write as _};
    use std::os::unix::fs::MetadataExt as _;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    fn file(content: impl FnOnce(&mut File)) -> File {
        let mut file = tempfile::tempfile().unwrap();
        content(&mut file);
        file.rewind().unwrap();
        file
    }

    fn read(mut file: &File) -> Vec<u8> {
        let mut content = Vec::new();
        file.rewind().unwrap();
        file.read_to_end(&mut content).unwrap();
        content
    }

    #[test]
    fn content_is_copied_up_to_the_length_that_was_asked_for() {
        let from = file(|file| file.write_all(b"content").unwrap());
        for (asked, copied) in [(0, &b""[..]), (3, b"con"), (7, b"content"), (100, b"content")] {
            let to = tempfile::tempfile().unwrap();
            rustix::fs::seek(&from, rustix::fs::SeekFrom::Start(0)).unwrap();
            assert_eq!(copy(&from, &to, asked, u64::MAX).unwrap(), copied.len() as u64);
            assert_eq!(read(&to), copied);
        }
    }

    #[test]
    fn holes_stay_holes() {
        let from = file(|file| {
            for at in [0, 1 << 20, 10 << 20] {
                file.seek(SeekFrom::Start(at)).unwrap();
                file.write_all(b"data").unwrap();
            }
            file.set_len(1 << 30).unwrap();
        });
        let to = tempfile::tempfile().unwrap();
        assert_eq!(copy(&from, &to, u64::MAX, 1 << 20).unwrap(), 1 << 30);
        assert!(to.metadata().unwrap().blocks() <= from.metadata().unwrap().blocks());
        let mut start = vec![0; (10 << 20) + 4];
        rustix::io::pread(&to, &mut start[..], 0).unwrap();
        assert_eq!((&start[1 << 20..][..4], &start[10 << 20..]), (&b"data"[..], &b"data"[..]));
    }

    #[test]
    fn more_data_than_is_allowed_is_refused() {
        let whole = file(|file| file.write_all(&[1; 9000]).unwrap());
        let sparse = file(|file| {
            file.write_all(&[1; 9000]).unwrap();
            file.set_len(1 << 30).unwrap();
        });
        for from in [whole, sparse] {
            let to = tempfile::tempfile().unwrap();
            let refused = copy(&from, &to, u64::MAX, 8000).unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::FileTooLarge);
        }
    }

    #[test]
    fn a_file_that_changes_meanwhile_is_copied_within_its_bounds() {
        let from = file(|file| {
            file.write_all(&[1; 1 << 16]).unwrap();
            file.set_len(1 << 20).unwrap();
        });
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    for length in [1 << 22, 1 << 12, 1 << 18] {
                        from.set_len(length).unwrap();
                        rustix::io::pwrite(&from, &[2; 8192], length / 2).unwrap();
                    }
                }
            });
            for _ in 0..200 {
                let to = tempfile::tempfile().unwrap();
                rustix::fs::seek(&from, rustix::fs::SeekFrom::Start(0)).unwrap();
                let copied = copy(&from, &to, 1 << 19, u64::MAX).unwrap();
                assert!(copied <= 1 << 19 && copied == to.metadata().unwrap().len());
            }
            done.store(true, Ordering::Relaxed);
        });
    }
}
