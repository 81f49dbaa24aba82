//! A server with its records on PostgreSQL.

use rustix::process::Signal;
use serde_json::json;
use stockade_test_support::{Postgres, skipped};

use super::{Server, key};
use crate::harness::World;

const VARIABLE: &str = "STOCKADE_DATABASE_URL";

fn postgres() -> Option<Postgres> {
    Postgres::start().map_err(|reason| skipped(&reason)).ok()
}

/// Sandboxes and keys outlive the server, also one that is killed; another server is refused.
fn records_are_in_the_database(world: &World) {
    let Some(postgres) = postgres() else { return };
    let url = postgres.database();
    let settings = [(VARIABLE, url.as_str())];
    let server = Server::start_with(world, &[], &settings);
    let (key, _) = key(world, &["--owner", "me"]);
    let id = server.create(&key);
    world.stockade(&["create", "--id", "own", "--label", "team=blue"]).finish().succeeds();
    world.stockade(&["exec", "own", "--", "sh", "-c", "echo kept > /tmp/file"]).finish().succeeds();
    assert!(!world.data().join("stockade.db").exists());
    let (_, database) = url.rsplit_once('/').unwrap();
    let count = "SELECT count(*) FROM stockade.sandbox_instances";
    assert_eq!(postgres.run_sql(database, count), "2");

    // The schema belongs to one server.
    let other = world.data().with_file_name("other-data");
    let refused = world
        .stockade(&["serve", "--listen", "127.0.0.1:0", "--data-dir", other.to_str().unwrap()])
        .env(VARIABLE, &url)
        .finish();
    refused.is_refused();
    assert!(refused.stderr.contains("another server uses this schema"), "{}", refused.stderr);

    server.running.signal(Signal::KILL);
    server.running.finish();
    let server = Server::start_with(world, &[], &settings);
    let read = world.stockade(&["exec", "own", "--", "cat", "/tmp/file"]).finish();
    read.succeeds();
    assert_eq!(read.stdout, "kept\n");
    let header = format!("open-sandbox-api-key: {key}");
    let listed = server.request("GET /v1/sandboxes", &[&header], b"").value();
    assert_eq!(listed["items"][0]["id"], json!(id), "{listed}");
    let labelled = world.stockade(&["ls", "--label", "team=blue", "-q"]).finish();
    assert_eq!(labelled.stdout.trim(), "own");
    // A connection that the database ends is opened again.
    postgres.cut_off(database);
    world.stockade(&["kill", "own"]).finish().succeeds();
}

/// A data directory is never used with another database than its own.
fn a_directory_has_one_database(world: &World) {
    let Some(postgres) = postgres() else { return };
    let url = postgres.database();
    let server = Server::start_with(world, &[], &[(VARIABLE, &url)]);
    server.running.signal(Signal::INT);
    server.running.finish();
    let refused = world.stockade(&["ls"]).finish();
    assert_ne!(refused.code(), 0, "{refused:?}");
    assert!(refused.stderr.contains("STOCKADE_DATABASE_URL"), "{}", refused.stderr);
    let other = postgres.database();
    let refused =
        world.stockade(&["serve", "--listen", "127.0.0.1:0"]).env(VARIABLE, &other).finish();
    assert_ne!(refused.code(), 0, "{refused:?}");
    let left = world.data().with_file_name("with-a-file");
    std::fs::create_dir(&left).unwrap();
    std::fs::write(left.join("stockade.db"), "").unwrap();
    world.chown(&left);
    let refused = world
        .stockade(&["serve", "--listen", "127.0.0.1:0", "--data-dir", left.to_str().unwrap()])
        .env(VARIABLE, &other)
        .finish();
    assert!(refused.stderr.contains("stockade.db"), "{}", refused.stderr);
}

/// A password does not get into the list of processes.
fn a_password_is_no_argument(world: &World) {
    let url = "postgres://user:hidden@127.0.0.1:1/records";
    let refused = world.stockade(&["serve", "--database-url", url]).finish();
    assert_ne!(refused.code(), 0, "{refused:?}");
    assert!(refused.stderr.contains("STOCKADE_DATABASE_URL"), "{}", refused.stderr);
    let unreachable =
        world.stockade(&["serve", "--listen", "127.0.0.1:0"]).env(VARIABLE, url).finish();
    assert_ne!(unreachable.code(), 0, "{unreachable:?}");
    assert!(!unreachable.stderr.contains("hidden"), "{}", unreachable.stderr);
}

as_root_and_as_user!(
    records_are_in_the_database,
    a_directory_has_one_database,
    a_password_is_no_argument,
);
