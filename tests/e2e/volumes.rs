//! Volumes and caches: what is kept between sandboxes, who sees it, and what a hostile sandbox can do
//! with it.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

use crate::call::Outcome;
use crate::harness::World;
use crate::host::Tree;

as_root_and_as_user! {
    a_volume_is_kept_between_runs_and_sandboxes,
    a_read_only_volume_stays,
    a_part_of_a_volume_cannot_lead_out,
    a_link_exchanged_while_another_starts_does_not_win,
    a_volume_in_use_is_not_removed_and_its_users_are_named,
    volumes_are_listed_inspected_and_pruned,
    the_forms_of_docker_are_accepted_or_refused_by_name,
    special_files_in_a_volume_harm_nothing,
    what_a_crash_has_left_is_removed,
    a_cache_is_kept_per_project,
    a_cache_is_at_the_tools_own_place_too,
    npm_finds_what_an_earlier_run_has_downloaded,
    pip_finds_what_an_earlier_run_has_built,
}

/// Each cache, where it is, and where it is below the home directory.
const PLACES: [(&str, &str, &str); 21] = [
    ("npm", "npm", ".npm"),
    ("yarn", "yarn", ".cache/yarn"),
    ("yarn", "yarn", ".yarn/berry/cache"),
    ("pnpm", "pnpm/store", ".local/share/pnpm/store"),
    ("pnpm", "pnpm/metadata", ".cache/pnpm"),
    ("bun", "bun", ".bun/install/cache"),
    ("deno", "deno", ".cache/deno"),
    ("pip", "pip", ".cache/pip"),
    ("uv", "uv", ".cache/uv"),
    ("cargo", "cargo/registry", ".cargo/registry"),
    ("cargo", "cargo/git", ".cargo/git"),
    ("sccache", "sccache", ".cache/sccache"),
    ("go", "go/mod", "go/pkg/mod"),
    ("go", "go/build", ".cache/go-build"),
    ("maven", "maven", ".m2/repository"),
    ("gradle", "gradle/caches", ".gradle/caches"),
    ("gradle", "gradle/wrapper", ".gradle/wrapper"),
    ("composer", "composer", ".cache/composer"),
    ("composer", "composer", ".composer/cache"),
    ("nuget", "nuget/packages", ".nuget/packages"),
    ("nuget", "nuget/http", ".local/share/NuGet/http-cache"),
];

fn call(world: &World, words: &[&str]) -> Outcome {
    world.stockade(words).finish()
}

fn sh(world: &World, flags: &[&str], script: &str) -> Outcome {
    world.run(&[&["--discard"], flags].concat(), &["sh", "-c", script])
}

/// Where the content of a volume is on the host.
fn content(world: &World, name: &str) -> PathBuf {
    let shown = call(world, &["volume", "inspect", name]);
    PathBuf::from(shown.succeeds().json()[0]["mountpoint"].as_str().unwrap())
}

fn refused(outcome: &Outcome, part: &str) {
    assert!(!outcome.status.success() && outcome.stderr.contains(part), "not {part:?}: {outcome}");
}

fn a_volume_is_kept_between_runs_and_sandboxes(world: &World) {
    let volume = ["-v", "data:/data"];
    sh(world, &volume, "umask 022; mkdir /data/a; echo one > /data/a/file").succeeds();
    let seen = sh(world, &volume, "cat /data/a/file; stat -c %u:%g:%a /data/a/file");
    let id = call(world, &["create", "-v", "data:/elsewhere"]);
    let id = id.succeeds().stdout.trim().to_owned();
    let script = "cat /elsewhere/a/file; stat -c %u:%g:%a /elsewhere/a/file";
    let exec = |script: &str| call(world, &["exec", &id, "--", "sh", "-c", script]);
    assert_eq!(exec(script).succeeds().stdout, seen.succeeds().stdout);
    // Both at the same time.
    exec("echo two > /elsewhere/two").succeeds();
    assert_eq!(sh(world, &volume, "cat /data/two").succeeds().stdout, "two\n");
    // A stopped sandbox that is started again has it again, after the server has ended too.
    call(world, &["stop", &id]).succeeds();
    call(world, &["start", &id]).succeeds();
    assert_eq!(exec("cat /elsewhere/two").succeeds().stdout, "two\n");
    call(world, &["kill", &id]).succeeds();
    assert_eq!(sh(world, &volume, "cat /data/two").succeeds().stdout, "two\n");
    // It is no part of the changes to the project.
    let run = world.run(&["--json", "-v", "data:/data"], &["sh", "-c", "echo x > /data/x"]);
    assert!(run.succeeds().json()["bundle"].is_null(), "{run}");
}

