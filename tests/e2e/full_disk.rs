//! The disk of the data directory is full: what frees room works, every other operation fails at once
//! with STORAGE_FULL, and nothing is lost.

use std::path::Path;

use crate::call::Outcome;
use crate::harness::{Identity, World};

/// Runs a shell script where the data directory is a file system of this size, which no other
/// process sees. All processes end with it.
fn on_small_disk(world: &World, mebibytes: u64, script: &str) -> Outcome {
    let mut words = vec!["--mount", "--propagation=private", "--pid", "--fork", "--mount-proc"];
    let weaken = match world.identity {
        Identity::Root => "exec",
        Identity::User => {
            words.extend(["--user", "--map-current-user", "--keep-caps"]);
            "exec setpriv --inh-caps=-all --ambient-caps=-all"
        }
    };
    let mount = format!(
        "set -e; mount -t tmpfs -o size={mebibytes}m,mode=700 small '{}'; {weaken} sh -ec \"$0\"",
        world.data().display()
    );
    let script = format!("PATH={}:$PATH; {script}", world.binary().parent().unwrap().display());
    words.extend(["sh", "-c", &mount, &script]);
    world.on_host(Path::new("/usr/bin/unshare"), &words).finish()
}

/// Takes all space that is left.
const FILL: &str = "fill() {
             dd if=/dev/zero of=$STOCKADE_DATA_DIR/ballast bs=64k 2>/dev/null || true
             dd if=/dev/zero bs=1 count=70000 2>/dev/null >> $STOCKADE_DATA_DIR/ballast || true
         }";

/// A sandbox fills the disk, and is killed.
fn a_sandbox_that_fills_the_disk_can_be_killed(world: &World) {
    let outcome = on_small_disk(
        world,
        200,
        "stockade create --id f
         stockade create --id other
         stockade exec f -- sh -c 'head -c 900M /dev/zero > /var/tmp/x || head -c 900M /dev/zero > /x' || true
         stockade kill f
         stockade exec other -- sh -c 'echo room > /tmp/file; cat /tmp/file'
         stockade kill other",
    );
    outcome.succeeds();
    assert!(outcome.stdout.contains("room"), "{outcome}");
}

/// Something else fills the disk: sandboxes, snapshots and bundles can still be removed, other
/// operations fail with the reason, and with room everything works again.
fn what_frees_room_needs_none(world: &World) {
    let outcome = on_small_disk(
        world,
        64,
        &format!(
            "{FILL}
             stockade create --id a; stockade create --id b --workspace .
             stockade exec b -- sh -c 'echo work > work.txt'
             fill
             stockade create --id c 2>&1 && exit 91 || true
             stockade kill a
             rm $STOCKADE_DATA_DIR/ballast
             stockade exec b -- cat work.txt
             stockade collect b
             stockade kill b",
        ),
    );
    outcome.succeeds();
    assert!(outcome.stdout.contains("STORAGE_FULL"), "{outcome}");
    assert!(outcome.stdout.contains("stockade kill"), "the hint names what frees room: {outcome}");
    assert!(outcome.stdout.contains("work\n"), "{outcome}");
}

/// Not a byte is free: whatever ends a sandbox works, and the work in it is in a bundle afterwards.
fn a_sandbox_can_be_ended_without_any_space(world: &World) {
    world.write("gone.txt", "gone");
    let outcome = on_small_disk(
        world,
        64,
        &format!(
            "{FILL}
             for id in a b c d e; do
                 stockade create --id $id --workspace .
                 stockade exec $id -- sh -c \
                     'head -c 3M /dev/urandom > large; echo work of '$id' > work.txt; rm gone.txt'
             done
             fill
             stockade kill a 2>&1; fill
             stockade stop b 2>&1; fill
             stockade kill b 2>&1; fill
             stockade kill c --discard; fill
             stockade stop d; fill
             stockade prune; fill
             : > $STOCKADE_DATA_DIR/reserve; fill
             stockade stop e > stop.txt 2>&1 && echo was-stopped > stop.txt || true
             cat stop.txt
             stockade kill e 2>&1 && exit 91 || true
             stockade kill e --discard
             stockade ls
             stockade bundles
             for id in $(stockade bundles --json | grep -o '\"id\": \"[0-9a-f]*' | cut -d '\"' -f 4); do
                 stockade diff $id
                 stockade diff --stat $id
                 stockade reject $id
             done
             stockade bundles"
        ),
    );
    outcome.succeeds();
    let has = |text: &str| outcome.stdout.contains(text);
    for id in ["a", "b", "d"] {
        assert!(has(&format!("+work of {id}\n")), "{outcome}");
        assert!(outcome.stdout.matches("work.txt").count() >= 3, "{outcome}");
    }
    assert!(has("gone.txt") && !has("work of c") && !has("work of e"), "{outcome}");
    // Without even a reserve, nothing is lost, and the hint helps.
    let is_told = has("[STORAGE_FULL]") && has("hint: ");
    assert!(has("was-stopped") || is_told, "{outcome}");
    assert!(has("hint: stockade kill --discard e"), "{outcome}");
}

