//! Backups of a data directory, and its records on another database: what is stored comes back, and
//! nothing is replaced, mixed or used half.

mod kills;

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use rustix::process::Signal;
use stockade_test_support::{Postgres, skipped};

use crate::call::Outcome;
use crate::harness::World;
use crate::served::Server;

as_root_and_as_user! {
    what_is_stored_comes_back,
    a_backup_replaces_nothing_and_is_refused_where_files_can_change,
    a_damaged_backup_restores_nothing,
    records_get_to_another_database_and_back,
    a_move_mixes_no_records_and_shows_no_password,
}

const VARIABLE: &str = "STOCKADE_DATABASE_URL";
/// A value that must be in no backup.
const CANARY: &str = "canary-value-of-a-sealed-secret";

fn call(world: &World, words: &[&str]) -> Outcome {
    world.stockade(words).finish()
}

/// A data directory with a stopped sandbox, a snapshot, a secret, a volume and a bundle.
fn fill(world: &World) {
    call(world, &["create", "--id", "box"]).succeeds();
    let script =
        "mkdir -m 750 /tmp/kept && echo kept > /tmp/kept/file && ln -s file /tmp/kept/link";
    call(world, &["exec", "box", "--", "sh", "-c", script]).succeeds();
    call(world, &["snapshot", "box", "--as", "clean"]).succeeds();
    call(world, &["stop", "box"]).succeeds();
    world.stockade(&["secrets", "set", "token"]).input(format!("{CANARY}\n")).finish().succeeds();
    world
        .run(&["--discard", "--volume", "data:/data"], &["sh", "-c", "echo 7 > /data/n"])
        .succeeds();
    world.review("echo changed > a.txt").succeeds();
}

/// What a user sees of it.
fn seen(world: &World, directory: &Path) -> Vec<String> {
    let directory = directory.to_str().unwrap();
    [
        &["ls", "--all", "--json"][..],
        &["snapshots", "--json"],
        &["secrets", "list", "--json"],
        &["volume", "ls", "--json"],
        &["bundles", "--json"],
    ]
    .iter()
    .map(|words| {
        let outcome = call(world, &[&["--data-dir", directory], *words].concat());
        outcome.succeeds();
        // A copy is at another place, and its disk use may be another one.
        let lines = outcome.stdout.lines();
        lines
            .filter(|line| !line.contains("Bytes") && !line.contains("mountpoint"))
            .collect::<Vec<_>>()
            .join("\n")
    })
    .collect()
}

/// The audit records of a data directory, which must be valid.
fn recorded(world: &World, directory: &Path) -> Vec<String> {
    let at = ["--data-dir", directory.to_str().unwrap()];
    call(world, &[&at[..], &["audit", "verify"]].concat()).succeeds();
    let listed = call(world, &[&at[..], &["audit", "ls", "--json"]].concat());
    let records = listed.succeeds().json();
    let text = |record: &serde_json::Value, name: &str| record[name].as_str().unwrap().to_owned();
    let line = |record| ["operation", "phase", "decision"].map(|name| text(record, name)).join(" ");
    records.as_array().unwrap().iter().map(line).collect()
}

fn what_is_stored_comes_back(world: &World) {
    fill(world);
    let (old, new) = (world.data(), world.path("restored"));
    let before = seen(world, &old);
    let file = world.outside().join("one.backup");
    let made = call(world, &["backup", file.to_str().unwrap()]);
    made.succeeds();
    assert!(made.stdout.contains("compared with their hashes"), "{}", made.stdout);
    let meta = fs::metadata(&file).unwrap();
    assert_eq!((meta.mode() & 0o777, meta.nlink()), (0o600, 1));
    let left: Vec<_> = fs::read_dir(world.outside()).unwrap().map(|e| e.unwrap().path()).collect();
    assert_eq!(left, std::slice::from_ref(&file));
    let bytes = fs::read(&file).unwrap();
    assert!(!bytes.windows(CANARY.len()).any(|part| part == CANARY.as_bytes()));
    call(world, &["backup", "check", file.to_str().unwrap()]).succeeds();
    assert!(recorded(world, &old).contains(&"backup ended allowed".to_owned()));

    let words = ["--data-dir", new.to_str().unwrap(), "backup", "restore", file.to_str().unwrap()];
    let restored = call(world, &[&words[..], &["--json"]].concat());
    restored.succeeds();
    let tables = restored.json()["manifest"]["tables"].as_array().unwrap().clone();
    let rows =
        |name: &str| tables.iter().find(|table| table["table"] == name).unwrap()["rows"].clone();
    assert_eq!((rows("sandbox_instances"), rows("secrets")), (1.into(), 1.into()));
    // The copy has a chain of its own, and that of the original goes on.
    assert_eq!(recorded(world, &new), ["backup.restore ended allowed"]);
    assert!(recorded(world, &old).len() > 4);
    let audit = fs::read_dir(new.join("audit")).unwrap().map(|entry| entry.unwrap().file_name());
    let is_old = |name: &std::ffi::OsString| name.to_string_lossy().starts_with("log.jsonl.until-");
    assert_eq!(audit.filter(is_old).count(), 1);
    assert_eq!(seen(world, &new), before);
    // The sandbox goes on with its files, and the secret is opened with the key of this user.
    let at = ["--data-dir", new.to_str().unwrap()];
    call(world, &[&at[..], &["start", "box"]].concat()).succeeds();
    let script = "stat -c %a /tmp/kept && cat /tmp/kept/link";
    let read = call(world, &[&at[..], &["exec", "box", "--", "sh", "-c", script]].concat());
    read.succeeds();
    assert_eq!(read.stdout, "750\nkept\n");
    call(world, &[&at[..], &["secrets", "write", "token", "box", "/run/secrets/t"]].concat())
        .succeeds();
    let read = call(world, &[&at[..], &["exec", "box", "--", "cat", "/run/secrets/t"]].concat());
    assert_eq!(read.stdout.trim(), CANARY);
    call(world, &[&at[..], &["restore", "clean", "--id", "again"]].concat()).succeeds();
    let read = call(world, &[&at[..], &["exec", "again", "--", "cat", "/tmp/kept/file"]].concat());
    assert_eq!(read.stdout, "kept\n");
    let number = ["run", "--discard", "--volume", "data:/data", "--", "cat", "/data/n"];
    assert_eq!(call(world, &[&at[..], &number].concat()).stdout, "7\n");
    call(world, &[&at[..], &["kill", "box", "again"]].concat()).succeeds();
    // A directory that has something is not replaced.
    let refused = call(world, &words_of_restore(&new, &file));
    refused.is_refused();
    assert!(refused.stderr.contains("is not empty"), "{}", refused.stderr);
}

