//! The initial file system of the machine: a `cpio` archive in the `newc` format that the kernel
//! unpacks (its Documentation/driver-api/early-userspace/buffer-format.rst), and the programs in
//! it, each with the libraries that it is linked with.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context as _;

use crate::workspace::output;

const DIRECTORY: u32 = 0o040_755;
const PROGRAM: u32 = 0o100_755;

/// The files of an archive, by their paths inside.
#[derive(Debug, Default)]
pub(super) struct Initrd {
    /// `None` is a directory.
    entries: BTreeMap<PathBuf, Option<Vec<u8>>>,
}

impl Initrd {
    /// Adds a directory, with its parents.
    pub(super) fn directory(&mut self, inside: &str) {
        for directory in Path::new(inside).ancestors().filter(|path| path.parent().is_some()) {
            self.entries.entry(directory.to_owned()).or_insert(None);
        }
    }

    /// Adds a file that every user may execute.
    pub(super) fn file(&mut self, inside: &Path, content: Vec<u8>) {
        if let Some(directory) = inside.parent().and_then(Path::to_str) {
            self.directory(directory);
        }
        self.entries.insert(inside.to_owned(), Some(content));
    }

    /// Adds a program of the host, its libraries and their loader, at the paths that it expects.
    pub(super) fn program(&mut self, inside: &str, host: &Path) -> anyhow::Result<()> {
        let read =
            |path: &Path| std::fs::read(path).with_context(|| format!("read {}", path.display()));
        self.file(Path::new(inside), read(host)?);
        for library in libraries(host) {
            if !self.entries.contains_key(&library) {
                let content = read(&library)?;
                self.file(&library, content);
            }
        }
        Ok(())
    }

    /// Writes the archive.
    pub(super) fn write(&self, to: &mut impl Write) -> io::Result<()> {
        for (number, (path, content)) in (1..).zip(&self.entries) {
            let mode = if content.is_some() { PROGRAM } else { DIRECTORY };
            let name = path.strip_prefix("/").unwrap_or(path).as_os_str().as_encoded_bytes();
            entry(to, number, mode, name, content.as_deref().unwrap_or_default())?;
        }
        entry(to, 0, 0, b"TRAILER!!!", &[])
    }
}

/// One header with its name and content, each padded to a multiple of four bytes.
fn entry(
    to: &mut impl Write,
    number: u32,
    mode: u32,
    name: &[u8],
    content: &[u8],
) -> io::Result<()> {
    let length = |bytes: usize| u32::try_from(bytes).map_err(io::Error::other);
    let fields = [
        number,
        mode,
        0, // user
        0, // group
        1, // links
        0, // time
        length(content.len())?,
        0, // device
        0,
        0, // device of a device node
        0,
        length(name.len() + 1)?,
        0, // checksum, unused in this format
    ];
    let mut header = String::from("070701");
    for field in fields {
        header.push_str(&format!("{field:08x}"));
    }
    to.write_all(header.as_bytes())?;
    to.write_all(name)?;
    to.write_all(&[0; 4][..1 + padding(header.len() + name.len() + 1)])?;
    to.write_all(content)?;
    to.write_all(&[0; 3][..padding(content.len())])
}

const fn padding(length: usize) -> usize {
    length.next_multiple_of(4) - length
}

/// The paths that `ldd` prints; none for a statically linked program.
fn libraries(program: &Path) -> Vec<PathBuf> {
    let output = output(Command::new("ldd").arg(program)).unwrap_or_default();
    output.lines().filter_map(library).collect()
}

/// The path in a line `libc.so.6 => /lib/libc.so.6 (0x…)` or `/lib64/ld.so (0x…)`.
fn library(line: &str) -> Option<PathBuf> {
    let path = line.split_whitespace().find(|word| word.starts_with('/'))?;
    Some(PathBuf::from(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_archive_is_as_the_kernel_reads_it() {
        let mut initrd = Initrd::default();
        initrd.file(Path::new("/a/b"), b"12345".to_vec());
        let mut bytes = Vec::new();
        initrd.write(&mut bytes).unwrap();
        let header = |number: &str, mode: &str, size: &str, name: &str| {
            let zero = "00000000";
            let one = "00000001";
            let number = format!("{number:0>8}");
            format!(
                "070701{number}{mode:0>8}{zero}{zero}{one}{zero}{size:0>8}{zero}{zero}{zero}{zero}\
                 {name:0>8}{zero}"
            )
        };
        let expected = [
            header("1", "41ed", "0", "2").as_str(),
            "a\0",
            "",
            header("2", "81ed", "5", "4").as_str(),
            "a/b\0\0\0",
            "12345\0\0\0",
            header("0", "0", "0", "b").as_str(),
            "TRAILER!!!\0\0\0\0",
        ]
        .concat();
        assert_eq!(String::from_utf8(bytes).unwrap(), expected);
    }

    #[test]
    fn libraries_are_read_from_what_ldd_says() {
        let lines = [
            ("\tlinux-vdso.so.1 (0x00007ff8e0c55000)", None),
            (
                "\tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x0)",
                Some("/lib/x86_64-linux-gnu/libc.so.6"),
            ),
            ("\t/lib64/ld-linux-x86-64.so.2 (0x0)", Some("/lib64/ld-linux-x86-64.so.2")),
            ("\tlibgone.so => not found", None),
            ("\tstatically linked", None),
        ];
        for (line, path) in lines {
            assert_eq!(library(line), path.map(PathBuf::from), "{line}");
        }
    }
}
