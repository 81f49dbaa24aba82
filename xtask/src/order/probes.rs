//! Probes of the kernel at the functions of a program, which tell whoever runs it what is called.

use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::Path;

use anyhow::{Context as _, ensure};

use super::map::Map;

/// Where the kernel is asked (`tracefs`).
const TRACING: &str = "/sys/kernel/tracing";
/// The name of all probes: many places of one event.
const EVENT: &str = "stockade_order/called";

/// The probes of a program. Dropping this takes them away.
#[derive(Debug)]
pub(super) struct Probes {
    segments: Vec<Segment>,
}

/// A part of the program that is loaded (`elf(5)`).
#[derive(Debug, Clone, Copy)]
struct Segment {
    offset: u64,
    address: u64,
    bytes: u64,
}

impl Probes {
    /// Sets one at each function, which takes a minute, and has the kernel note what is called.
    pub(super) fn set(program: &Path, map: &Map) -> anyhow::Result<Self> {
        let probes = Self { segments: segments(program)? };
        let events = format!("{TRACING}/uprobe_events");
        let why = "needs root, and `mount -t tracefs tracefs /sys/kernel/tracing`";
        let mut file = OpenOptions::new().append(true).open(&events).context(why)?;
        for offset in map.functions().filter_map(|address| probes.offset(address)) {
            let line = format!("p:{EVENT} {}:{offset:#x}\n", program.display());
            // The kernel refuses a place that is no instruction's beginning.
            let _ = file.write_all(line.as_bytes());
        }
        write("trace", "")?;
        write("buffer_size_kb", "100000")?;
        write(&format!("events/{EVENT}/enable"), "1")?;
        write("tracing_on", "1")?;
        Ok(probes)
    }

    /// The addresses of what was called, in the order of the first calls.
    pub(super) fn called(&mut self) -> anyhow::Result<Vec<u64>> {
        write("tracing_on", "0")?;
        let text = std::fs::read_to_string(Path::new(TRACING).join("trace"))?;
        let mut seen = BTreeSet::new();
        let addresses = text.lines().filter_map(|line| {
            let (_, address) = line.rsplit_once("called: (0x")?;
            u64::from_str_radix(address.strip_suffix(')')?, 16).ok()
        });
        let called: Vec<u64> = addresses.filter(|address| seen.insert(*address)).collect();
        ensure!(!called.is_empty(), "the kernel has seen no function called");
        Ok(called)
    }

    fn offset(&self, address: u64) -> Option<u64> {
        let holds = |segment: &&Segment| {
            (segment.address..segment.address + segment.bytes).contains(&address)
        };
        self.segments.iter().find(holds).map(|segment| address - segment.address + segment.offset)
    }
}

impl Drop for Probes {
    fn drop(&mut self) {
        // What cannot be taken away goes with the next start of the machine.
        let _ = write(&format!("events/{EVENT}/enable"), "0");
        let _ = File::create(Path::new(TRACING).join("uprobe_events"));
        let _ = write("trace", "");
    }
}

fn write(name: &str, text: &str) -> anyhow::Result<()> {
    let path = Path::new(TRACING).join(name);
    std::fs::write(&path, text).with_context(|| format!("write {}", path.display()))
}

/// The loaded parts of a program of 64 bits whose addresses are fixed.
fn segments(program: &Path) -> anyhow::Result<Vec<Segment>> {
    let bytes = std::fs::read(program).with_context(|| format!("read {}", program.display()))?;
    let number = |at: usize, length: usize| -> anyhow::Result<u64> {
        let field = bytes.get(at..at + length).context("the program's headers are cut short")?;
        Ok(field.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte)))
    };
    let first = usize::try_from(number(32, 8)?)?;
    let (size, count) = (usize::try_from(number(54, 2)?)?, usize::try_from(number(56, 2)?)?);
    let mut segments = Vec::new();
    for at in (0..count).map(|index| first + index * size) {
        const LOAD: u64 = 1;
        if number(at, 4)? == LOAD {
            segments.push(Segment {
                offset: number(at + 8, 8)?,
                address: number(at + 16, 8)?,
                bytes: number(at + 32, 8)?,
            });
        }
    }
    Ok(segments)
}