fn words_of_restore<'a>(data: &'a Path, file: &'a Path) -> [&'a str; 5] {
    ["--data-dir", data.to_str().unwrap(), "backup", "restore", file.to_str().unwrap()]
}

fn a_backup_replaces_nothing_and_is_refused_where_files_can_change(world: &World) {
    call(world, &["create", "--id", "box"]).succeeds();
    let file = world.outside().join("one.backup");
    let file = file.to_str().unwrap();
    let refused = call(world, &["backup", file]);
    refused.is_refused();
    assert!(refused.stderr.contains("stockade stop box"), "{}", refused.stderr);
    assert!(!Path::new(file).exists());
    call(world, &["backup", "--without-running", file]).succeeds();
    let first = fs::read(file).unwrap();
    let refused = call(world, &["backup", "--without-running", file]);
    refused.is_refused();
    assert!(refused.stderr.contains("is not replaced"), "{}", refused.stderr);
    assert_eq!(fs::read(file).unwrap(), first);
    // The sandbox has not noticed.
    call(world, &["exec", "box", "--", "true"]).succeeds();
    let inside = world.data().join("x.backup");
    call(world, &["backup", "--without-running", inside.to_str().unwrap()]).is_refused();
    // In the restored directory it is terminated, with a reason.
    let new = world.path("restored");
    call(world, &words_of_restore(&new, Path::new(file))).succeeds();
    let shown = call(world, &["--data-dir", new.to_str().unwrap(), "ls", "--all", "--json"]);
    assert!(shown.stdout.contains("terminated"), "{}", shown.stdout);

    let server = Server::start(world, &[]);
    let other = world.outside().join("two.backup");
    let refused = call(world, &["backup", "--without-running", other.to_str().unwrap()]);
    refused.is_refused();
    assert!(refused.stderr.contains("a server uses this data directory"), "{}", refused.stderr);
    let refused = call(world, &["migrate", "--to", "sqlite"]);
    assert!(refused.stderr.contains("a server uses this data directory"), "{}", refused.stderr);
    server.running.signal(Signal::INT);
    server.running.finish();
    call(world, &["kill", "box"]).succeeds();
}

fn a_damaged_backup_restores_nothing(world: &World) {
    call(world, &["volume", "create", "data"]).succeeds();
    let file = world.outside().join("one.backup");
    call(world, &["backup", file.to_str().unwrap()]).succeeds();
    let bytes = fs::read(&file).unwrap();
    let place = bytes.windows(15).position(|part| part == b"SQLite format 3").unwrap();
    let mut changed = bytes.clone();
    changed[place + 4000] ^= 1;
    let escaping = escaping(&bytes);
    let short = &bytes[..bytes.len() / 2];
    for (name, content) in [("changed", &changed[..]), ("short", short), ("escaping", &escaping)] {
        let damaged = world.outside().join(name);
        fs::write(&damaged, content).unwrap();
        let new = world.path("restored");
        let refused = call(world, &words_of_restore(&new, &damaged));
        refused.is_refused();
        assert!(refused.stderr.contains("DATABASE_INVALID"), "{}", refused.stderr);
        assert!(!new.exists());
        call(world, &["backup", "check", damaged.to_str().unwrap()]).is_refused();
    }
    // One that would fill the disk is refused before anything is written.
    let large = world.outside().join("large");
    fs::write(&large, &bytes).unwrap();
    fs::OpenOptions::new().write(true).open(&large).unwrap().set_len(1 << 43).unwrap();
    let refused = call(world, &words_of_restore(&world.path("restored"), &large));
    refused.is_refused();
    assert!(refused.stderr.contains("STORAGE_FULL"), "{}", refused.stderr);
    let left: Vec<_> =
        fs::read_dir(world.path("")).unwrap().map(|e| e.unwrap().file_name()).collect();
    let is_new = |name: &&std::ffi::OsString| {
        let name = name.to_string_lossy();
        name.contains("restore") || name.contains("escaped")
    };
    assert_eq!(left.iter().find(is_new), None);
}

