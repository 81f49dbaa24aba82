//! The two programs: what each does without the other, and how they are built.

use std::path::Path;

use crate::harness::{World, copy_program};

/// A copy of `stockade` in a directory where `stockade-server` is missing.
fn alone(world: &World) -> std::path::PathBuf {
    let directory = world.path("alone");
    std::fs::create_dir(&directory).unwrap();
    let program = directory.join("stockade");
    copy_program(&world.binary(), &program);
    program
}

fn a_run_needs_no_server_and_what_needs_one_says_how_to_build_it(world: &World) {
    let program = alone(world);
    let outcome = world.on_host(&program, &["run", "--discard", "--", "echo", "ran"]).finish();
    outcome.succeeds();
    assert_eq!(outcome.stdout, "ran\n", "{outcome}");
    for (words, code) in [
        (&["ls"][..], 125),
        (&["create", "--in-process"], 125),
        (&["snippet", "check", "a.ts"], 125),
        (&["graph", "a.tsx"], 4),
        (&["run", "--discard", "--net", "policy", "--", "true"], 125),
    ] {
        let outcome = world.on_host(&program, words).finish();
        outcome.ends_with(code);
        assert!(outcome.stderr.contains("[UNSUPPORTED]"), "{outcome}");
        assert!(outcome.stderr.contains("cargo build --release -p stockade-host"), "{outcome}");
    }
}

fn a_program_of_another_build_is_refused(world: &World) {
    let server = world.path("bin/stockade-server");
    let data = world.data().display().to_string();
    let refusal = "stockade and stockade-server are from different builds, 0-other and ";
    let refused = world.on_host(&server, &["--build=0-other", "graph", "a.tsx"]).finish();
    refused.ends_with(125);
    assert!(refused.stderr.contains(refusal), "{refused}");
    // The process that started the server reads this.
    let refused = world.on_host(&server, &["__server", "--build=0-other", &data]).finish();
    assert!(refused.stdout.contains(refusal), "{refused}");
    let words = ["__keeper", "--build=0-other", &data, "0"];
    let refused = world.stockade(&words).finish();
    refused.ends_with(1);
    assert!(refused.stderr.contains(refusal), "{refused}");
}

fn a_server_of_another_build_is_refused(world: &World) {
    world.stockade(&["ls"]).finish().succeeds();
    let file = world.data().join("server/build");
    let build = std::fs::read_to_string(&file).unwrap();
    let (_, process) = build.split_once(' ').unwrap();
    std::fs::write(&file, format!("0-other {process}")).unwrap();
    for words in [&["ls"][..], &["bundles"]] {
        let refused = world.stockade(words).finish();
        refused.ends_with(125);
        assert!(refused.stderr.contains("[UNSUPPORTED]"), "{refused}");
        assert!(refused.stderr.contains(&format!("hint: kill {process}")), "{refused}");
    }
    assert!(std::process::Command::new("kill").arg(process).status().unwrap().success());
    crate::servants::wait_until("the server has ended", || {
        crate::servants::servers(&world.data()).is_empty()
    });
    world.stockade(&["ls"]).finish().succeeds();
    assert_ne!(std::fs::read_to_string(&file).unwrap(), build, "another process serves");
}

as_root_and_as_user![
    a_server_of_another_build_is_refused,
    a_run_needs_no_server_and_what_needs_one_says_how_to_build_it,
    a_program_of_another_build_is_refused,
];

/// The linker must produce for both (`elf(5)`): position independent code, relocations that are
/// read-only once the program runs, and no segment that is both writable and executable.
#[test]
fn the_programs_are_hardened() {
    for name in ["stockade", "stockade-server"] {
        let elf = Elf::read(&stockade_test_support::program(name));
        assert_eq!(elf.kind, 3, "{name} is of type DYN");
        let of = |kind| elf.segments.iter().filter(move |segment| segment.kind == kind);
        assert_eq!(of(0x6474_e552).count(), 1, "{name} has a segment GNU_RELRO");
        assert_eq!(of(0x6474_e551).count(), 1, "{name} has a segment GNU_STACK");
        for segment in &elf.segments {
            assert_ne!(segment.flags & 3, 3, "{name}: {segment:?} is writable and executable");
        }
        let dynamic = of(2).next().unwrap();
        let is_bound_now = elf.entries(dynamic).any(|(tag, value)| match tag {
            24 => true,
            30 => value & 8 != 0,
            0x6fff_fffb => value & 1 != 0,
            _ => false,
        });
        assert!(is_bound_now, "{name} resolves all symbols when it starts");
    }
}

/// A little-endian program for a 64-bit machine.
struct Elf {
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
    fn read(path: &Path) -> Self {
        let bytes = std::fs::read(path).unwrap();
        assert_eq!(bytes[..6], *b"\x7fELF\x02\x01");
        let number = |at: usize, size: usize| {
            bytes[at..at + size]
                .iter()
                .rev()
                .fold(0, |sum: u64, byte| (sum << 8) | u64::from(*byte))
        };
        let place = |at, size| usize::try_from(number(at, size)).unwrap();
        let (table, size, count) = (place(32, 8), place(54, 2), place(56, 2));
        let segments = (0..count).map(|index| {
            let at = table + index * size;
            Segment {
                kind: number(at, 4),
                flags: number(at + 4, 4),
                offset: place(at + 8, 8),
                size: place(at + 32, 8),
            }
        });
        let (segments, kind) = (segments.collect(), number(16, 2));
        Self { segments, kind, bytes }
    }

    /// The tags and values of the dynamic section.
    fn entries(&self, dynamic: &Segment) -> impl Iterator<Item = (u64, u64)> {
        let entries = self.bytes[dynamic.offset..][..dynamic.size].chunks_exact(16);
        entries.map(|entry| {
            let number = |half: &[u8]| u64::from_le_bytes(half.try_into().unwrap());
            (number(&entry[..8]), number(&entry[8..]))
        })
    }
}
