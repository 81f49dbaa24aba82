//! What the review marks and shows: files that tools of the host execute by themselves, and contents
//! of every size and encoding.

use std::fmt::Write as _;
use std::fs;

use serde_json::Value;

use crate::harness::World;

/// The entries of the newest bundle.
fn entries(world: &World) -> Vec<Value> {
    let json = world.stockade(&["diff", "latest", "--json"]).finish().json();
    json["entries"].as_array().unwrap().clone()
}

/// The changed paths, each with the tools that execute it.
fn marks(world: &World) -> Vec<(String, Option<String>)> {
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let entry = |entry: &Value| (text(&entry["path"]).unwrap(), text(&entry["executedBy"]));
    entries(world).iter().map(entry).collect()
}

/// Changes these files inside, and asserts that each is marked, or that none is.
fn assert_marked(world: &World, names: &[&str], is_marked: bool) {
    let mut script = String::new();
    for name in names {
        writeln!(script, "mkdir -p \"$(dirname '{name}')\"; echo changed >> '{name}'").unwrap();
    }
    world.review(&script);
    let marks = marks(world);
    for name in names {
        let (_, by) = marks.iter().find(|(path, _)| path == name).unwrap();
        assert_eq!(by.is_some(), is_marked, "{name}: {by:?}");
    }
    if is_marked {
        let applied = world.stockade(&["apply", "latest"]).finish();
        assert_eq!(applied.code(), 1, "{applied}");
        assert!(applied.stderr.contains("EXECUTED_FILE"), "{applied}");
    }
    world.stockade(&["reject", "latest", "--yes"]).finish().succeeds();
}

/// What git executes because the project's own configuration names it.
fn git_configuration(world: &World) {
    let root = world.project.to_str().unwrap().to_owned();
    for (key, value, path) in [
        ("core.hooksPath", "tools/git".to_owned(), "tools/git/pre-commit"),
        ("core.fsmonitor", "./tools/fsm.sh".to_owned(), "tools/fsm.sh"),
        ("core.hooksPath", format!("{root}/tools/git"), "tools/git/new/post-checkout"),
        ("filter.x.clean", "python3 tools/clean.py %f".to_owned(), "tools/clean.py"),
        ("diff.x.textconv", format!("'{root}/tools/text'"), "tools/text"),
        ("alias.st", "!tools/st".to_owned(), "tools/st"),
        ("include.path", "../tools/more".to_owned(), "tools/more"),
    ] {
        world.git(&["config", key, &value]);
        assert_marked(world, &[path], true);
        world.git(&["config", "--unset", key]);
        assert_marked(world, &[path], false);
    }
}

/// Names that tools know, and new names of the same families.
fn names_of_tools(world: &World) {
    assert_marked(
        world,
        &[
            ".envrc.local",
            ".github/hooks/start.json",
            ".qwen/settings.json",
            ".pnp.cjs",
            ".luarc.json",
            ".readthedocs.yaml",
            "AGENTS.md",
            "deep/in/CLAUDE.md",
            "GEMINI.md",
            ".newagentrules",
            ".newagent/mcp.json",
            ".new-ci.yml",
            "conftest.py",
            "binding.gyp",
            "build.rs",
        ],
        true,
    );
    assert_marked(
        world,
        &["README.md", "src/main.rs", "docs/guide.md", "Makefile", "a.json"],
        false,
    );
}

/// A script of an installation is marked by the content of the manifest.
fn scripts_of_an_installation(world: &World) {
    world.write("package.json", "{\"name\": \"x\", \"version\": \"1\"}\n");
    world.review("echo '{\"name\": \"x\", \"version\": \"2\"}' > package.json");
    assert_eq!(marks(world), [("package.json".to_owned(), None)]);
    world.review(
        "echo '{\"name\": \"x\", \"scripts\": {\"postinstall\": \"sh x\"}}' > package.json",
    );
    assert_eq!(marks(world), [("package.json".to_owned(), Some("build".to_owned()))]);
}

/// A change of one line in a text of any size is shown.
fn large_texts(world: &World) {
    let mut text = String::new();
    for n in 0..60_000 {
        writeln!(text, "// {} {n}", "x".repeat(90)).unwrap();
    }
    world.write("big.js", &text);
    world.review("echo 'EVIL()' >> big.js");
    let diff = world.stockade(&["diff", "latest"]).finish();
    assert!(diff.stdout.contains("\n+EVIL()\n"), "{}", &diff.stdout[..diff.stdout.len().min(2000)]);
    assert!(diff.stdout.len() < 2000);
    world.stockade(&["apply", "latest"]).finish().succeeds();
    assert!(world.read("big.js").ends_with("EVIL()\n"));
}