/// The same archive, of which one entry has a name that leads out of the directory.
fn escaping(bytes: &[u8]) -> Vec<u8> {
    let mut changed = bytes.to_vec();
    let name = b"data/volumes";
    let is_header = |block: &[u8]| block.starts_with(name) && &block[257..262] == b"ustar";
    let header = changed.chunks_mut(512).find(|block| is_header(block)).unwrap();
    header[..100].fill(0);
    header[..16].copy_from_slice(b"data/../escaped/");
    header[148..156].fill(b' ');
    let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
    header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    changed
}

fn records_get_to_another_database_and_back(world: &World) {
    let Ok(postgres) = Postgres::start().map_err(|reason| skipped(&reason)) else { return };
    fill(world);
    let before = seen(world, &world.data());
    let url = postgres.database();
    let (_, database) = url.rsplit_once('/').unwrap();
    let moved = call(world, &["migrate", "--to", &url, "--json"]);
    moved.succeeds();
    for table in moved.json()["tables"].as_array().unwrap() {
        let name = table["table"].as_str().unwrap();
        let count = postgres.run_sql(database, &format!("SELECT count(*) FROM stockade.{name}"));
        assert_eq!(count, table["rows"].to_string(), "{name}");
    }
    assert!(!world.data().join("stockade.db").exists());
    // A server on the other database has all of it.
    let refused = call(world, &["ls"]);
    assert!(refused.stderr.contains(VARIABLE), "{}", refused.stderr);
    let server = Server::start_with(world, &[], &[(VARIABLE, &url)]);
    assert_eq!(seen(world, &world.data()), before);
    call(world, &["create", "--id", "later"]).succeeds();
    call(world, &["stop", "later"]).succeeds();
    server.running.signal(Signal::INT);
    server.running.finish();

    // A backup has the same form wherever the records are.
    let file = world.outside().join("one.backup");
    let backup = world.stockade(&["backup", file.to_str().unwrap()]).env(VARIABLE, &url).finish();
    backup.succeeds();
    let new = world.path("restored");
    call(world, &words_of_restore(&new, &file)).succeeds();

    let back = world.stockade(&["migrate", "--to", "sqlite"]).env(VARIABLE, &url).finish();
    back.succeeds();
    let after = seen(world, &world.data());
    assert!(after[0].contains("later"), "{}", after[0]);
    assert_eq!(after[1..], before[1..]);
    assert_eq!(seen(world, &new), after);
    call(world, &["start", "box"]).succeeds();
    assert_eq!(call(world, &["exec", "box", "--", "cat", "/tmp/kept/file"]).stdout, "kept\n");
    call(world, &["kill", "box", "later"]).succeeds();
}

fn a_move_mixes_no_records_and_shows_no_password(world: &World) {
    let Ok(postgres) = Postgres::start().map_err(|reason| skipped(&reason)) else { return };
    call(world, &["create", "--id", "box"]).succeeds();
    call(world, &["kill", "box"]).succeeds();
    let hidden = call(world, &["migrate", "--to", "postgres://user:hidden@127.0.0.1:1/records"]);
    hidden.is_refused();
    assert!(hidden.stderr.contains(VARIABLE) && !hidden.stderr.contains("hidden"), "{hidden:?}");
    assert_eq!(recorded(world, &world.data()).last().unwrap(), "migrate ended refused");
    let log = fs::read_to_string(world.data().join("audit/log.jsonl")).unwrap();
    assert!(!log.contains("hidden"), "{log}");

    // A schema with the records of another directory is not touched.
    let url = postgres.database();
    let (_, database) = url.rsplit_once('/').unwrap();
    let other = world.path("other");
    let words = ["--data-dir", other.to_str().unwrap(), "create", "--id", "other"];
    call(world, &words).succeeds();
    call(world, &["--data-dir", other.to_str().unwrap(), "kill", "other"]).succeeds();
    call(world, &["--data-dir", other.to_str().unwrap(), "migrate", "--to", &url]).succeeds();
    let refused = call(world, &["migrate", "--to", &url]);
    refused.is_refused();
    assert!(refused.stderr.contains("has records already"), "{}", refused.stderr);
    let ids = "SELECT id FROM stockade.sandbox_instances";
    assert_eq!(postgres.run_sql(database, ids), "other");
    call(world, &["ls"]).succeeds();
}
