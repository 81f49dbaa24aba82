//! Bundles while a server runs: it decides like the commands without a server, records each
//! decision, and executes it once when it is killed in the middle.

use std::time::Duration;

use super::{call, create, refused};
use crate::daemons::{kill_server, servers};
use crate::harness::World;

/// The recorded status of each operation of that name.
fn recorded_events(world: &World, name: &str) -> Vec<String> {
    let path = world.data().join("stockade.db");
    let flags = rusqlite::OpenFlags::SQLITE_OPEN_READ_ONLY;
    let database = rusqlite::Connection::open_with_flags(path, flags).unwrap();
    let sql = "SELECT status FROM workflow_status WHERE name = ?1 ORDER BY created_at";
    let mut statement = database.prepare(sql).unwrap();
    let rows = statement.query_map([name], |row| row.get(0)).unwrap();
    rows.map(Result::unwrap).collect()
}

fn the_server_decides_as_a_command_does_alone(world: &World) {
    world.write("gone", "g\n");
    world.write(".gitignore", "*.log\n");
    world.review(
        "echo beta >> a.txt; rm gone; mkdir -p new .git/hooks && echo n > new/file; \
         echo x > .git/hooks/pre-commit; echo e > .envrc; echo l > x.log; echo s > 'a b'",
    );
    let looks: [&[&str]; 8] = [
        &["bundles"],
        &["bundles", "--json"],
        &["diff", "latest"],
        &["diff", "latest", "--json"],
        &["diff", "latest", "--stat"],
        &["diff", "latest", "new", "x.log"],
        &["diff", "latest", "--json", "new"],
        &["diff", "latest", "absent"],
    ];
    let alone = looks.map(|words| call(world, words));
    assert!(servers(&world.data()).is_empty(), "looking started a server");
    let sandbox = create(world, &[]);
    for (words, alone) in looks.iter().zip(&alone) {
        let response = call(world, words);
        let reported = (response.code(), &response.stdout, &response.stderr);
        assert_eq!(reported, (alone.code(), &alone.stdout, &alone.stderr), "{words:?}");
    }
    refused(&call(world, &["apply", "latest"]), 1, "EXECUTED_FILE");
    refused(&call(world, &["apply", "0123456789ab"]), 1, "BUNDLE_NOT_FOUND");
    let applied = call(world, &["apply", "latest", "--json", "a.txt"]);
    assert_eq!(applied.json()["applied"], serde_json::json!(["a.txt"]), "{applied}");
    assert_eq!(applied.json()["done"], false);
    let rest = call(world, &["apply", "latest", "--allow-executed", "--include-ignored"]);
    rest.succeeds();
    assert!(rest.stdout.contains("A new/file") && rest.stdout.contains("D gone"), "{rest}");
    assert!(rest.stderr.contains("skipped: .git/hooks"), "{rest}");
    assert!(world.has("x.log") && !world.has(".git/hooks/pre-commit"));
    assert!(world.bundles().is_empty());

    world.review("echo x > unwanted");
    let rejected = call(world, &["reject", "latest", "--yes", "--json"]);
    assert_eq!(rejected.json()["rejected"][0]["rejected"], true, "{rejected}");
    assert!(!world.has("unwanted") && world.bundles().is_empty());
    refused(&call(world, &["reject", "latest", "--yes"]), 1, "BUNDLE_NOT_FOUND");
    assert_eq!(recorded_events(world, "bundle.apply"), ["ERROR", "SUCCESS", "SUCCESS"]);
    // `latest` is resolved before the request.
    assert_eq!(recorded_events(world, "bundle.reject"), ["SUCCESS"]);
    call(world, &["kill", &sandbox]).succeeds();
}

fn what_a_killed_server_was_applying_is_applied_once(world: &World) {
    let sandbox = create(world, &[]);
    for round in 0..8_u64 {
        world.review(&format!(
            "rm -rf many; mkdir many; for n in $(seq 300); do echo {round}.$n > many/$n; done"
        ));
        let words: &[&str] = match round % 2 {
            0 => &["apply", "latest"],
            _ => &["apply", "latest", "--json"],
        };
        let running = world.stockade(words).start();
        std::thread::sleep(Duration::from_millis(10 + round * 9));
        if !servers(&world.data()).is_empty() {
            kill_server(&world.data());
        }
        running.finish().succeeds();
        for n in [1, 150, 300] {
            assert_eq!(world.read(&format!("many/{n}")), format!("{round}.{n}\n"));
        }
        assert!(world.bundles().is_empty(), "something is left to decide");
        let names = std::fs::read_dir(&world.project).unwrap();
        let odd = names.filter(|name| {
            let name = name.as_ref().unwrap().file_name();
            name.to_string_lossy().starts_with(".stockade")
        });
        assert_eq!(odd.count(), 0, "something of the apply is left in the project");
        // The next command reaches a server again.
        call(world, &["ls"]).succeeds();
    }
    assert!(recorded_events(world, "bundle.apply").iter().all(|status| status == "SUCCESS"));
    call(world, &["kill", &sandbox]).succeeds();
}

as_root_and_as_user![
    the_server_decides_as_a_command_does_alone,
    what_a_killed_server_was_applying_is_applied_once,
];
