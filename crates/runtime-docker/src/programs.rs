//! Stockade's own programs for a container, or another sandbox with an image, in which a workflow executes its child: they run in any image,
//! whichever C library it has, because their loader and libraries come with them.
//!
//! A copy of the program names another loader (`PT_INTERP` of elf(5)), below [`LIBRARIES`]. The
//! programs are linked with that directory as `DT_RUNPATH`, which does not exist on the host.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use stockade_runtime::{Error, Result};

use crate::own_file;

/// The directory inside with the loader and the libraries.
pub const LIBRARIES: &str = "/opt/stockade/lib";
/// The loader inside. Its path must not be longer than the usual one.
const LOADER: &[u8] = b"/opt/stockade/lib/ld.so\0";
/// The name of the loader on the host.
const HOST_LOADER: &str = "ld-linux-x86-64.so.2";
/// The type of the program header with the path of the loader, and its size in the file.
const INTERPRETER: u32 = 3;
const HEADER_BYTES: usize = 56;

/// The directories of one build.
#[derive(Debug)]
pub struct Portable {
    directory: PathBuf,
}

impl Portable {
    /// The programs of this build, below the directory of the runtime. The libraries are those that
    /// this process uses itself.
    ///
    /// # Errors
    /// [`Error::Host`] if they cannot be copied.
    pub fn open(directory: &Path, build: &str) -> Result<Self> {
        let own = directory.join(format!("programs-{build}"));
        let failed = |source| Error::Host { path: own.display().to_string(), source };
        let libraries = own.join("lib");
        if !libraries.exists() {
            let new = own_file::beside(&own);
            let _ = std::fs::remove_dir_all(&new);
            let copied = copy_libraries(&new.join("lib")).and_then(|()| {
                match std::fs::rename(&new, &own) {
                    // Another process was faster.
                    Err(_) if libraries.exists() => std::fs::remove_dir_all(&new),
                    other => other,
                }
            });
            copied.map_err(failed)?;
        }
        Ok(Self { directory: own })
    }

    /// The directory that is to be mounted at [`LIBRARIES`].
    pub fn libraries(&self) -> PathBuf {
        self.directory.join("lib")
    }

    /// The copy of a program that runs in any image.
    ///
    /// # Errors
    /// [`Error::Host`] for a program that cannot be read or copied.
    pub fn program(&self, program: &Path) -> Result<PathBuf> {
        let failed = |source| Error::Host { path: program.display().to_string(), source };
        let name = program.file_name().unwrap_or_default();
        let copy = self.directory.join(name);
        if copy.exists() {
            return Ok(copy);
        }
        let mut bytes = std::fs::read(program).map_err(failed)?;
        let Some(place) = interpreter(&bytes) else {
            // It needs no loader.
            return Ok(program.to_owned());
        };
        let place = bytes.get_mut(place).filter(|place| place.len() >= LOADER.len());
        let place = place.ok_or_else(|| failed(io::ErrorKind::InvalidData.into()))?;
        place.fill(0);
        for (to, from) in place.iter_mut().zip(LOADER) {
            *to = *from;
        }
        own_file::publish(&copy, &bytes, 0o755).map_err(failed)?;
        Ok(copy)
    }
}

/// Copies the libraries of this process, the loader under its other name.
fn copy_libraries(to: &Path) -> io::Result<()> {
    std::fs::create_dir_all(to)?;
    let maps = std::fs::read("/proc/self/maps")?;
    for (name, path) in libraries(&maps) {
        let name = if name == HOST_LOADER { "ld.so".to_owned() } else { name };
        own_file::publish(&to.join(name), &std::fs::read(path)?, 0o755)?;
    }
    std::fs::set_permissions(to, std::fs::Permissions::from_mode(0o755))
}

/// The shared libraries in a table of mappings (`proc_pid_maps(5)`), by their names.
fn libraries(maps: &[u8]) -> BTreeMap<String, PathBuf> {
    let path = |line: &[u8]| {
        let start = line.iter().position(|byte| *byte == b'/')?;
        let path = Path::new(OsStr::from_bytes(&line[start..])).to_owned();
        let name = path.file_name()?.to_str()?.to_owned();
        name.contains(".so").then_some((name, path))
    };
    maps.split(|byte| *byte == b'\n').filter_map(path).collect()
}

/// Where a program (ELF, 64 bits, little-endian) names its loader; `None` if it names none.
fn interpreter(program: &[u8]) -> Option<std::ops::Range<usize>> {
    let number = |at: usize, length: usize| -> Option<usize> {
        let bytes = program.get(at..at.checked_add(length)?)?;
        let value = bytes.iter().rev().fold(0_u64, |value, byte| value << 8 | u64::from(*byte));
        usize::try_from(value).ok()
    };
    if program.get(..6)? != b"\x7fELF\x02\x01" {
        return None;
    }
    let (start, size, count) = (number(32, 8)?, number(54, 2)?, number(56, 2)?);
    if size < HEADER_BYTES {
        return None;
    }
    (0..count).find_map(|index| {
        let header = start.checked_add(index.checked_mul(size)?)?;
        if number(header, 4)? != INTERPRETER as usize {
            return None;
        }
        let (offset, length) =
            (number(header.checked_add(8)?, 8)?, number(header.checked_add(32)?, 8)?);
        Some(offset..offset.checked_add(length)?)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_gets_another_loader_and_its_libraries() {
        let place = tempfile::tempdir().unwrap();
        let portable = Portable::open(place.path(), "b").unwrap();
        let own = std::env::current_exe().unwrap();
        let copy = portable.program(&own).unwrap();
        let bytes = std::fs::read(&copy).unwrap();
        if let Some(range) = interpreter(&bytes) {
            assert!(bytes[range].starts_with(LOADER));
            let names: Vec<_> = portable.libraries().read_dir().unwrap().collect();
            assert!(names.len() >= 2, "{names:?}");
            assert!(portable.libraries().join("ld.so").is_file());
        }
        assert_eq!(portable.program(&own).unwrap(), copy);
        assert_eq!(Portable::open(place.path(), "b").unwrap().libraries(), portable.libraries());
    }

    #[test]
    fn what_is_no_program_names_no_loader() {
        for bytes in [&b""[..], b"#!/bin/sh\n", b"\x7fELF\x02\x01", &[0xff; 4096]] {
            assert_eq!(interpreter(bytes), None);
        }
        let mut damaged = b"\x7fELF\x02\x01".to_vec();
        damaged.resize(64, 0xff);
        assert_eq!(interpreter(&damaged), None);
    }
}
