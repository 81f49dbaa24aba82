//! Commits of a command: taken to a branch as checked objects, and refused where anything about them
//! could act on the host.

use std::fs;

use crate::call::Outcome;
use crate::harness::World;

const IDENTITY: &str = "export GIT_AUTHOR_NAME=B GIT_AUTHOR_EMAIL=b@example.com \
                        GIT_COMMITTER_NAME=B GIT_COMMITTER_EMAIL=b@example.com; set -e; ";

fn commit(world: &World, script: &str) {
    world.review(&format!("{IDENTITY}{script}"));
}

fn apply(world: &World, flags: &[&str]) -> Outcome {
    let mut words = vec!["apply", "latest", "--commits"];
    words.extend(flags);
    world.stockade(&words).finish()
}

fn branches(world: &World) -> String {
    world.git(&["for-each-ref", "--format=%(refname)"])
}

fn commits_are_shown_and_taken_to_a_branch(world: &World) {
    let canary = world.path("hook-ran");
    let hook = format!("#!/bin/sh\ntouch {}\n", canary.display());
    for name in ["reference-transaction", "post-commit", "pre-commit"] {
        let path = world.write(&format!(".git/hooks/{name}"), &hook);
        fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    }
    commit(
        world,
        "rm -f .git/hooks/*; git commit -q --allow-empty -m 'the work'; echo two > a.txt; mkdir n; \
         echo new > n/f; git add .; git commit -qm \"more$(printf '\\033')[31m work\"; git gc -q",
    );
    let shown = world.stockade(&["diff", "latest", "--commits"]).finish();
    shown.succeeds();
    for part in ["the work", "more", "claimed, not verified", "B <b@example.com>", "+two", "+new"] {
        assert!(shown.stdout.contains(part), "{part}: {shown}");
    }
    assert!(!shown.stdout.contains('\u{1b}'), "{shown}");
    let json = world.stockade(&["diff", "latest", "--commits", "--json"]).finish().json();
    assert_eq!(json["commits"].as_array().unwrap().len(), 2, "{json}");
    let head = world.git(&["rev-parse", "HEAD"]);
    let applied = apply(world, &[]);
    applied.succeeds();
    let id = world.bundles()[0]["id"].as_str().unwrap()[..12].to_owned();
    let branch = format!("stockade/{id}");
    let log = world.git(&["log", "--format=%s", &branch]);
    assert!(log.starts_with("more") && log.contains("the work\nstart\n"), "{log}");
    assert_eq!(world.git(&["show", &format!("{branch}:n/f")]), "new\n");
    world.git(&["fsck", "--strict", "--full"]);
    // Neither the current branch nor the work tree has changed, and nothing of the host ran.
    assert_eq!((world.git(&["rev-parse", "HEAD"]), world.read("a.txt")), (head, "alpha\n".into()));
    assert!(!canary.exists());
    // A second time it is there already, under another name it is another branch.
    assert!(apply(world, &[]).stderr.contains("already in"));
    apply(world, &["--branch", "review/x"]).succeeds();
    let history = world.stockade(&["history", "--json"]).finish().json();
    let decisions = history["decisions"].as_array().unwrap();
    assert_eq!(decisions.len(), 2, "{history}");
    for decision in decisions {
        assert_eq!((&decision["action"], &decision["paths"]), (&"commits".into(), &2.into()));
    }
    for bad in ["../x", "main", "HEAD", "-x", "a..b", "refs.lock"] {
        let refused = apply(world, &["--branch", bad]);
        assert!(refused.code() != 0, "{bad}: {refused}");
    }
    world.git(&["merge", "-q", "review/x"]);
    assert_eq!(world.read("a.txt"), "two\n");
    assert_eq!(branches(world).lines().count(), 3);
}

fn an_amended_commit_and_a_merge_are_taken(world: &World) {
    world.git(&["commit", "-q", "--allow-empty", "-m", "second"]);
    commit(
        world,
        "git checkout -q -b side HEAD~1; echo s > side; git add side; git commit -qm side; \
         git checkout -q main; git commit -q --amend --allow-empty -m amended; \
         git merge -q --no-edit side",
    );
    apply(world, &["--branch", "taken"]).succeeds();
    let log = world.git(&["log", "--format=%s", "taken"]);
    assert!(log.contains("amended") && log.contains("side") && !log.contains("second"), "{log}");
    assert_eq!(world.git(&["show", "taken:side"]), "s\n");
    world.git(&["fsck", "--strict"]);
}

fn files_that_tools_execute_need_an_acceptance(world: &World) {
    commit(world, "mkdir -p .vscode; echo {} > .vscode/tasks.json; git add .; git commit -qm x");
    let refused = apply(world, &[]);
    assert!(refused.stderr.contains("EXECUTED_FILE") && refused.code() != 0, "{refused}");
    apply(world, &["--allow-executed"]).succeeds();
}

