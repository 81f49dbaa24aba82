//! The map that the linker writes (`ld.lld -Map`): which section of which file came where.
//!
//! Sections of constants that are merged with others belong to no file in it.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context as _, ensure};

/// The sections of code and of constants in a program, by their addresses.
#[derive(Debug, Default)]
pub(super) struct Map {
    sections: BTreeMap<u64, Section>,
    functions: Vec<u64>,
}

/// A section of one of the files that were linked.
#[derive(Debug)]
pub(super) struct Section {
    pub(super) address: u64,
    pub(super) bytes: u64,
    /// The archive's file name, where the object is in one.
    pub(super) archive: Option<String>,
    /// The object's file name.
    pub(super) object: String,
    /// The section's name in it.
    pub(super) name: String,
}

impl Section {
    pub(super) fn is_code(&self) -> bool {
        self.name.starts_with(".text")
    }
}

impl Map {
    pub(super) fn read(path: &Path) -> anyhow::Result<Self> {
        let text =
            std::fs::read_to_string(path).with_context(|| format!("read {}", path.display()))?;
        let map = Self::parse(&text);
        ensure!(!map.functions.is_empty(), "{}: not a map of ld.lld", path.display());
        Ok(map)
    }

    pub(super) fn parse(text: &str) -> Self {
        let mut map = Self::default();
        // Whether the functions that follow are in a section of code.
        let mut is_code = false;
        for line in text.lines() {
            let Some((address, bytes, rest)) = numbers(line) else { continue };
            let is_input = rest.starts_with("        ") && !rest.starts_with("         ");
            if is_input {
                let section = section(address, bytes, rest.trim_start());
                is_code = section.as_ref().is_some_and(Section::is_code);
                map.sections.extend(section.map(|section| (address, section)));
            } else if is_code && rest.starts_with("         ") {
                map.functions.push(address);
            }
        }
        let code = map.sections.values().filter(|section| section.is_code());
        map.functions.extend(code.map(|section| section.address));
        map.functions.sort_unstable();
        map.functions.dedup();
        map
    }

    /// All of them.
    pub(super) fn sections(&self) -> impl Iterator<Item = &Section> {
        self.sections.values()
    }

    /// Where functions begin that are Rust's or the C library's. What else there is of C and of
    /// assembly may not bear a probe, and a run has no use for it.
    pub(super) fn functions(&self) -> impl Iterator<Item = u64> {
        self.functions.iter().copied().filter(|address| {
            self.section(*address).is_some_and(|section| {
                let is_rust = ["._ZN", "._R", ".text.main", ".text.stockade_"];
                is_rust.iter().any(|part| section.name.contains(part))
                    || matches!(
                        section.archive.as_deref(),
                        Some("libc.a" | "libm.a" | "libgcc_eh.a")
                    )
            })
        })
    }

    /// The section that an address is in.
    pub(super) fn section(&self, address: u64) -> Option<&Section> {
        let (_, section) = self.sections.range(..=address).next_back()?;
        (address < section.address + section.bytes.max(1)).then_some(section)
    }
}

/// The address, the size, and what stands behind the alignment.
fn numbers(line: &str) -> Option<(u64, u64, &str)> {
    let mut rest = line;
    let mut word = || {
        let begun = rest.trim_start();
        let end = begun.find(' ')?;
        let word;
        (word, rest) = begun.split_at(end);
        Some(word)
    };
    let address = u64::from_str_radix(word()?, 16).ok()?;
    let _ = word()?;
    let bytes = u64::from_str_radix(word()?, 16).ok()?;
    let _alignment: u64 = word()?.parse().ok()?;
    Some((address, bytes, rest.strip_prefix(' ')?))
}

fn section(address: u64, bytes: u64, text: &str) -> Option<Section> {
    let (file, name) = text.strip_suffix(')')?.rsplit_once(":(")?;
    if !(name.starts_with(".text") || name.starts_with(".rodata")) || bytes == 0 {
        return None;
    }
    let base = |path: &str| path.rsplit('/').next().unwrap_or(path).to_owned();
    let (archive, object) = match file.strip_suffix(')').and_then(|file| file.split_once('(')) {
        Some((archive, object)) => (Some(base(archive)), base(object)),
        None => (None, base(file)),
    };
    Some(Section { address, bytes, archive, object, name: name.to_owned() })
}
