//! Reads from the headers of a program (`elf(5)`) how the linker has hardened it.

use std::path::Path;

/// Values of `e_type`, `p_type`, `p_flags` and `d_tag`.
const SHARED_OBJECT: u64 = 3;
const DYNAMIC: u64 = 2;
const INTERPRETER: u64 = 3;
const GNU_STACK: u64 = 0x6474_e551;
const GNU_RELRO: u64 = 0x6474_e552;
const WRITABLE_AND_EXECUTABLE: u64 = 3;
const BIND_NOW: u64 = 24;
const FLAGS: u64 = 30;
const FLAGS_1: u64 = 0x6fff_fffb;

/// A program for a 64-bit machine that is little-endian.
#[derive(Debug)]
pub struct Elf {
    bytes: Vec<u8>,
    kind: u64,
    segments: Vec<Segment>,
}

#[derive(Debug)]
struct Segment {
    kind: u64,
    flags: u64,
    offset: usize,
    size: usize,
}

impl Elf {
    /// Reads a program.
    ///
    /// # Errors
    /// Why the file cannot be read, or that it is no such program.
    pub fn read(path: &Path) -> Result<Self, String> {
        let bytes = std::fs::read(path).map_err(|error| format!("{}: {error}", path.display()))?;
        let no_program = || format!("{} is no 64-bit ELF file", path.display());
        Self::parse(bytes).ok_or_else(no_program)
    }

    fn parse(bytes: Vec<u8>) -> Option<Self> {
        bytes.starts_with(b"\x7fELF\x02\x01").then_some(())?;
        let place = |at, size| usize::try_from(number(bytes.get(at..at + size)?)).ok();
        let (table, size, count) = (place(32, 8)?, place(54, 2)?, place(56, 2)?);
        let segments = (0..count).map(|index| {
            let at = table + index * size;
            Some(Segment {
                kind: number(bytes.get(at..at + 4)?),
                flags: number(bytes.get(at + 4..at + 8)?),
                offset: place(at + 8, 8)?,
                size: place(at + 32, 8)?,
            })
        });
        let segments = segments.collect::<Option<Vec<_>>>()?;
        Some(Self { segments, kind: number(bytes.get(16..18)?), bytes })
    }

    /// What is missing: position independent code, relocations that cannot be written once the
    /// program runs, all symbols resolved when it starts, and no segment that can be both written
    /// and executed.
    #[must_use]
    pub fn weaknesses(&self) -> Vec<String> {
        let mut found = Vec::new();
        if self.kind != SHARED_OBJECT {
            found.push("is not of type DYN".to_owned());
        }
        for (kind, name) in [(GNU_RELRO, "GNU_RELRO"), (GNU_STACK, "GNU_STACK")] {
            if self.of_kind(kind).count() != 1 {
                found.push(format!("has no segment {name}"));
            }
        }
        for segment in &self.segments {
            if segment.flags & WRITABLE_AND_EXECUTABLE == WRITABLE_AND_EXECUTABLE {
                found.push(format!("has a segment that is writable and executable: {segment:?}"));
            }
        }
        let is_bound_now = |(tag, value): (u64, u64)| match tag {
            BIND_NOW => true,
            FLAGS => value & 8 != 0,
            FLAGS_1 => value & 1 != 0,
            _ => false,
        };
        if !self.dynamic_entries().any(is_bound_now) {
            found.push("does not resolve all symbols when it starts".to_owned());
        }
        found
    }

    /// Whether the program runs without a dynamic linker.
    #[must_use]
    pub fn is_static(&self) -> bool {
        self.of_kind(INTERPRETER).next().is_none()
    }

    fn of_kind(&self, kind: u64) -> impl Iterator<Item = &Segment> {
        self.segments.iter().filter(move |segment| segment.kind == kind)
    }

    /// The tags and values of the dynamic section.
    fn dynamic_entries(&self) -> impl Iterator<Item = (u64, u64)> {
        let section = self.of_kind(DYNAMIC).next().and_then(|dynamic| {
            self.bytes.get(dynamic.offset..dynamic.offset.checked_add(dynamic.size)?)
        });
        let entries = section.unwrap_or_default().chunks_exact(16);
        entries.map(|entry| (number(&entry[..8]), number(&entry[8..])))
    }
}

/// The value of at most eight bytes.
fn number(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |sum: u64, byte| (sum << 8) | u64::from(*byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_running_test_is_a_hardened_program() {
        let elf = Elf::read(&std::env::current_exe().unwrap()).unwrap();
        assert_eq!(elf.weaknesses(), Vec::<String>::new());
        assert!(!elf.is_static());
    }

    #[test]
    fn each_weakness_is_found() {
        let bytes = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let weakened = |change: fn(&mut Elf)| {
            let mut elf = Elf::parse(bytes.clone()).unwrap();
            change(&mut elf);
            elf.weaknesses().len()
        };
        assert_eq!(weakened(|elf| elf.kind = 2), 1);
        assert_eq!(weakened(|elf| elf.segments[0].flags = 7), 1);
        assert_eq!(weakened(|elf| elf.segments.retain(|one| one.kind != GNU_RELRO)), 1);
        assert_eq!(weakened(|elf| elf.segments.retain(|one| one.kind != GNU_STACK)), 1);
        assert_eq!(weakened(|elf| elf.segments.retain(|one| one.kind != DYNAMIC)), 1);
    }

    #[test]
    fn what_is_no_program_is_refused() {
        assert!(Elf::parse(b"#!/bin/sh".to_vec()).is_none());
        assert!(Elf::parse(b"\x7fELF\x02\x01".to_vec()).is_none());
        assert!(Elf::read("/no/such/file".as_ref()).unwrap_err().contains("/no/such/file"));
    }
}