fn a_read_only_volume_stays(world: &World) {
    sh(world, &["-v", "data:/given"], "echo untouched > /given/file").succeeds();
    let before = Tree::of(&content(world, "data"));
    world.attack_with(&["-v", "data:/given:ro"], &["make-writable", "/given"]).is_blocked();
    let write = "echo changed > /given/file; echo new > /given/new; rm -f /given/file; \
                 mv /given/file /given/moved; chmod 777 /given/file; ln /given/file /given/l; \
                 mkfifo /given/p; cat /given/file";
    let outcome = sh(world, &["-v", "data:/given:ro"], write);
    assert_eq!(outcome.stdout, "untouched\n", "{outcome}");
    let id = call(world, &["create", "-v", "data:/given:ro"]).succeeds().stdout.trim().to_owned();
    let outcome = call(world, &["exec", &id, "--", "sh", "-c", write]);
    assert_eq!(outcome.stdout, "untouched\n", "{outcome}");
    // The tools that read and write files obey too.
    let copied = call(world, &["cp", "a.txt", &format!("{id}:/given/new")]);
    assert!(!copied.status.success(), "{copied}");
    let removed = call(world, &["rm", &format!("{id}:/given/file")]);
    assert!(!removed.status.success(), "{removed}");
    before.assert_same(&Tree::of(&content(world, "data")), "the read-only volume");
}

fn part(path: &str) -> String {
    format!("type=volume,source=data,target=/part,volume-subpath={path}")
}

fn a_part_of_a_volume_cannot_lead_out(world: &World) {
    let outside = world.outside();
    fs::write(outside.join("secret"), "secret").unwrap();
    let links = format!(
        "mkdir -p /data/real/below; echo inside > /data/real/file; ln -s {0} /data/link; \
         ln -s / /data/root; ln -s ../../.. /data/real/up; ln -s real /data/near",
        outside.display()
    );
    sh(world, &["-v", "data:/data"], &links).succeeds();
    let shown = sh(world, &["--mount", &part("real")], "cat /part/file; ls /part");
    assert!(shown.succeeds().stdout.starts_with("inside\n"), "{shown}");
    assert_eq!(sh(world, &["--mount", &part("real/file")], "cat /part").stdout, "inside\n");
    for bad in ["link", "link/secret", "root", "root/etc", "real/up", "near", "near/file"] {
        refused(&sh(world, &["--mount", &part(bad)], "ls -R /part"), "a link leads to it");
    }
    for bad in ["..", "real/../..", "/etc", "./.."] {
        refused(&sh(world, &["--mount", &part(bad)], "ls -R /part"), "without `..`");
    }
    refused(&sh(world, &["--mount", &part("none")], "true"), "it does not exist");
    let made = call(world, &["create", "--mount", &part("link")]);
    refused(&made, "a link leads to it");
}

fn a_link_exchanged_while_another_starts_does_not_win(world: &World) {
    let outside = world.outside();
    fs::write(outside.join("secret"), "of the host").unwrap();
    let id = call(world, &["create", "-v", "data:/data"]).succeeds().stdout.trim().to_owned();
    let swap = format!(
        "mkdir /data/sub /data/real; echo real > /data/sub/secret; ln -s {} /data/link; \
         (while :; do mv -T /data/sub /data/real/x; mv -T /data/link /data/sub; \
         mv -T /data/sub /data/link; mv -T /data/real/x /data/sub; done) 2>/dev/null &",
        outside.display()
    );
    call(world, &["exec", "-d", &id, "--", "sh", "-c", &format!("{swap} wait")]).succeeds();
    for _ in 0..20 {
        let seen = sh(world, &["--mount", &part("sub")], "cat /part/secret");
        assert!(!seen.stdout.contains("of the host"), "{seen}");
    }
    call(world, &["kill", &id]).succeeds();
}

