//! Erases this process's arguments and environment from its memory.
//!
//! Every process of a jail can read `/proc/1/cmdline`, and init is a copy of the supervisor: without
//! this, commands could read the supervisor's arguments there.

use std::fs;
use std::io;
use std::ops::Range;

/// Overwrites the arguments and the environment of this process with zeros, and names the process.
/// Nothing may read them afterwards.
///
/// # Errors
/// Why `/proc/self/stat` could not be read; `InvalidData` where it does not give their addresses.
pub(crate) fn erase() -> io::Result<()> {
    let stat = fs::read("/proc/self/stat")?;
    let areas = areas(&stat).ok_or(io::ErrorKind::InvalidData)?;
    for Range { start, end } in areas {
        let start = std::ptr::with_exposed_provenance_mut::<u8>(start);
        // SAFETY: the kernel has put the strings of execve(2) there, in this process's own stack, which
        // is writable; this process has one thread and reads neither list any more.
        unsafe { std::ptr::write_bytes(start, 0, end - start.addr()) };
    }
    // The name that `ps` shows on the host.
    let name = c"stockade-init";
    // SAFETY: the name is terminated and shorter than 16 bytes.
    unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr()) };
    Ok(())
}

/// The addresses of the arguments and of the environment: `arg_start`, `arg_end`, `env_start` and
/// `env_end` in the text of `/proc/PID/stat` (`proc(5)`, fields 48 to 51).
fn areas(stat: &[u8]) -> Option<[Range<usize>; 2]> {
    // The second field, the program's name, may itself hold parentheses and spaces.
    let after_name = stat.iter().rposition(|byte| *byte == b')')? + 1;
    let rest = std::str::from_utf8(stat.get(after_name..)?).ok()?;
    let mut addresses = rest.split_ascii_whitespace().skip(48 - 3).map(str::parse);
    let mut area = || {
        let (start, end) = (addresses.next()?.ok()?, addresses.next()?.ok()?);
        // The kernel writes zeros for a process that may not know them.
        (start != 0 && start <= end).then_some(start..end)
    };
    Some([area()?, area()?])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Ended, in_child};

    fn stat(name: &str, addresses: &str) -> Vec<u8> {
        let before = (3..48).map(|field| field.to_string()).collect::<Vec<_>>().join(" ");
        format!("1 ({name}) {before} {addresses} 0\n").into_bytes()
    }

    #[test]
    fn the_addresses_are_found_behind_any_name() {
        for name in ["a", "a) S 1 2 (b", "", ") ) )"] {
            assert_eq!(areas(&stat(name, "100 120 120 200")), Some([100..120, 120..200]), "{name}");
        }
        assert_eq!(areas(&stat("a", "100 100 100 100")), Some([100..100, 100..100]));
    }

    #[test]
    fn addresses_that_are_missing_or_wrong_are_refused() {
        for addresses in ["0 0 0 0", "100 120 0 0", "120 100 120 200", "100 120 120", "a b c d"] {
            assert_eq!(areas(&stat("a", addresses)), None, "{addresses}");
        }
        assert_eq!(areas(b""), None);
        assert_eq!(areas(b"1 (a"), None);
    }

    #[test]
    fn nothing_of_them_can_be_read_afterwards() {
        let ended = in_child(|| {
            let read = |file: &str| fs::read(format!("/proc/self/{file}")).unwrap();
            let is_empty = |file: &str| read(file).iter().all(|byte| *byte == 0);
            assert!(!is_empty("cmdline") && !is_empty("environ"));
            erase().unwrap();
            assert!(is_empty("cmdline") && is_empty("environ"));
            assert_eq!(read("comm"), b"stockade-init\n");
            0
        });
        assert_eq!(ended, Ended::Exited(0));
    }
}
