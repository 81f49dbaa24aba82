//! Where the kernel has placed a process's heap, arguments and environment, and the erasing of its
//! arguments.
//!
//! Every process of a jail can read `/proc/1/cmdline`, and init is a copy of the supervisor:
//! without erasing, commands could read the supervisor's arguments there.

use std::fs;
use std::io;
use std::ops::Range;

/// Addresses in this process's memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AddressSpace {
    /// The start of the heap that sbrk(2) extends.
    pub(crate) heap_start: usize,
    arguments: Range<usize>,
    environment: Range<usize>,
}

impl AddressSpace {
    /// Reads the addresses of the calling process. Needs a `/proc` of its own pid namespace.
    ///
    /// # Errors
    /// The error of reading `/proc/self/stat`; `InvalidData` where the addresses are missing.
    pub(crate) fn read() -> io::Result<Self> {
        Self::parse(&fs::read("/proc/self/stat")?).ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    /// Reads the fields 47 to 51 of `/proc/PID/stat`: `start_brk`, `arg_start`, `arg_end`, `env_start`
    /// and `env_end` (`proc(5)`).
    fn parse(stat: &[u8]) -> Option<Self> {
        // The second field, the program's name, may itself contain parentheses and spaces.
        let after_name = stat.iter().rposition(|byte| *byte == b')')? + 1;
        let rest = std::str::from_utf8(stat.get(after_name..)?).ok()?;
        let mut fields = rest.split_ascii_whitespace().skip(47 - 3).map(str::parse);
        // The kernel writes zeros for a process that may not read them.
        let mut address = || fields.next()?.ok().filter(|address| *address != 0);
        let heap_start = address()?;
        let mut range = || Some(address()?..address()?).filter(|area| area.start <= area.end);
        Some(Self { heap_start, arguments: range()?, environment: range()? })
    }

    /// Overwrites the arguments and the environment with zeros.
    ///
    /// # Safety
    /// The process must have a single thread and must not read its arguments or its environment any
    /// more.
    pub(crate) unsafe fn erase_arguments(&self) {
        for area in [&self.arguments, &self.environment] {
            let start = std::ptr::with_exposed_provenance_mut::<u8>(area.start);
            // SAFETY: the kernel has put the strings of execve(2) there, in this process's own
            // stack, which is writable; the caller promises that nothing uses them any more.
            unsafe { std::ptr::write_bytes(start, 0, area.len()) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{ChildExit, in_child};

    fn stat(name: &str, addresses: &str) -> Vec<u8> {
        let before = (3..47).map(|field| field.to_string()).collect::<Vec<_>>().join(" ");
        format!("1 ({name}) {before} {addresses} 0\n").into_bytes()
    }

    #[test]
    fn the_addresses_are_found_behind_any_name() {
        let found = AddressSpace { heap_start: 90, arguments: 100..120, environment: 120..200 };
        for name in ["a", "a) S 1 2 (b", "", ") ) )"] {
            let stat = stat(name, "90 100 120 120 200");
            assert_eq!(AddressSpace::parse(&stat).as_ref(), Some(&found), "{name}");
        }
        let empty = AddressSpace { heap_start: 90, arguments: 100..100, environment: 100..100 };
        assert_eq!(AddressSpace::parse(&stat("a", "90 100 100 100 100")), Some(empty));
    }

    #[test]
    fn addresses_that_are_missing_or_wrong_are_refused() {
        for addresses in [
            "0 0 0 0 0",
            "90 100 120 0 0",
            "0 100 120 120 200",
            "90 120 100 120 200",
            "90 100 120 120",
            "a b c d e",
        ] {
            assert_eq!(AddressSpace::parse(&stat("a", addresses)), None, "{addresses}");
        }
        assert_eq!(AddressSpace::parse(b""), None);
        assert_eq!(AddressSpace::parse(b"1 (a"), None);
    }

    #[test]
    fn the_kernel_tells_this_process_where_its_heap_is() {
        // SAFETY: queries the end of the heap.
        let end = unsafe { libc::sbrk(0) } as usize;
        assert!((1..=end).contains(&AddressSpace::read().unwrap().heap_start));
    }

    #[test]
    fn nothing_of_the_arguments_can_be_read_afterwards() {
        let ended = in_child(|| {
            let read = |file: &str| fs::read(format!("/proc/self/{file}")).unwrap();
            let is_empty = |file: &str| read(file).iter().all(|byte| *byte == 0);
            assert!(!is_empty("cmdline") && !is_empty("environ"));
            let addresses = AddressSpace::read().unwrap();
            // SAFETY: the process that `in_child` makes has a single thread, and reads neither
            // arguments nor environment.
            unsafe { addresses.erase_arguments() };
            assert!(is_empty("cmdline") && is_empty("environ"));
            0
        });
        assert_eq!(ended, ChildExit::Exited(0));
    }
}