fn a_volume_in_use_is_not_removed_and_its_users_are_named(world: &World) {
    let id = call(world, &["create", "--id", "user", "-v", "data:/data"]);
    assert_eq!(id.succeeds().stdout, "user\n");
    let in_use = call(world, &["volume", "rm", "data"]);
    refused(&in_use, "sandbox user");
    assert!(in_use.stderr.contains("[BUSY]"), "{in_use}");
    // A stopped sandbox needs it when it is started.
    call(world, &["stop", "user"]).succeeds();
    refused(&call(world, &["volume", "rm", "data"]), "sandbox user");
    let pruned = call(world, &["volume", "prune", "--all", "--force"]);
    assert_eq!(pruned.succeeds().stdout, "");
    call(world, &["kill", "user"]).succeeds();
    let flags = ["run", "--discard", "-v", "data:/data", "--", "./probe", "linger"];
    let (first, second) = crate::host::token();
    let word = format!("{first}{second}");
    let running = world.stockade(&[&flags[..], &[&word]].concat()).start();
    crate::host::wait_for_process(&word);
    refused(&call(world, &["volume", "rm", "data"]), "run ");
    drop(running);
    crate::host::assert_none_survives(&word);
    let path = content(world, "data");
    assert_eq!(call(world, &["volume", "rm", "data"]).succeeds().stdout, "data\n");
    assert!(!path.exists());
    refused(&call(world, &["volume", "rm", "data"]), "[NOT_FOUND]");
    call(world, &["volume", "rm", "--force", "data"]).succeeds();
}

fn volumes_are_listed_inspected_and_pruned(world: &World) {
    assert_eq!(call(world, &["volume", "create", "b", "--label", "team=x"]).stdout, "b\n");
    call(world, &["volume", "create", "a"]).succeeds();
    call(world, &["volume", "create", "a"]).succeeds();
    let generated = call(world, &["volume", "create"]).succeeds().stdout.trim().to_owned();
    sh(world, &["-v", "b:/b"], "head -c 300000 /dev/zero > /b/big").succeeds();
    let names = call(world, &["volume", "ls", "-q"]);
    assert!(names.stdout.contains("a\n") && names.stdout.contains(&generated), "{names}");
    let json = call(world, &["volume", "ls", "--json", "--label", "team=x"]).json();
    assert_eq!(json["volumes"].as_array().unwrap().len(), 1);
    assert!(json["volumes"][0]["sizeBytes"].as_u64().unwrap() >= 300_000, "{json}");
    assert!(call(world, &["df"]).stdout.contains("volumes"));
    let missing = call(world, &["volume", "inspect", "a", "none"]);
    refused(&missing, "[NOT_FOUND]");
    refused(&call(world, &["volume", "create", "../a"]), "[INVALID_INPUT]");
    refused(&call(world, &["volume", "prune"]), "stockade volume prune --force");
    let pruned = call(world, &["volume", "prune", "--force"]);
    assert_eq!(pruned.succeeds().stdout, format!("{generated}\n"));
    let pruned = call(world, &["volume", "prune", "--all", "--force", "--json"]).json();
    assert_eq!(pruned["removed"], serde_json::json!(["a", "b"]));
    assert_eq!(call(world, &["volume", "ls", "-q"]).stdout, "");
}

