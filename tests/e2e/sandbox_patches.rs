//! Patches that the command of a `<Sandbox>` writes below `/result/patches`: they are shown, decided about and
//! applied as other changes are, or refused.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};

use serde_json::{Value, json};

use crate::harness::World;
use crate::sandbox::{call, events, inspect, types};

/// A workflow file whose sandbox executes a command, and writes these files below `patches`.
fn flow(world: &World, name: &str, command: &str, patches: &[(&str, String)]) -> String {
    let written: String = patches
        .iter()
        .map(|(file, text)| format!("cat > /result/patches/{file} <<'END'\n{text}END\n"))
        .collect();
    let command = format!("mkdir -p /result/patches\n{written}{command}\necho '{{\"n\": 1}}'");
    let source = format!(
        "/** @jsxImportSource smithers-orchestrator */\n\
         import {{ createSmithers, Sandbox }} from \"smithers-orchestrator\";\n\
         const {{ Workflow, smithers, outputs }} = createSmithers({{ output: {{}} }});\n\
         export default smithers((ctx) => (<Workflow name=\"w\">\
           <Sandbox id=\"box\" output={{outputs.output}} retries={{0}} command={{{}}} />\
         </Workflow>));\n",
        json!(command)
    );
    world.write(&format!("{name}.tsx"), source).to_str().unwrap().to_owned()
}

fn start(
    world: &World,
    name: &str,
    command: &str,
    patches: &[(&str, String)],
) -> crate::call::Outcome {
    let file = flow(world, name, command, patches);
    call(world, &["up", &file, "--run-id", name])
}

fn edit(path: &str, old: &str, new: &str) -> String {
    format!("--- a/{path}\n+++ b/{path}\n@@ -1 +1 @@\n-{old}\n+{new}\n")
}

fn added(path: &str, mode: &str, text: &str) -> String {
    format!(
        "diff --git a/{path} b/{path}\nnew file mode {mode}\n--- /dev/null\n+++ b/{path}\n\
         @@ -0,0 +1 @@\n+{text}\n"
    )
}

fn requested(world: &World, run: &str) -> Value {
    let recorded = events(world, run);
    let is_request = |event: &&Value| event["type"] == "SandboxDiffReviewRequested";
    recorded.iter().find(is_request).unwrap_or_else(|| panic!("{recorded:?}")).clone()
}

/// What `git` makes of changes in the copy inside is applied here: edits, moves, modes and binary contents.
fn patches_of_git_wait_for_a_decision_and_are_applied(world: &World) {
    world.write("moved.txt", "all of this moves\n");
    world.write("run.sh", "#!/bin/sh\n");
    world.write("gone.txt", "gone\n");
    fs::write(world.project.join("data.bin"), [[0, 159], [146, 150]].concat().repeat(200)).unwrap();
    let command = "cp -r /workspace /tmp/copy; cd /tmp/copy\n\
        echo beta > a.txt; mv moved.txt here.txt; chmod +x run.sh; rm gone.txt\n\
        printf '\\000\\001' >> data.bin; printf '\\000\\002' > new.bin\n\
        git add . && git diff --cached --binary -M > /result/patches/all.patch || exit 9\n\
        touch /result/patches/none.patch";
    let file = flow(world, "git", command, &[]);
    world.git(&["init", "--quiet"]);
    world.git(&["add", "."]);
    world.git(&["commit", "--quiet", "--message", "more"]);
    call(world, &["up", &file, "--run-id", "git"]).ends_with(3);
    let request = requested(world, "git");
    assert_eq!(request["bundles"].as_array().unwrap().len(), 1, "{request}");
    let bundle = request["bundles"][0].as_str().unwrap().to_owned();
    let shown = call(world, &["diff", &bundle]);
    let shown = shown.succeeds();
    assert!(shown.stdout.contains("+beta") && shown.stdout.contains("here.txt"), "{shown}");
    assert_eq!(world.read("a.txt"), "alpha\n");

    call(world, &["approve", "git", "box"]).succeeds();
    assert_eq!(world.read("a.txt"), "beta\n");
    assert_eq!(world.read("here.txt"), "all of this moves\n");
    assert!(!world.has("moved.txt") && !world.has("gone.txt"));
    let mode = fs::metadata(world.project.join("run.sh")).unwrap().permissions().mode();
    assert_eq!(mode & 0o111, 0o111, "{mode:o}");
    let data = fs::read(world.project.join("data.bin")).unwrap();
    assert!(data.len() == 802 && data.ends_with(&[0, 1]), "{}", data.len());
    assert_eq!(fs::read(world.project.join("new.bin")).unwrap(), [0, 2]);
    let run = crate::sandbox::finished_run(world, "git");
    assert_eq!(run["run"]["output"], json!({ "n": 1 }), "{run}");
}

/// A command that changes its workspace and writes the same change as a patch has made it once.
fn a_change_that_is_a_patch_too_is_made_once(world: &World) {
    let patch = [("x.patch", edit("a.txt", "alpha", "beta"))];
    start(world, "same", "echo beta > a.txt", &patch).ends_with(3);
    let request = requested(world, "same");
    assert_eq!(request["bundles"].as_array().unwrap().len(), 1, "{request}");
    assert_eq!(request["patchCount"], 1, "{request}");
    call(world, &["deny", "same", "box"]).succeeds();
    assert_eq!(world.read("a.txt"), "alpha\n");
    assert_eq!(world.bundles().len(), 0);

    let other = [("y.patch", added("new.txt", "100644", "new"))];
    start(world, "both", "echo beta > a.txt; echo b > b.txt", &other).ends_with(3);
    assert_eq!(requested(world, "both")["bundles"].as_array().unwrap().len(), 2);
    call(world, &["approve", "both", "box", "--only", "new.txt"]).succeeds();
    assert_eq!(world.read("new.txt"), "new\n");
    assert!(world.read("a.txt") == "alpha\n" && !world.has("b.txt"));
    assert_eq!(world.bundles().len(), 0);

    let outcome = start(world, "other", "echo gamma > a.txt", &patch);
    outcome.ends_with(1);
    assert!(outcome.stderr.contains("a.txt is changed by `patches`"), "{outcome}");
    assert_eq!(world.bundles().len(), 0, "changes of failed children wait");
}

