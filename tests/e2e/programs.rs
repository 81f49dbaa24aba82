//! The two programs: what each does without the other, and how they are built.

use stockade_test_support::Elf;

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
    crate::daemons::wait_until("the server has ended", || {
        crate::daemons::servers(&world.data()).is_empty()
    });
    world.stockade(&["ls"]).finish().succeeds();
    assert_ne!(std::fs::read_to_string(&file).unwrap(), build, "another process serves");
}

as_root_and_as_user![
    a_server_of_another_build_is_refused,
    a_run_needs_no_server_and_what_needs_one_says_how_to_build_it,
    a_program_of_another_build_is_refused,
];

/// The linker must harden both.
#[test]
fn the_programs_are_hardened() {
    for name in ["stockade", "stockade-server"] {
        let elf = Elf::read(&stockade_test_support::program(name)).unwrap();
        assert_eq!(elf.weaknesses(), Vec::<String>::new(), "{name}");
    }
}