fn the_forms_of_docker_are_accepted_or_refused_by_name(world: &World) {
    let outside = world.outside();
    fs::write(outside.join("file"), "of the host").unwrap();
    let host = format!("{}:/m:ro", outside.display());
    assert_eq!(sh(world, &["-v", &host], "cat /m/file").succeeds().stdout, "of the host");
    // A directory of the same name is not meant.
    let seen = sh(world, &["-v", "src:/m"], "ls /m");
    assert_eq!(seen.succeeds().stdout, "");
    assert!(seen.stderr.contains("./src"), "{seen}");
    assert!(sh(world, &["-v", "./src:/m:ro"], "ls /m").stdout.contains("main.rs"));
    for (form, part) in [
        ("/data", "--volume NAME:/data"),
        ("data:/m:z", "is not an option"),
        ("data:/", "root"),
        ("data:/proc/x", "reserved"),
        ("da ta:/m", "not a valid name"),
    ] {
        refused(&sh(world, &["-v", form], "true"), part);
    }
    refused(&sh(world, &["-v", "a:/m", "-v", "b:/m"], "true"), "two mounts are at /m");
    let data = format!("{}/volumes:/m", world.data().display());
    refused(&sh(world, &["-v", &data], "true"), "[PATH_REFUSED]");
}

fn special_files_in_a_volume_harm_nothing(world: &World) {
    let make = "cd /data; mkfifo pipe; ln -s /etc/passwd link; mknod device c 1 1 2>/dev/null; \
                cp /usr/bin/id tool; chmod 4755 tool 2>/dev/null; mkdir -p deep/locked; \
                echo x > deep/locked/file; chmod 0 deep/locked; true";
    sh(world, &["-v", "data:/data"], make).succeeds();
    for (path, entry) in Tree::of(&content(world, "data")).entries {
        assert_eq!(entry.mode & 0o6000, 0, "{} has set-id bits", path.display());
    }
    let table = sh(world, &["-v", "data:/data"], "grep ' /data ' /proc/self/mountinfo");
    assert!(table.stdout.contains("nosuid") && table.stdout.contains("nodev"), "{table}");
    // Nothing that looks at it waits for the pipe or follows the link.
    call(world, &["volume", "ls"]).succeeds();
    call(world, &["df"]).succeeds();
    call(world, &["volume", "rm", "data"]).succeeds();
}

fn what_a_crash_has_left_is_removed(world: &World) {
    call(world, &["volume", "create", "a"]).succeeds();
    let owner = content(world, "a").parent().unwrap().parent().unwrap().to_owned();
    for left in [".new-1-0/data", ".removed-1-0/data"] {
        world.plant(&owner.join(left).join("file"), "x");
    }
    symlink("/etc", owner.join("link")).unwrap();
    assert_eq!(call(world, &["volume", "ls", "-q"]).stdout, "a\n");
    call(world, &["volume", "create", "b"]).succeeds();
    assert!(!owner.join(".new-1-0").exists() && !owner.join(".removed-1-0").exists());
}

fn a_cache_is_kept_per_project(world: &World) {
    let script = "echo kept > $PIP_CACHE_DIR/file; echo kept > $CARGO_HOME/registry/file; \
                  echo token > $CARGO_HOME/credentials.toml; echo x > $CARGO_HOME/config.toml";
    let flags = ["--cache", "pip", "--cache", "cargo", "--cache", "mine:/mine"];
    sh(world, &flags, script).succeeds();
    let seen = "cat $PIP_CACHE_DIR/file $CARGO_HOME/registry/file; ls $CARGO_HOME";
    let outcome = sh(world, &flags, seen);
    assert_eq!(outcome.succeeds().stdout, "kept\nkept\ngit\nregistry\n", "{outcome}");
    // A sandbox of the project has the same one.
    let made = call(world, &["create", "--workspace", ".", "--cache", "pip"]);
    let id = made.succeeds().stdout.trim().to_owned();
    let outcome = call(world, &["exec", &id, "--", "sh", "-c", "cat $PIP_CACHE_DIR/file"]);
    assert_eq!(outcome.succeeds().stdout, "kept\n", "{outcome}");
    refused(&call(world, &["cache", "rm", "pip"]), &format!("sandbox {id}"));
    call(world, &["kill", &id]).succeeds();
    let other = world.path("other");
    world.plant(&other.join("file"), "x");
    let elsewhere = ["run", "--discard", "--cache", "pip", "--", "sh", "-c", "ls $PIP_CACHE_DIR"];
    let outcome = world.stockade(&elsewhere).current_dir(&other).finish();
    assert_eq!(outcome.succeeds().stdout, "", "{outcome}");
    let listed = call(world, &["cache", "ls"]);
    assert!(listed.stdout.contains("cargo") && listed.stdout.contains("mine"), "{listed}");
    assert_eq!(call(world, &["volume", "ls", "-q"]).stdout, "");
    let cached = call(world, &["cache", "rm", "pip"]);
    assert!(cached.succeeds().stdout.starts_with("cache-pip-"), "{cached}");
    refused(&sh(world, &["--cache", "nothing"], "true"), "--cache nothing:/path");
    assert_eq!(
        sh(world, &["--cache", "npm", "-e", "npm_config_cache=/x"], "echo $npm_config_cache")
            .stdout,
        "/x\n"
    );
    let pruned = call(world, &["cache", "prune", "--all", "--force"]);
    assert!(pruned.succeeds().stdout.contains("cache-mine-"), "{pruned}");
    assert_eq!(call(world, &["cache", "ls", "--all", "-q"]).stdout, "");
}