/// Bytes and characters that hide a text are made visible.
fn odd_texts(world: &World) {
    for (script, shown) in [
        (r"printf '/*\0*/EVIL()\n' > x", "/*^@*/EVIL()"),
        (r"printf 'EVIL()\r// harmless\n' > x", "EVIL()^M// harmless"),
        (r"printf 'a\342\200\256EVIL\n' > x", "a<U+202E>EVIL"),
        (r"printf 'a\342\200\213EVIL\n' > x", "a<U+200B>EVIL"),
        (r"printf 'caf\351 EVIL' > x", "caf<E9> EVIL"),
        (r"printf '\377\376E\0V\0I\0L\0' > x", "EVIL"),
        (r"printf '\0E\0V\0I\0L\0\n' > x", "EVIL"),
    ] {
        world.review(script);
        let diff = world.stockade(&["diff", "latest"]).finish();
        assert!(diff.stdout.contains(shown), "{script}: {diff}");
        assert_eq!(entries(world)[0]["binary"], false, "{script}");
        world.stockade(&["apply", "latest"]).finish().succeeds();
        fs::remove_file(world.project.join("x")).unwrap();
    }
}

/// What cannot be shown is counted, and has to be accepted.
fn unseen_contents(world: &World) {
    world.review("head -c 100000 /dev/urandom > tool; chmod 755 tool; echo x > seen");
    let diff = world.stockade(&["diff", "latest"]).finish();
    assert!(diff.stdout.contains("100000 bytes, not shown"), "{diff}");
    let stat = world.stockade(&["diff", "latest", "--stat"]).finish();
    assert!(stat.stdout.contains("100000 bytes, not shown"), "{stat}");
    let tool = entries(world).into_iter().find(|entry| entry["path"] == "tool").unwrap();
    assert_eq!(tool["unseen"], 100_000);
    let refused = world.stockade(&["apply", "latest"]).finish();
    assert!(refused.stderr.contains("UNSEEN_CONTENT"), "{refused}");
    assert!(refused.stderr.contains("--allow-unseen"), "{refused}");
    assert!(!world.has("seen"));
    world.stockade(&["apply", "latest", "--allow-unseen"]).finish().succeeds();
    assert!(world.has("tool"));
}

/// No diff shows the contents of ignored paths: `--include-ignored` accepts those, and no others.
fn unseen_contents_of_ignored_paths(world: &World) {
    fs::write(world.project.join(".gitignore"), "product\n").unwrap();
    let program = "head -c 100000 /dev/urandom > product; chmod 755 product";
    world.review(program);
    world.stockade(&["apply", "latest", "--include-ignored"]).finish().succeeds();
    assert!(world.has("product"));
    world.review(&format!("{program}; cp product tool"));
    let refused = world.stockade(&["apply", "latest", "--include-ignored"]).finish();
    assert!(refused.stderr.contains("UNSEEN_CONTENT"), "{refused}");
    assert!(!world.has("tool"));
}

/// No character that a reader cannot see is printed as a part of a name.
fn hidden_characters_in_names(world: &World) {
    world.review(
        r#"touch "$(printf 'a\342\200\256b')" "$(printf 'a\342\200\213b')" "$(printf 'a\357\270\217b')" \
         "$(printf 'a\302\255b')" "$(printf 'a\315\217b')" "$(printf 'a\363\240\201\201b')""#,
    );
    let hidden = |text: &str| text.chars().any(stockade_hidden);
    for words in [
        &["diff", "latest"][..],
        &["diff", "latest", "--stat"],
        &["diff", "latest", "--json"],
        &["bundles"],
        &["bundles", "--json"],
        &["diff", "latest", "a\u{202e}c"],
        &["apply", "latest", "a\u{202e}c", "--json"],
        &["apply", "latest"],
    ] {
        let outcome = world.stockade(words).finish();
        assert!(!hidden(&outcome.stdout) && !hidden(&outcome.stderr), "{words:?}: {outcome}");
    }
}

/// The characters of [`hidden_characters_in_names`].
fn stockade_hidden(c: char) -> bool {
    matches!(c, '\u{ad}' | '\u{34f}' | '\u{200b}' | '\u{202e}' | '\u{fe0f}' | '\u{e0041}')
}

as_root_and_as_user![
    git_configuration,
    names_of_tools,
    scripts_of_an_installation,
    large_texts,
    odd_texts,
    unseen_contents,
    unseen_contents_of_ignored_paths,
    hidden_characters_in_names,
];
