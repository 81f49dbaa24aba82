//! What a server keeps beside sandboxes, by the commands of another machine: volumes and images.

use super::remote::{Client, url};
use super::{Server, key};
use crate::daemons::wait_until;
use crate::harness::World;

/// Volumes are those of the owner of the key, and are not removed while one of its sandboxes mounts them.
fn volumes_are_those_of_the_key(world: &World) {
    let server = Server::start(world, &[]);
    let (mine, _) = key(world, &["--owner", "me"]);
    let (other, _) = key(world, &["--owner", "other"]);
    let me = Client::new(world, url(&server), &mine);
    let stranger = Client::new(world, url(&server), &other);
    assert_eq!(me.run(&["volume", "create", "data", "--label", "a=b"]).succeeds().stdout, "data\n");
    assert_eq!(me.run(&["volume", "create", "data"]).succeeds().stdout, "data\n");
    let generated = me.run(&["volume", "create"]).succeeds().stdout.trim().to_owned();
    me.run(&["create", "--id", "box", "-v", "data:/data"]).succeeds();
    me.run(&["exec", "box", "--", "sh", "-c", "head -c 100000 /dev/zero > /data/f"]).succeeds();

    let shown = me.json(&["volume", "inspect", "data"]);
    assert_eq!(shown[0]["labels"]["a"], "b", "{shown}");
    assert_eq!(shown[0]["usedBy"], serde_json::json!(["sandbox box"]), "{shown}");
    assert!(shown[0]["sizeBytes"].as_u64().unwrap() >= 100_000, "{shown}");
    // The paths of the server's machine are its own.
    assert!(shown[0]["mountpoint"].is_null(), "{shown}");
    assert!(!shown.to_string().contains(world.data().to_str().unwrap()), "{shown}");
    assert!(me.run(&["volume", "ls"]).succeeds().stdout.contains("sandbox box"));

    // Another owner has volumes of the same names, and neither sees nor removes these.
    assert_eq!(stranger.run(&["volume", "ls", "-q"]).succeeds().stdout, "");
    let refused = stranger.run(&["volume", "rm", "data", "--json"]);
    assert_eq!(refused.json()["error"]["code"], "NOT_FOUND", "{refused}");
    stranger.run(&["volume", "create", "data"]).succeeds();
    stranger.run(&["volume", "rm", "data"]).succeeds();
    let without = Client::new(world, url(&server), "").run(&["volume", "ls", "--json"]);
    assert_eq!(without.json()["error"]["code"], "UNAUTHENTICATED", "{without}");
    // A label of ours would make a volume a cache.
    let label = ["volume", "create", "x", "--label", "stockade.cache=npm"];
    assert!(me.run(&label).stderr.contains("[INVALID_INPUT]"));

    me.run(&["stop", "box"]).succeeds();
    let refused = me.run(&["volume", "rm", "data"]);
    assert!(refused.stderr.contains("[BUSY]") && refused.stderr.contains("kill box"), "{refused}");
    let pruned = me.run(&["volume", "prune", "--force"]).succeeds().stdout.clone();
    assert_eq!(pruned, format!("{generated}\n"));
    me.run(&["kill", "box"]).succeeds();
    me.run(&["volume", "rm", "data"]).succeeds();
    assert_eq!(me.run(&["volume", "ls", "-q"]).succeeds().stdout, "");
    me.nothing_happened_here();
}

/// The caches are those that runs of this project have on the server.
fn caches_are_those_of_this_project_there(world: &World) {
    let server = Server::start(world, &[]);
    let (mine, _) = key(world, &["--owner", "me"]);
    let me = Client::new(world, url(&server), &mine);
    let run = ["run", "--discard", "--cache", "npm", "--", "touch", "/var/cache/stockade/npm/kept"];
    me.run(&run).succeeds();
    wait_until("the sandbox of the run has ended", || {
        me.run(&["cache", "ls"])
            .succeeds()
            .stdout
            .lines()
            .nth(1)
            .is_some_and(|line| line.starts_with("npm ") && !line.contains("sandbox "))
    });
    let again = ["run", "--discard", "--cache", "npm", "--", "ls", "/var/cache/stockade/npm"];
    assert_eq!(me.run(&again).succeeds().stdout, "kept\n");
    me.run(&["cache", "rm", "npm"]).succeeds();
    assert!(me.run(&["cache", "ls"]).succeeds().stderr.contains("no caches"));
}

/// All owners use the store of images: anybody lists it, downloads follow the setting of the server, and
/// only an admin removes something.
fn images_are_shared_and_removed_by_an_admin(world: &World) {
    world.write("image/etc/name", "app");
    world.stockade(&["image", "import", "dir:image", "team/app:1"]).finish().succeeds();
    let server = Server::start(world, &[]);
    let (mine, _) = key(world, &["--owner", "me"]);
    let (admin, _) = key(world, &["--owner", "boss", "--admin"]);
    let me = Client::new(world, url(&server), &mine);
    let admin = Client::new(world, url(&server), &admin);
    assert!(me.run(&["image", "ls"]).succeeds().stdout.contains("team/app"));
    for name in ["debian:12", "127.0.0.1:9/x:1", "localhost/x"] {
        let refused = me.run(&["image", "pull", name, "--json"]);
        assert_eq!(refused.json()["error"]["code"], "FORBIDDEN", "{refused}");
    }
    let sized = me.run(&["image", "pull", "debian:12", "--max-size", "1G"]);
    assert!(sized.stderr.contains("[UNSUPPORTED]"), "{sized}");
    let refused = me.run(&["image", "rm", "team/app:1", "--json"]);
    assert_eq!(refused.json()["error"]["code"], "FORBIDDEN", "{refused}");
    // A name is an argument of a command there, and no option of it.
    for name in ["--help", "-f", "--data-dir=/tmp"] {
        let refused = admin.run(&["image", "rm", "--json", "--", name]);
        assert!(refused.json()["error"]["code"].is_string(), "{refused}");
    }
    me.run(&["create", "--id", "box", "--image", "team/app:1"]).succeeds();
    let removed = admin.run(&["image", "rm", "team/app:1", "--json"]);
    assert_eq!(removed.json()["error"]["code"], "IMAGE_IN_USE", "{removed}");
    me.run(&["kill", "box"]).succeeds();
    admin.run(&["image", "rm", "team/app:1"]).succeeds();
    assert_eq!(me.run(&["image", "ls", "-q"]).succeeds().stdout, "");
    admin.run(&["image", "rm", "--force", "team/app:1"]).succeeds();
    me.nothing_happened_here();
}

as_root_and_as_user![
    volumes_are_those_of_the_key,
    caches_are_those_of_this_project_there,
    images_are_shared_and_removed_by_an_admin,
];