/// A tool that ignores the variables, or a second tool, uses the same cache.
fn a_cache_is_at_the_tools_own_place_too(world: &World) {
    let mut tools: Vec<_> = PLACES.iter().map(|(tool, ..)| *tool).collect();
    tools.dedup();
    let flags: Vec<_> = tools.iter().flat_map(|tool| ["--cache", tool]).collect();
    let (mut script, mut seen) = (String::new(), String::new());
    for (number, (_, inside, place)) in PLACES.iter().enumerate() {
        script += &format!("echo {number} > ~/{place}/k{number} || exit 1\n");
        seen += &format!(
            "test \"$(cat ~/{place}/k{number} /var/cache/stockade/{inside}/k{number} | uniq)\" = \
             {number} || echo {place}\n"
        );
    }
    script += "echo lock > ~/.cargo/.package-cache || exit 1\n";
    seen += "grep -q lock $CARGO_HOME/.package-cache || echo lock\n";
    // What is around the caches is the user's own, and is not kept.
    script +=
        "echo x > ~/.cargo/config.toml && mkdir ~/.cache/other && echo x > ~/.m2/settings.xml";
    seen += "ls ~/.cargo/config.toml ~/.cache/other ~/.m2/settings.xml 2>/dev/null; true";
    sh(world, &flags, &script).succeeds();
    assert_eq!(sh(world, &flags, &seen).succeeds().stdout, "");
    // A sandbox of the project has them too, also after its processes have ended once.
    let mut create = vec!["create", "--workspace", "."];
    create.extend(&flags);
    let id = call(world, &create).succeeds().stdout.trim().to_owned();
    let exec = |script: &str| call(world, &["exec", &id, "--", "sh", "-c", script]);
    assert_eq!(exec(&seen).succeeds().stdout, "");
    exec("mv ~/.cache ~/moved && echo file > ~/.cache && echo x > ~/.cargo/config.toml").succeeds();
    call(world, &["stop", &id]).succeeds();
    call(world, &["start", &id]).succeeds();
    let outcome =
        exec("cat ~/.cache ~/.cargo/config.toml; ls ~/moved/pip; ls $PIP_CACHE_DIR ~/.npm");
    let outcome = outcome.succeeds();
    assert!(outcome.stdout.starts_with("file\nx\n/home/user/.npm:\nk0\n"), "{outcome}");
    assert!(outcome.stdout.contains("/var/cache/stockade/pip:\nk7\n"), "{outcome}");
    call(world, &["kill", "--discard", &id]).succeeds();
    // What the request itself mounts is not covered.
    let flags = ["--cache", "npm", "--cache", "pip", "-v", "data:/home/user/.cache"];
    let outcome = sh(world, &flags, "echo own > ~/.cache/file; ls -A ~/.cache; ls ~/.npm");
    assert_eq!(outcome.succeeds().stdout, "file\nk0\n", "{outcome}");
    let flags = ["--cache", "npm", "-v", "data:/home/user/.npm/_logs"];
    let outcome = sh(world, &flags, "cat ~/.npm/_logs/file; ls -A ~/.npm; ls $npm_config_cache");
    assert_eq!(outcome.succeeds().stdout, "own\n_logs\nk0\n", "{outcome}");
    let flags = ["--cache", "npm", "-e", "HOME=/usr/share"];
    let outcome = sh(world, &flags, "ls ~/.npm; ls $npm_config_cache");
    assert_eq!(outcome.succeeds().stdout, "k0\n", "{outcome}");
}

