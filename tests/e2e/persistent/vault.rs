//! The vault: secrets that are stored sealed, and delivered to one command or to a file in memory. At
//! the end of each test, the value is looked for in everything that is left.

use std::path::{Path, PathBuf};

use serde_json::Value;

use super::{call, create, sh};
use crate::call::Outcome;
use crate::daemons::{kill_server, servers, wait_until};
use crate::harness::World;

const CANARY: &str = "canary-7f3a-Zq83hTnw04LxvUe7";

/// `stockade secrets WORDS` with an input.
fn secrets(world: &World, words: &[&str], input: &str) -> Outcome {
    world.stockade(&[&["secrets"], words].concat()).input(input).finish()
}

/// The processes of this machine whose arguments or environment contain a text.
fn processes_with(text: &str) -> Vec<PathBuf> {
    let own = std::process::id().to_string();
    let entries = std::fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path());
    let is_process = |path: &PathBuf| {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        name.bytes().all(|byte| byte.is_ascii_digit()) && name != own
    };
    let holds = |file: &Path| {
        let content = std::fs::read(file).unwrap_or_default();
        content.windows(text.len()).any(|window| window == text.as_bytes())
    };
    let files =
        entries.filter(is_process).flat_map(|path| [path.join("cmdline"), path.join("environ")]);
    files.filter(|file| holds(file)).collect()
}

/// Nothing that is left contains the value: no file, no record, no process, no answer.
#[track_caller]
fn is_nowhere(world: &World) {
    for root in [world.data(), world.home()] {
        let found = world.files_with(&root, CANARY);
        assert!(found.is_empty(), "{found:?}");
    }
    assert_eq!(processes_with(CANARY), Vec::<PathBuf>::new());
    for words in [
        &["secrets", "list", "--json"][..],
        &["audit", "ls", "--json"],
        &["audit", "export", "--format", "ocsf"],
        &["ls", "--all", "--json"],
        &["events", "--json"],
    ] {
        let outcome = call(world, words);
        outcome.succeeds();
        assert!(!format!("{outcome}").contains(CANARY), "{words:?}");
    }
}

fn a_secret_is_delivered_and_kept_nowhere(world: &World) {
    secrets(world, &["set", "token"], &format!("{CANARY}\n")).succeeds();
    let listed = secrets(world, &["list", "--json"], "");
    listed.succeeds();
    let listed: Value = listed.json();
    assert_eq!(listed["secrets"][0]["name"], "token");
    assert_eq!(listed["secrets"][0]["version"], 1);
    assert!(world.home().join(".config/stockade/vault/key").is_file());
    is_nowhere(world);

    let id = create(world, &[]);
    // Each way to run a command gives it the value, and the next command has none.
    for how in [&[][..], &["--json"], &["--detach"]] {
        // No argument has the whole value.
        let test = r#"test "$TOKEN" = "$(printf %s%s canary-7f3a- Zq83hTnw04LxvUe7)""#;
        let command = ["--secret-env", "TOKEN=token", id.as_str(), "--", "sh", "-c", test];
        let outcome = call(world, &[&["exec"], how, &command].concat());
        outcome.succeeds();
        if how == ["--detach"] {
            call(world, &["wait", outcome.stdout.trim()]).succeeds();
        }
        assert_eq!(sh(world, &id, "echo \"[$TOKEN]\"").stdout, "[]\n");
        is_nowhere(world);
    }

    // The file is in memory, for its owner only.
    secrets(world, &["write", "token", &id, "/run/secrets/app/key"], "").succeeds();
    let looked = sh(
        world,
        &id,
        "stat -f -c %T /run/secrets; stat -c %a /run/secrets/app/key /run/secrets/app; \
         wc -c < /run/secrets/app/key; test -r /run/secrets/app/key && echo read",
    );
    assert_eq!(looked.stdout, format!("tmpfs\n600\n700\n{}\nread\n", CANARY.len()), "{looked}");
    is_nowhere(world);
    // It is not copied out, and no other place is accepted.
    let target = world.outside().join("copied");
    let out = target.to_str().unwrap();
    let copied = call(world, &["cp", &format!("{id}:/run/secrets"), out]);
    assert_ne!(copied.code(), 0, "{copied}");
    assert!(copied.stderr.contains("secret"), "{copied}");
    // Nor one file of it, a link to it, or a directory that is synchronized.
    sh(world, &id, "ln -s /run/secrets/app/key /tmp/link; ln -s /run/secrets /tmp/links")
        .succeeds();
    for (command, from) in [
        ("cp", "/run/secrets/app/key"),
        ("cp", "/tmp/link"),
        ("cp", "/tmp/links"),
        ("cp", "/tmp/links/app/key"),
        ("sync", "/run/secrets"),
        ("sync", "/run/secrets/app"),
        ("sync", "/tmp/links"),
    ] {
        let target = world.outside().join("one");
        let copied = call(world, &[command, &format!("{id}:{from}"), target.to_str().unwrap()]);
        assert_ne!(copied.code(), 0, "{command} {from}: {copied}");
        assert!(world.files_with(&world.outside(), CANARY).is_empty(), "{command} {from}");
    }
    // Nor in a tree around it, whatever its mode is.
    sh(world, &id, "chmod 755 /run/secrets").succeeds();
    call(world, &["cp", &format!("{id}:/run"), world.outside().join("run").to_str().unwrap()]);
    assert!(world.files_with(&world.outside(), CANARY).is_empty());
    is_nowhere(world);
    for place in ["/tmp/key", "/run/secrets/../key", "/root/key"] {
        let refused = secrets(world, &["write", "token", &id, place], "");
        assert!(refused.stderr.contains("PATH_INVALID"), "{refused}");
    }
    // Nor in a snapshot: a sandbox that starts from it has none.
    let taken = call(world, &["snapshot", &id, "--json"]);
    taken.succeeds();
    is_nowhere(world);
    let snapshot = taken.json()["id"].as_str().unwrap().to_owned();
    let restored = call(world, &["restore", &snapshot]);
    restored.succeeds();
    let other = restored.stdout.trim().to_owned();
    assert_eq!(sh(world, &other, "ls -A /run/secrets/ 2>/dev/null | wc -l").stdout, "0\n");

    // A server that is killed knows it again, and the rotated value.
    kill_server(&world.data());
    wait_until("the server has ended", || servers(&world.data()).is_empty());
    secrets(world, &["rotate", "token"], &format!("{CANARY}-2")).succeeds();
    let command = ["exec", "--secret-env", "TOKEN=token", &id, "--", "sh", "-c", "echo ${#TOKEN}"];
    assert_eq!(call(world, &command).stdout, format!("{}\n", CANARY.len() + 2));
    is_nowhere(world);
    secrets(world, &["remove", "token"], "").succeeds();
    let gone = call(world, &command);
    assert!(gone.stderr.contains("SECRET_NOT_FOUND"), "{gone}");
    is_nowhere(world);
    for id in [&id, &other] {
        call(world, &["kill", "--discard", id]).succeeds();
    }
    is_nowhere(world);
}

