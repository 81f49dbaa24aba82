//! Names with a special meaning for something that processes them: mount options, shells,
//! terminals, lists.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;

use crate::harness::World;
use crate::host;

/// Names of the project's own directory. The overlay's options use `:` and `,` as separators.
const PROJECT_NAMES: [&[u8]; 14] = [
    b"a..b",
    b"..a",
    b"with:colon",
    b"with,comma",
    b"x,upperdir=y",
    b"x:y::z",
    b"with space",
    b"with\nnewline",
    b"with\\backslash",
    b"with\"quote'",
    b"-leading",
    b"percent%41$(id)`id`",
    b"caf\xc3\xa9",
    b"not-utf8-\xff\xfe",
];

fn odd_project_names(world: &World) {
    for name in PROJECT_NAMES {
        let world = World::with_project(world.identity, OsStr::from_bytes(name));
        let outcome = world.run(&["--review"], &["sh", "-c", "cat a.txt; echo new > n; rm -r src"]);
        assert_eq!(
            (outcome.code(), outcome.stdout.as_str()),
            (0, "alpha\n"),
            "{name:?}: {outcome}"
        );
        assert!(world.has("src") && !world.has("n"), "{name:?}");
        world.stockade(&["apply", "latest"]).finish().succeeds();
        assert!(!world.has("src") && world.has("n"), "{name:?}");
        assert_eq!(world.read("n"), "new\n");
    }
}

/// The deepest directory that a path can name, and a deeper one.
fn long_project_path(world: &World) {
    let mut path = world.project.clone();
    while path.as_os_str().len() < 3600 {
        path.push("d".repeat(200));
        fs::create_dir(&path).unwrap();
        world.chown(&path);
    }
    fs::create_dir(path.join(".git")).unwrap();
    world.chown(&path.join(".git"));
    let outcome = world
        .stockade(&["run", "--discard", "--", "sh", "-c", "echo fine > made; cat made"])
        .current_dir(&path)
        .finish();
    assert!(outcome.stdout == "fine\n" || outcome.code() == 125, "{outcome}");
    assert!(!path.join("made").exists());
}

/// Users also type ids of bundles: an id must not be a path.
fn bundle_ids_are_no_paths(world: &World) {
    world.plant(&world.data().join("manifest.json"), "{}");
    let outside = host::Tree::of(&world.outside());
    let own = world.outside().display().to_string();
    let up = "../".repeat(4);
    for id in ["..", ".", "../../etc", "/etc", "a/b", "", "*", "latest/..", &up, &own, "\n", "-x"] {
        for command in ["diff", "apply", "reject"] {
            let outcome = world.stockade(&[command, "--", id]).finish();
            assert!(matches!(outcome.code(), 1 | 2), "{command} {id:?}: {outcome}");
        }
    }
    outside.assert_same(&host::Tree::of(&world.outside()), "what is outside");
}

/// Names with control characters must not reach the reviewer's terminal.
fn names_cannot_write_to_the_terminal(world: &World) {
    let script = "printf x > \"$(printf 'a\\033]0;owned\\007b')\"; \
                  printf x > \"$(printf 'c\\nd')\"; printf x > \"$(printf 'e\\rf')\"; \
                  printf x > \"$(printf 'g\\302\\233h')\"; \
                  ln -s \"$(printf 'to\\033[2J')\" link";
    world.review(script);
    for arguments in [
        &["bundles"][..],
        &["bundles", "--json"],
        &["diff", "latest", "--stat"],
        &["diff", "latest", "--json"],
    ] {
        let outcome = world.stockade(arguments).finish();
        outcome.succeeds();
        // JSON is for programs: it only leaves control characters above 0x7e unescaped.
        let is_json = arguments.contains(&"--json");
        let controls: Vec<_> = outcome
            .stdout
            .chars()
            .chain(outcome.stderr.chars())
            .filter(|c| c.is_control() && !matches!(c, '\n' | '\t'))
            .filter(|c| !is_json || *c < ' ')
            .collect();
        assert!(controls.is_empty(), "{arguments:?} prints {controls:?}: {outcome}");
    }
    let diff = world.stockade(&["diff", "latest"]).finish();
    for line in diff.stdout.lines().filter(|line| !line.starts_with(['+', '-', ' '])) {
        assert!(!line.contains('\u{1b}'), "{line:?}");
    }
    assert!(diff.stdout.lines().all(|line| !line.starts_with("+++") || !line.contains('\u{1b}')));
}

/// The name of the project is also untrusted: it may come from an archive.
fn project_name_cannot_write_to_the_terminal(world: &World) {
    let name = OsStr::from_bytes(b"p\x1b]0;owned\x07\x1b[2J");
    let world = World::with_project(world.identity, name);
    let run = world.review("echo x > new; rm -r src");
    for outcome in [
        run,
        world.stockade(&["bundles"]).finish(),
        world.stockade(&["diff", "latest"]).finish(),
        world.stockade(&["apply", "latest", "no-such-path"]).finish(),
        world.stockade(&["apply", "latest"]).finish(),
        world.stockade(&["doctor"]).finish(),
    ] {
        let text = format!("{}{}", outcome.stdout, outcome.stderr);
        assert!(!text.contains(['\u{1b}', '\u{7}']), "{outcome:?}");
    }
}

/// Directories that cannot be a project, because they would contain everything.
fn root_and_home_are_refused(world: &World) {
    let run = ["run", "--discard", "--", "true"];
    world.stockade(&run).current_dir("/".as_ref()).finish().ends_with(125);
    world.stockade(&run).current_dir(&world.home()).finish().ends_with(125);
    let data = world.data();
    world.stockade(&run).current_dir(&data).finish().is_refused();
    // A repository in the home directory would make the home the project: it is refused, too.
    fs::create_dir(world.home().join(".git")).unwrap();
    fs::create_dir(world.home().join("sub")).unwrap();
    world.chown(&world.home().join(".git"));
    world.chown(&world.home().join("sub"));
    world.stockade(&run).current_dir(&world.home().join("sub")).finish().ends_with(125);
    // The home under another name.
    std::os::unix::fs::symlink(world.home(), world.path("home-link")).unwrap();
    world.stockade(&run).current_dir(&world.path("home-link")).finish().ends_with(125);
    for directory in ["/proc", "/sys", "/proc/self"] {
        world.stockade(&run).current_dir(directory.as_ref()).finish().is_refused();
    }
}

/// The home is the one of the account, whatever the environment contains.
fn home_is_not_what_the_environment_says(world: &World) {
    let accounts = fs::read_to_string("/etc/passwd").unwrap();
    let home = accounts.lines().find_map(|line| {
        let fields: Vec<_> = line.split(':').collect();
        (fields.get(2) == Some(&world.identity.uid().to_string().as_str())).then(|| fields[5])
    });
    let Some(home) = home.map(std::path::Path::new).filter(|home| home.is_dir()) else {
        crate::harness::skip("home_is_not_what_the_environment_says", "the account has no home");
        return;
    };
    let run = ["run", "--discard", "--", "true"];
    for value in ["", "/nonexistent", "/tmp", "relative"] {
        let outcome =
            world.stockade(&run).env("HOME", value).current_dir(home).deadline(20).finish();
        outcome.ends_with(125);
    }
}

as_root_and_as_user![
    odd_project_names,
    long_project_path,
    bundle_ids_are_no_paths,
    names_cannot_write_to_the_terminal,
    root_and_home_are_refused,
    home_is_not_what_the_environment_says,
    project_name_cannot_write_to_the_terminal,
];