/// No patch gets out of the project, into `.git`, through a link, or past what was announced.
fn hostile_patches_are_refused(world: &World) {
    let outside = world.outside();
    let before = fs::read_dir(&outside).unwrap().count();
    symlink(&outside, world.project.join("out")).unwrap();
    world.git(&["init", "--quiet"]);
    world.write("moved.txt", "moved\n");
    let link = |target: &str| {
        format!(
            "diff --git a/l b/l\nnew file mode 120000\n--- /dev/null\n+++ b/l\n@@ -0,0 +1 @@\n\
             +{target}\n\\ No newline at end of file\n"
        )
    };
    let moved = |from: &str, to: &str| {
        format!(
            "diff --git a/{from} b/{to}\nsimilarity index 100%\nrename from {from}\nrename to {to}\n"
        )
    };
    let binary = "diff --git a/.git/config b/.git/config\nindex 1..2 100644\nGIT binary patch\n\
                  literal 0\nHcmV?d00001\n\n";
    let cases: Vec<(&str, String, &str)> = vec![
        ("up", added("../outside/x", "100644", "x"), "INVALID_INPUT"),
        ("absolute", edit("/etc/hostname", "a", "b"), "INVALID_INPUT"),
        ("hook", added(".git/hooks/post-commit", "100755", "evil"), "TOOL_PATH_ESCAPE"),
        ("case", added("sub/.GIT/config", "100644", "evil"), "TOOL_PATH_ESCAPE"),
        ("through", added("out/x", "100644", "x"), "TOOL_PATH_ESCAPE"),
        ("link", link("../outside"), "INVALID_INPUT"),
        ("linked", format!("{}{}", link("a.txt"), added("l/x", "100644", "x")), "INVALID_INPUT"),
        ("rename", moved("moved.txt", ".git/hooks/pre-commit"), "TOOL_PATH_ESCAPE"),
        ("rename-out", moved("moved.txt", "../outside/x"), "INVALID_INPUT"),
        ("take", moved(".git/config", "seen.txt"), "TOOL_PATH_ESCAPE"),
        ("copy", moved(".git/config", "seen.txt").replace("rename ", "copy "), "TOOL_PATH_ESCAPE"),
        ("binary", binary.to_owned(), "TOOL_PATH_ESCAPE"),
        ("other", edit("a.txt", "beta", "b"), "TOOL_PATCH_FAILED"),
    ];
    let names: Vec<&str> = cases.iter().map(|(name, ..)| *name).collect();
    let boxes: String = cases
        .iter()
        .map(|(name, patch, _)| {
            let command = format!(
                "mkdir -p /result/patches; cat > /result/patches/x.patch <<'END'\n{patch}END\necho '{{}}'"
            );
            format!(
                "<Sandbox id=\"{name}\" output={{outputs.output}} retries={{0}} autoAcceptDiffs \
                   continueOnFail onLimit=\"wait\" command={{{}}} />",
                json!(command)
            )
        })
        .collect();
    let source = format!(
        "/** @jsxImportSource smithers-orchestrator */\n\
         import {{ createSmithers, Parallel, Sandbox }} from \"smithers-orchestrator\";\n\
         const {{ Workflow, smithers, outputs }} = createSmithers({{ output: {{}} }});\n\
         export default smithers((ctx) => (<Workflow name=\"w\"><Parallel>{boxes}</Parallel></Workflow>));\n"
    );
    let settings = fs::read(world.project.join(".git/config")).unwrap();
    let file = world.write("hostile.tsx", source);
    call(world, &["up", file.to_str().unwrap(), "--run-id", "hostile"]).succeeds();
    let tasks = inspect(world, "hostile")["tasks"].clone();
    for (name, _, code) in &cases {
        let is_it = |task: &&Value| task["id"] == *name;
        let task = tasks.as_array().unwrap().iter().find(is_it).unwrap();
        assert_eq!(task["error"]["code"], *code, "{name}: {task}");
    }
    assert_eq!(names.len(), tasks.as_array().unwrap().len());
    let recorded = events(world, "hostile");
    assert!(!types(&recorded).contains(&"SandboxDiffAccepted"), "{recorded:?}");
    assert_eq!(fs::read_dir(&outside).unwrap().count(), before);
    assert_eq!(fs::read(world.project.join(".git/config")).unwrap(), settings);
    assert!(!world.project.join(".git/hooks/post-commit").exists());
    assert!(!world.has("seen.txt") && !world.has("l") && world.has("moved.txt"));
    assert_eq!(world.read("a.txt"), "alpha\n");
    assert_eq!(world.bundles().len(), 0, "changes of failed children wait");
}

as_root_and_as_user![
    patches_of_git_wait_for_a_decision_and_are_applied,
    a_change_that_is_a_patch_too_is_made_once,
    hostile_patches_are_refused,
];
