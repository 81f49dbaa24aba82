//! Commands that are killed in the middle: what was there is still used, nothing is left, and the same command
//! works afterwards.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use stockade_test_support::{Postgres, skipped};

use super::{VARIABLE, call, words_of_restore};
use crate::call::Call;
use crate::harness::World;
use crate::served::Server;

as_root_and_as_user! {
    a_killed_backup_and_a_killed_restore_leave_nothing,
    a_killed_move_leaves_the_old_records_in_use,
}

/// Kills a command when this is true for the first time.
fn kill_when(command: Call, is_time: impl Fn() -> bool) {
    let running = command.start();
    let end = Instant::now() + Duration::from_secs(20);
    while !is_time() {
        assert!(Instant::now() < end, "{}", running.stderr());
        std::thread::sleep(Duration::from_millis(1));
    }
    running.signal(Signal::KILL);
    running.finish();
}

/// The entry of a directory with this prefix.
fn find(directory: &Path, prefix: &str) -> Option<PathBuf> {
    let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap());
    let mut found = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(prefix));
    found.next().map(|entry| entry.path())
}

fn a_killed_backup_and_a_killed_restore_leave_nothing(world: &World) {
    // Large enough that a command can be killed while it is written.
    let script = "head -c 16M /dev/zero >/data/large && echo kept >/data/n";
    world.run(&["--discard", "--volume", "data:/data"], &["sh", "-c", script]).succeeds();
    let (outside, file) = (world.outside(), world.outside().join("one.backup"));
    let words = ["backup", file.to_str().unwrap()];
    let is_written = || {
        find(&outside, ".stockade-backup-").is_some_and(|found| {
            fs::metadata(found.join("unfinished")).is_ok_and(|found| found.len() > 1 << 20)
        })
    };
    kill_when(world.stockade(&words), is_written);
    assert!(!file.exists());
    assert!(find(&outside, ".stockade-backup-").is_some());
    call(world, &words).succeeds();
    let left: Vec<_> = fs::read_dir(&outside).unwrap().map(|e| e.unwrap().path()).collect();
    assert_eq!(left, std::slice::from_ref(&file));

    let (around, new) = (world.path(""), world.path("restored"));
    let words = words_of_restore(&new, &file);
    let is_extracted =
        || find(&around, ".stockade-restore-").is_some_and(|found| found.join("volumes").exists());
    kill_when(world.stockade(&words), is_extracted);
    assert!(!new.exists());
    assert!(find(&around, ".stockade-restore-").is_some());
    call(world, &words).succeeds();
    assert_eq!(find(&around, ".stockade-restore-"), None);
    let read = ["run", "--discard", "--volume", "data:/data", "--", "cat", "/data/n"];
    let read = call(world, &[&["--data-dir", new.to_str().unwrap()], &read[..]].concat());
    assert_eq!(read.stdout, "kept\n");
}

fn a_killed_move_leaves_the_old_records_in_use(world: &World) {
    let Ok(postgres) = Postgres::start().map_err(|reason| skipped(&reason)) else { return };
    let data = world.data();
    call(world, &["create", "--id", "box"]).succeeds();
    call(world, &["kill", "box"]).succeeds();
    let url = postgres.database();
    let (_, database) = url.rsplit_once('/').unwrap();
    let there = ["migrate", "--to", &url, "--json"];
    kill_when(world.stockade(&there), || data.join("database.unfinished").exists());
    assert!(!data.join("database").exists() && data.join("stockade.db").exists());
    let listed = call(world, &["ls", "--all", "-q"]);
    assert_eq!(listed.succeeds().stdout, "box\n");
    // A record that the killed command has not copied.
    call(world, &["create", "--id", "later"]).succeeds();
    call(world, &["kill", "later"]).succeeds();
    let moved = call(world, &there);
    for table in moved.succeeds().json()["tables"].as_array().unwrap() {
        let name = table["table"].as_str().unwrap();
        let count = postgres.run_sql(database, &format!("SELECT count(*) FROM stockade.{name}"));
        assert_eq!(count, table["rows"].to_string(), "{name}");
    }
    assert!(!data.join("database.unfinished").exists());

    let back = || world.stockade(&["migrate", "--to", "sqlite"]).env(VARIABLE, &url);
    kill_when(back(), || data.join("stockade.db.unfinished").exists());
    assert!(data.join("database").exists() && !data.join("stockade.db").exists());
    let server = Server::start_with(world, &[], &[(VARIABLE, &url)]);
    assert_eq!(call(world, &["ls", "--all", "-q"]).succeeds().stdout.lines().count(), 2);
    server.running.signal(Signal::INT);
    server.running.finish();
    back().finish().succeeds();
    assert!(!data.join("database").exists() && find(&data, "stockade.db.unfinished").is_none());
    assert_eq!(call(world, &["ls", "--all", "-q"]).succeeds().stdout.lines().count(), 2);

    // What is in a schema is replaced only with the mark of the command that has copied it.
    let url = postgres.database();
    let (_, database) = url.rsplit_once('/').unwrap();
    let there = ["migrate", "--to", &url];
    kill_when(world.stockade(&there), || data.join("database.unfinished").exists());
    let unfinished = data.join("database.unfinished");
    let line = fs::read_to_string(&unfinished).unwrap();
    postgres.run_sql(database, "DROP SCHEMA IF EXISTS stockade CASCADE");
    let other = world.path("other");
    let elsewhere = ["--data-dir", other.to_str().unwrap()];
    call(world, &[&elsewhere[..], &["create", "--id", "other"]].concat()).succeeds();
    call(world, &[&elsewhere[..], &["kill", "other"]].concat()).succeeds();
    call(world, &[&elsewhere[..], &there[..]].concat()).succeeds();
    let refused = call(world, &there);
    refused.is_refused();
    assert!(refused.stderr.contains("has records already"), "{}", refused.stderr);
    assert_eq!(fs::read_to_string(&unfinished).unwrap(), line);
    let ids = "SELECT id FROM stockade.sandbox_instances";
    assert_eq!(postgres.run_sql(database, ids), "other");
}