/// Scripts that leave hostile commits; none of them may reach a branch.
const HOSTILE: &[(&str, &str)] = &[
    (
        "a tree with a .git",
        "python3 -c \"import hashlib,zlib,os,subprocess,sys
def put(kind,data):
    raw=kind+b' %d\\\\0'%len(data)+data; n=hashlib.sha1(raw).hexdigest(); d='.git/objects/'+n[:2]; os.makedirs(d,exist_ok=True)
    open(d+'/'+n[2:],'wb').write(zlib.compress(raw)); return bytes.fromhex(n)
blob=put(b'blob',b'evil'); sub=put(b'tree',b'100644 config\\\\0'+blob)
top=put(b'tree',b'40000 .git\\\\0'+sub); print(top.hex())\" > /tmp/t; \
         git update-ref HEAD $(git commit-tree -p HEAD -m evil $(cat /tmp/t)) --no-deref",
    ),
    (
        "a tree that leaves",
        "python3 -c \"import hashlib,zlib,os
def put(kind,data):
    raw=kind+b' %d\\\\0'%len(data)+data; n=hashlib.sha1(raw).hexdigest(); d='.git/objects/'+n[:2]; os.makedirs(d,exist_ok=True)
    open(d+'/'+n[2:],'wb').write(zlib.compress(raw)); return bytes.fromhex(n)
blob=put(b'blob',b'evil')
print(put(b'tree',b'100644 ../x\\\\0'+blob).hex())\" > /tmp/t; \
         git update-ref HEAD $(git commit-tree -p HEAD -m evil $(cat /tmp/t)) --no-deref",
    ),
    (
        "an object under another name",
        "echo x > x; git add x; git commit -qm x; o=$(git rev-parse HEAD:x); \
         f=.git/objects/$(echo $o | cut -c1-2)/$(echo $o | cut -c3-); chmod u+w $f; \
         p=$(echo y | git hash-object -w --stdin); \
         cp .git/objects/$(echo $p | cut -c1-2)/$(echo $p | cut -c3-) $f",
    ),
    ("a missing object", "echo x > x; git add x; git commit -qm x; o=$(git rev-parse HEAD:x); \
         rm -f .git/objects/$(echo $o | cut -c1-2)/$(echo $o | cut -c3-)"),
    ("another root", "git checkout -q --orphan other; git commit -qm root"),
    (
        "a graft that invents a base",
        "git checkout -q --orphan other; git commit -qm root; \
         git replace --graft HEAD $(git rev-parse main)",
    ),
    ("a submodule", "git update-index --add --cacheinfo 160000,$(git rev-parse HEAD),sub; git commit -qm x"),
    (
        "a submodule's address",
        "printf '[submodule \"x\"]\\n path = x\\n url = ext::sh -c evil\\n' > .gitmodules; git add .; git commit -qm x",
    ),
    ("a link that leaves", "ln -s ../../etc/passwd l; git add .; git commit -qm x"),
    (
        "a link on the way that is gone in the end",
        "ln -s /root/.ssh l; git add .; git commit -qm x; git rm -q l; git commit -qm y",
    ),
    ("a bare repository", "mkdir -p b/objects b/refs; echo x > b/HEAD; echo x > b/objects/x; echo x > b/refs/x; \
         git add .; git commit -qm x"),
    (
        "a tree of many trees",
        "t=$(echo x | git hash-object -w --stdin | sed 's/^/100644 blob /; s/$/\tf/' | git mktree); \
         for n in 1 2 3 4 5 6 7; do \
         t=$(for i in 1 2 3 4 5 6 7 8 9 a b c d e f g; do printf '040000 tree %s\t%s\n' $t $i; done | git mktree); \
         done; git update-ref --no-deref HEAD $(git commit-tree -p HEAD -m bomb $t)",
    ),
    ("no object at all", "rm -rf .git/refs/heads/main; echo 1111111111111111111111111111111111111111 > .git/HEAD"),
    ("a damaged pack", "echo x > x; git add x; git commit -qm x; git repack -adq; \
         p=$(ls .git/objects/pack/*.pack | tail -1); chmod u+w $p; printf 'XXXXXXXXXXXX' | dd of=$p bs=1 seek=20 conv=notrunc 2> /dev/null"),
];

fn refuse(world: &World, cases: &[(&str, &str)]) {
    let before = branches(world);
    for (name, script) in cases {
        let outcome = world.run(&["--review"], &["sh", "-c", &format!("{IDENTITY}{script}")]);
        outcome.succeeds();
        let refused = apply(world, &["--allow-executed", "--allow-unseen", "--branch", "evil"]);
        assert!(refused.code() != 0, "{name}: {refused}");
        assert!(refused.stderr.contains('['), "{name} has no code: {refused}");
        assert_eq!(branches(world), before, "{name}");
        world.git(&["fsck", "--strict"]);
        world.stockade(&["reject", "latest", "--yes"]).finish().succeeds();
    }
}

fn hostile_objects_reach_no_branch(world: &World) {
    refuse(world, &HOSTILE[..4]);
}

fn hostile_histories_reach_no_branch(world: &World) {
    refuse(world, &HOSTILE[4..9]);
}

fn hostile_commits_reach_no_branch(world: &World) {
    refuse(world, &HOSTILE[9..]);
}

/// The objects of the host that a command does not see are none that a sandbox can name.
fn references_that_leave_are_not_followed(world: &World) {
    let outside = world.path("outside-ref");
    fs::write(&outside, "1111111111111111111111111111111111111111\n").unwrap();
    let script = format!(
        "rm .git/HEAD; printf 'ref: ../../{0}\\n' > .git/HEAD; echo x > x; \
         mkdir -p .git/objects/info; echo {1} > .git/objects/info/alternates",
        "outside-ref",
        world.path("outside").display()
    );
    world.review(&script);
    let refused = apply(world, &[]);
    assert!(refused.code() != 0 && refused.stderr.contains("NOT_FOUND"), "{refused}");
}

as_root_and_as_user! {
    commits_are_shown_and_taken_to_a_branch,
    an_amended_commit_and_a_merge_are_taken,
    files_that_tools_execute_need_an_acceptance,
    hostile_objects_reach_no_branch,
    hostile_histories_reach_no_branch,
    hostile_commits_reach_no_branch,
    references_that_leave_are_not_followed,
}