/// The second run has no registry: the first one has left everything in the cache.
fn npm_finds_what_an_earlier_run_has_downloaded(world: &World) {
    if !std::path::Path::new("/usr/bin/npm").exists() {
        stockade_test_support::skipped("npm is not installed");
        return;
    }
    world.write(
        "registry.js",
        "const http = require('http'), fs = require('fs'), crypto = require('crypto');\n\
         const file = fs.readFileSync('/tmp/dep-1.0.0.tgz');\n\
         const integrity = 'sha512-' + crypto.createHash('sha512').update(file).digest('base64');\n\
         const dist = { tarball: 'http://127.0.0.1:4873/dep.tgz', integrity };\n\
         const body = JSON.stringify({ name: 'dep', 'dist-tags': { latest: '1.0.0' },\n\
           versions: { '1.0.0': { name: 'dep', version: '1.0.0', dist } } });\n\
         http.createServer((request, answer) => {\n\
           answer.end(request.url.endsWith('.tgz') ? file : body);\n\
         }).listen(4873, '127.0.0.1', () => fs.writeFileSync('/tmp/ready', ''));\n",
    );
    let first = "mkdir /tmp/dep && cd /tmp/dep && echo '{\"name\":\"dep\",\"version\":\"1.0.0\"}' > \
         package.json && npm pack --silent --pack-destination /tmp >/dev/null && cd - >/dev/null\n\
         node registry.js & server=$!\n\
         while ! [ -e /tmp/ready ]; do sleep 0.1; done\n\
         mkdir /tmp/app && cd /tmp/app && npm install --no-audit --no-fund --registry \
         http://127.0.0.1:4873 dep && ls node_modules; kill $server";
    let outcome = sh(world, &["--cache", "npm", "--timeout", "100s"], first);
    assert!(outcome.succeeds().stdout.ends_with("dep\n"), "{outcome}");
    let second = "mkdir /tmp/app && cd /tmp/app && npm install --offline --no-audit --no-fund --registry \
         http://127.0.0.1:4873 dep && ls node_modules";
    let outcome = sh(world, &["--cache", "npm", "--timeout", "100s"], second);
    assert!(outcome.succeeds().stdout.ends_with("dep\n"), "{outcome}");
    let without = sh(world, &["--timeout", "100s"], second);
    assert!(!without.status.success(), "{without}");
}

fn pip_finds_what_an_earlier_run_has_built(world: &World) {
    if !std::path::Path::new("/usr/lib/python3/dist-packages/pip").exists() {
        stockade_test_support::skipped("the system has no pip");
        return;
    }
    world.write("index.py", include_str!("volumes/package_index.py"));
    let script = "python3 index.py & server=$!\n\
         while ! [ -e /tmp/ready ]; do sleep 0.1; done\n\
         python3 -m pip install --disable-pip-version-check --target /tmp/target --index-url \
         http://127.0.0.1:8099/simple dep && ls /tmp/target; kill $server";
    let install = || sh(world, &["--cache", "pip", "--timeout", "100s"], script);
    let first = install();
    assert!(first.succeeds().stdout.contains("dep.py\n"), "{first}");
    assert!(!first.stdout.contains("Using cached"), "{first}");
    let second = install();
    assert!(second.succeeds().stdout.contains("Using cached dep-1.0"), "{second}");
}
