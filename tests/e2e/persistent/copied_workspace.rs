//! The data directory is on an overlay, as in many containers, which cannot be the upper layer of
//! another overlay: sandboxes work on copies of their files, report that, and their changes still
//! become bundles.

use std::path::Path;

use crate::call::Outcome;
use crate::harness::{Identity, World};

/// Runs a shell script where the data directory is on an overlay. All processes end with it.
fn on_overlay(world: &World, script: &str) -> Outcome {
    let (below, data) = (world.path("below"), world.data());
    std::fs::create_dir(&below).unwrap();
    world.chown(&below);
    let mut words = vec!["--mount", "--propagation=private", "--pid", "--fork", "--mount-proc"];
    let (options, weaken) = match world.identity {
        Identity::Root => ("", "exec"),
        Identity::User => {
            words.extend(["--user", "--map-current-user", "--keep-caps"]);
            // If a user mounts it, it stores its attributes where a user may write them.
            (",userxattr", "exec setpriv --inh-caps=-all --ambient-caps=-all")
        }
    };
    let mount = format!(
        "set -e; mount -t tmpfs -o mode=700 below '{0}'; mkdir -m 700 '{0}/lower' '{0}/upper' \
         '{0}/work'; mount -t overlay -o lowerdir='{0}/lower',upperdir='{0}/upper',workdir='{0}/work'{options} \
         above '{1}'; {weaken} sh -ec \"$0\"",
        below.display(),
        data.display()
    );
    let script = format!("PATH={}:$PATH; {script}", world.binary().parent().unwrap().display());
    words.extend(["sh", "-c", &mount, &script]);
    world.on_host(Path::new("/usr/bin/unshare"), &words).finish()
}

fn sandboxes_work_on_copies(world: &World) {
    world.write("gone", "g\n");
    world.write("untouched", "u\n");
    let outcome = on_overlay(
        world,
        "stockade create --id box --workspace .:/project
         stockade show box
         stockade exec box -- sh -c 'cd /project && echo beta >> a.txt && rm gone && echo n > new'
         echo later > of-host
         echo host > untouched
         stockade stop box; stockade start box
         echo again >> untouched
         stockade exec box -- sh -c 'cat /project/a.txt; echo x > /tmp/file; cat /tmp/file'
         stockade collect box > bundle
         stockade diff $(cat bundle) --stat
         stockade apply $(cat bundle)
         stockade kill box",
    );
    outcome.succeeds();
    assert!(outcome.stderr.contains("note: the files were copied"), "{outcome}");
    assert!(outcome.stdout.contains("note") && outcome.stdout.contains("alpha\nbeta\nx\n"));
    assert_eq!((world.read("a.txt"), world.read("new")), ("alpha\nbeta\n".into(), "n\n".into()));
    assert!(!world.has("gone") && world.read("of-host") == "later\n", "{outcome}");
    // A change that only the host has made does not conflict with the sandbox, and stays.
    assert_eq!(world.read("untouched"), "host\nagain\n", "{outcome}");
}

fn what_is_renamed_in_a_copy_is_no_conflict(world: &World) {
    world.write("old.py", "o\n");
    let outcome = on_overlay(
        world,
        "rename='mv old.py new.py; echo n >> new.py; echo n >> a.txt; ln a.txt g'
         stockade create --id box --workspace .:/project
         stockade exec box -- sh -c \"cd /project; $rename\"
         echo h > of-host
         stockade apply $(stockade collect box)
         stockade kill box
         git checkout --quiet a.txt; rm g; mv new.py old.py
         stockade run -- sh -c \"$rename; echo ready; sleep 1\" | { read ready; echo h > later; cat; }
         stockade apply latest",
    );
    outcome.succeeds();
    let contents = ["a.txt", "g", "new.py"].map(|name| world.read(name));
    assert_eq!(contents, ["alpha\nn\n", "alpha\nn\n", "o\nn\nn\n"], "{outcome}");
    assert!(!world.has("old.py") && world.has("of-host") && world.has("later"), "{outcome}");
}

fn doctor_tells_what_is_copied(world: &World) {
    let outcome = on_overlay(world, "stockade doctor");
    outcome.succeeds();
    assert!(outcome.stdout.contains("copy"), "{outcome}");
    assert!(outcome.stdout.contains("`stockade create` also copies files"), "{outcome}");
}

as_root_and_as_user![
    sandboxes_work_on_copies,
    what_is_renamed_in_a_copy_is_no_conflict,
    doctor_tells_what_is_copied,
];
