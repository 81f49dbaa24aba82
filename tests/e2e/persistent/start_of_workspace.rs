//! What the files of a workspace were when its sandbox was created: what the host changes later is
//! merged, and not shown as the sandbox's base.

use super::{call, create, sh};
use crate::daemons::wait_until;
use crate::harness::World;

fn what_both_have_changed_is_merged(world: &World) {
    let lines: Vec<_> = (1..=200).map(|number| format!("line {number}\n")).collect();
    world.write("long.txt", lines.concat());
    world.git(&["add", "."]);
    world.git(&["commit", "--quiet", "--message=long"]);
    let id = create(world, &["--workspace", &format!("{}:/project", world.project.display())]);
    let baseline = world.data().join(format!("histories/{id}.base"));
    wait_until("the start is recorded", || baseline.exists());
    let changed = |at: usize, text: &str, of: &[String]| {
        let mut lines = of.to_vec();
        lines[at] = format!("{text}\n");
        lines
    };
    world.write("long.txt", changed(9, "human", &lines).concat());
    sh(world, &id, "sed -i 's/^line 150$/agent/' /project/long.txt").succeeds();
    call(world, &["collect", &id]).succeeds();
    let diff = call(world, &["diff", "latest"]);
    assert!(diff.stdout.contains("-line 150\n+agent\n"), "{diff}");
    let merged = changed(149, "agent", &changed(9, "human", &lines));
    call(world, &["apply", "latest", "--merge"]).succeeds();
    assert_eq!(world.read("long.txt"), merged.concat());
    call(world, &["kill", &id, "--discard"]).succeeds();
    assert!(!baseline.exists(), "it is left");
}

as_root_and_as_user![what_both_have_changed_is_merged];