/// What a sandbox with a workspace has written takes the whole disk: it becomes a bundle there.
fn work_that_fills_the_disk_becomes_a_bundle(world: &World) {
    let outcome = on_small_disk(
        world,
        200,
        "stockade create --id f --workspace .
         stockade exec f -- sh -c 'echo small > small.txt; head -c 900M /dev/zero > large' || true
         stockade kill f
         stockade diff latest
         stockade reject $(stockade bundles --json | grep -o '\"id\": \"[0-9a-f]*' | cut -d '\"' -f 4)
         stockade create --id g
         stockade exec g -- echo room",
    );
    outcome.succeeds();
    assert!(outcome.stdout.contains("+small\n"), "{outcome}");
    assert!(outcome.stdout.contains("room\n"), "{outcome}");
}

/// A run whose rows do not fit any more ends its follower at once.
fn a_run_reports_that_the_disk_is_full(world: &World) {
    let tasks = "{[...Array(60).keys()].map((i) => <Task id={`t${i}`} retries={0} output={outputs.a}>\
                 {() => ({ s: String(i).repeat(300000) })}</Task>)}";
    let source = format!(
        "/** @jsxImportSource smithers-orchestrator */\n\
         import {{ createSmithers }} from \"smithers-orchestrator\";\n\
         const {{ Workflow, Task, Sequence, smithers, outputs }} = createSmithers({{ a: {{}} }});\n\
         export default smithers(() => <Workflow name=\"big\"><Sequence>{tasks}</Sequence></Workflow>);\n"
    );
    world.write("big.tsx", source);
    for way in ["--in-process", ""] {
        let script = format!("stockade up big.tsx {way} 2>&1 && exit 91 || echo ended");
        let outcome = on_small_disk(world, 24, &script);
        outcome.succeeds();
        let has = |text: &str| outcome.stdout.contains(text);
        assert!(has("STORAGE_FULL") && has("stockade resume") && has("ended"), "{outcome}");
    }
}

/// The disk is full in the middle of an image: there is no image of that name, the error names what frees
/// room, and nothing of it is left after that.
fn an_image_that_does_not_fit_leaves_nothing(world: &World) {
    let outcome = on_small_disk(
        world,
        64,
        "mkdir root small; head -c 40M /dev/urandom > root/large; echo fits > small/file
         tar -cf large.tar -C root .; tar -cf small.tar -C small .
         stockade image import large.tar large:1 2>&1 && exit 91 || true
         stockade image ls --json
         stockade image prune
         du -sm $STOCKADE_DATA_DIR/images | cut -f 1 | sed 's/^/mebibytes left: /'
         stockade image import small.tar small:1 && stockade image ls -q | wc -l",
    );
    outcome.succeeds();
    assert!(outcome.stdout.contains("[STORAGE_FULL]"), "{outcome}");
    assert!(outcome.stdout.contains("stockade image prune"), "{outcome}");
    assert!(outcome.stdout.contains("\"images\": []"), "{outcome}");
    let left = outcome.stdout.split("mebibytes left: ").nth(1).unwrap();
    let left: u32 = left.lines().next().unwrap().trim().parse().unwrap();
    assert!(left <= 2, "{outcome}");
    assert!(outcome.stdout.trim_end().ends_with("small:1\n1"), "{outcome}");
}

as_root_and_as_user![
    an_image_that_does_not_fit_leaves_nothing,
    a_sandbox_that_fills_the_disk_can_be_killed,
    what_frees_room_needs_none,
    a_sandbox_can_be_ended_without_any_space,
    work_that_fills_the_disk_becomes_a_bundle,
    a_run_reports_that_the_disk_is_full,
];
