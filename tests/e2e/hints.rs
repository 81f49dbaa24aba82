//! Hints are run as they are printed. Each error is caused in a world in which its hint makes sense; what the
//! hint names must succeed, or fail for the reason that is given here, and never as a command that does not
//! exist or is written wrongly.

use crate::call::Outcome;
use crate::harness::{Identity, World};

/// What the commands of a hint end with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Expected {
    Succeeds,
    /// It needs what a test does not give it, such as a terminal, and reports that with this text.
    Reports(&'static str),
}

/// The hints of a failed call.
fn hints(outcome: &Outcome) -> Vec<&str> {
    outcome.stderr.lines().filter_map(|line| line.trim().strip_prefix("hint: ")).collect()
}

struct Scene<'a> {
    world: &'a World,
    run: usize,
}

impl Scene<'_> {
    fn does(&self, words: &[&str]) {
        self.world.stockade(words).finish().succeeds();
    }

    /// Fails with hints, and does what the first of them says: a command is run, and arguments are added to
    /// the call.
    #[track_caller]
    fn fails(&mut self, words: &[&str], expected: Expected) -> Outcome {
        let failed = self.world.stockade(words).finish();
        assert_ne!(failed.code(), 0, "{failed}");
        let found = hints(&failed);
        let hint = found.first().unwrap_or_else(|| panic!("there is no hint: {failed}"));
        let pasted = match hint.strip_prefix("stockade ") {
            Some(arguments) => arguments.to_owned(),
            None if hint.starts_with("--") => {
                // Before the command of `run` and `exec`.
                let end = words.iter().position(|word| *word == "--").unwrap_or(words.len());
                let (own, command) = words.split_at(end);
                [own, &[*hint], command].concat().join(" ")
            }
            None => panic!("`{hint}` is no command: {failed}"),
        };
        let words: Vec<_> = pasted.split_whitespace().map(|word| word.trim_matches('\'')).collect();
        let done = self.world.stockade(&words).finish();
        let is_written_wrongly = [
            "unexpected argument",
            "unrecognized subcommand",
            "invalid value",
            "required arguments",
        ]
        .iter()
        .any(|text| done.stderr.contains(text));
        assert!(!is_written_wrongly, "`{hint}` cannot be pasted: {done}");
        match expected {
            Expected::Succeeds => drop(done.succeeds()),
            Expected::Reports(text) => assert!(done.stderr.contains(text), "{hint}: {done}"),
        }
        self.run += 1;
        done
    }
}

fn hints_of_bundles_work(world: &World) {
    use Expected::{Reports, Succeeds};
    let mut scene = Scene { world, run: 0 };
    scene.fails(&["diff", "0123456789ab"], Succeeds);
    world.review("echo inside > a.txt");
    scene.fails(&["apply", "latest", "no-such-file"], Succeeds);
    world.write("a.txt", "outside\n");
    // Both sides changed the only line.
    scene.fails(&["apply", "latest"], Reports("BUNDLE_CONFLICT"));
    scene.fails(&["reject", "latest"], Succeeds);
    world.review("echo true > .envrc; echo fine > fine");
    scene.fails(&["apply", "latest"], Succeeds);
    assert!(world.has("fine"));
    world.stockade(&["reject", "--all", "--yes"]).finish();
    world.review("cp /bin/true program");
    scene.fails(&["apply", "latest"], Succeeds);
    let big = ["run", "--max-bundle", "1", "--", "sh", "-c", "echo 12345 > b.txt"];
    scene.fails(&big, Succeeds);
    world.stockade(&["reject", "--all", "--yes"]).finish();
    world.review("echo moved > a.txt");
    let (moved, id) = (world.path("moved"), world_bundle(world));
    std::fs::rename(&world.project, &moved).unwrap();
    let failed = world.stockade(&["apply", &id]).current_dir(&moved).finish();
    assert!(hints(&failed)[0].contains("--project"), "{failed}");
    let words: Vec<_> = hints(&failed)[0].split_whitespace().skip(1).collect();
    world.stockade(&words).current_dir(&moved).finish().succeeds();
    std::fs::rename(&moved, &world.project).unwrap();
    assert!(scene.run >= 7);
}

fn world_bundle(world: &World) -> String {
    world.bundles()[0]["id"].as_str().unwrap().to_owned()
}

fn hints_of_sandboxes_work(world: &World) {
    use Expected::{Reports, Succeeds};
    let mut scene = Scene { world, run: 0 };
    scene.fails(&["show", "nothing"], Succeeds);
    scene.fails(&["restore", "nothing"], Succeeds);
    scene.fails(&["logs", "nothing"], Succeeds);
    scene.fails(&["inspect", "nothing"], Succeeds);
    scene.does(&["create", "--id", "box"]);
    scene.does(&["pause", "box"]);
    scene.fails(&["exec", "box", "--", "true"], Succeeds);
    scene.does(&["exec", "box", "--", "true"]);
    scene.does(&["stop", "box"]);
    scene.fails(&["exec", "box", "--", "true"], Succeeds);
    scene.does(&["exec", "box", "--", "true"]);
    scene.fails(&["allow", "box", "service.example"], Succeeds);
    world.write("file.txt", "x\n");
    scene.fails(&["cp", "one", "two"], Succeeds);
    scene.does(&["kill", "box"]);
    scene.fails(&["exec", "box", "--", "true"], Succeeds);
    let secret = ["run", "--discard", "--secret", "TOKEN@service.test", "--", "true"];
    // The next thing that is missing is the value.
    scene.fails(&secret, Reports("TOKEN has no value"));
    assert!(scene.run >= 10);
}

/// A sandbox of root has users of its own, which an ssh-agent of root refuses with a message of its own.
fn a_socket_of_root_has_a_hint(world: &World) {
    let socket = world.outside().join("agent.1");
    let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    world.chown(&socket);
    let mount = format!("{0}:{0}", socket.display());
    let is_hinted = |flags: &[&str], command: &str| {
        let outcome = world.run(&[&["--discard"], flags].concat(), &[command]);
        hints(&outcome).iter().any(|hint| hint.contains("socat UNIX-LISTEN:"))
    };
    assert_eq!(is_hinted(&["--mount", &mount], "false"), world.identity == Identity::Root);
    assert!(!is_hinted(&["--mount", &mount], "true") && !is_hinted(&[], "false"));
}

as_root_and_as_user![hints_of_bundles_work, hints_of_sandboxes_work, a_socket_of_root_has_a_hint];