/// A reference of FireFlow names a secret; a secret of its predecessor is imported.
fn references_and_envelopes(world: &World) {
    let app = r#"{"key": "key-of-the-app", "secretKey": "canary-7f3a-Zq83hTnw04LxvUe7"}"#;
    secrets(world, &["set", "app", "--type", "xApp"], app).succeeds();
    let listed = secrets(world, &["list", "--json"], "").json();
    let file = world.outside().join("app.ffsecret");
    let content = serde_json::json!({
        "version": 1, "secretId": listed["secrets"][0]["id"], "secretType": "xApp", "name": "app",
    });
    world.plant(&file, &content.to_string());
    let id = create(world, &[]);
    let mapping = format!("TOKEN={}#secretKey", file.display());
    let run = |mapping: &str| {
        let script = "echo ${#TOKEN}";
        call(world, &["exec", "--secret-env", mapping, &id, "--", "sh", "-c", script])
    };
    assert_eq!(run(&mapping).stdout, format!("{}\n", CANARY.len()));
    for (mapping, code) in [
        (format!("TOKEN={}", file.display()), "SECRET_FIELD_NOT_FOUND"),
        ("TOKEN=/nowhere/x.ffsecret".to_owned(), "SECRET_REF_NOT_FOUND"),
        ("TOKEN=none".to_owned(), "SECRET_NOT_FOUND"),
        ("LD_PRELOAD=app#key".to_owned(), "INVALID_INPUT"),
    ] {
        let refused = run(&mapping);
        assert!(refused.stderr.contains(code), "{mapping}: {refused}");
    }
    // The vector of the predecessor.
    let cases = include_str!("../../cases/secrets.json");
    let cases: Value = serde_json::from_str(cases).unwrap();
    let vector = &cases[0]["given"]["vector"];
    let (envelope, key) = (world.outside().join("sealed.json"), world.outside().join("key"));
    world.plant(&envelope, &vector["wire"].to_string());
    world.plant(&key, vector["recipient_private_scalar_b64url"].as_str().unwrap());
    let words = ["set", "old", "--type", "xApp", "--envelope", envelope.to_str().unwrap()];
    secrets(world, &[&words[..], &["--recipient-key", key.to_str().unwrap()]].concat(), "")
        .succeeds();
    let script = "echo $A$B";
    let both = ["exec", "--secret-env", "A=old#key", "--secret-env", "B=old#secretKey"];
    let read = call(world, &[&both[..], &[&id, "--", "sh", "-c", script]].concat());
    assert_eq!(read.stdout, "ab\n", "{read}");
    call(world, &["kill", "--discard", &id]).succeeds();
    is_nowhere(world);
}

as_root_and_as_user![a_secret_is_delivered_and_kept_nowhere, references_and_envelopes];
