//! What the caller has access to and the command must not: files, environment, keys.

use std::fs;
use std::path::Path;

use crate::harness::World;
use crate::host;

/// The caller's own dot files, those of another user, and everything beside the project.
fn files_outside_the_project(world: &World) {
    let (first, second) = host::token();
    let word = format!("{first}{second}");
    let places = [
        world.home().join(".ssh/id_ed25519"),
        world.home().join(".config").join(&word),
        world.home().join(".netrc"),
        world.home().join(&word),
        world.outside().join(&word),
        world.data().join("bundles").join(&word),
        world.path(&word),
    ];
    for dir in &places {
        world.plant(dir, &word);
        let path = dir.to_str().unwrap();
        world.attack_bare(&["read", path]).escaped();
        world.attack(&["read", path]).is_blocked();
    }
    world.attack(&["find", &word]).is_blocked();
}

fn shadow_and_host_keys(world: &World) {
    world.attack(&["read", "/etc/shadow"]).is_blocked();
    let mut words = vec!["read".to_owned()];
    let absent = [
        "/etc/gshadow",
        "/etc/sudoers",
        "/etc/machine-id",
        "/etc/ssh",
        "/etc/crontab",
        "/root",
        "/home",
        "/home/user",
        "/var/log",
        "/var/spool/cron",
        "/boot",
        "/srv",
        "/mnt",
        "/media",
    ];
    words.extend(absent.map(str::to_owned));
    let words: Vec<_> = words.iter().map(String::as_str).collect();
    let outcome = world.attack(&words);
    // An empty directory of that name reveals nothing; any name or byte in it would.
    let listing = world.shell(&format!("ls -A {} 2>/dev/null", absent.join(" ")));
    let names: Vec<_> =
        listing.stdout.lines().filter(|line| !line.is_empty() && !line.ends_with(':')).collect();
    // The sandbox's own home exists, and is empty and has the same name for every caller.
    assert_eq!(names, ["user"], "seen; {outcome}");
    world.shell("cat /etc/shadow").ends_with(1);
}

/// What everybody may read, except for what identifies the host or holds keys.
fn etc_follows_a_rule(world: &World) {
    let (first, second) = host::token();
    let listing = world.shell("ls -A /etc");
    listing.succeeds();
    let names: Vec<_> = listing.stdout.lines().collect();
    let host_count = fs::read_dir("/etc").unwrap().count();
    assert!(names.len() < host_count, "{names:?}");
    for name in [
        "shadow",
        "shadow-",
        "gshadow",
        "sudoers",
        "ssh",
        "machine-id",
        "hosts.allow",
        "passwd-",
        "subuid",
        "gitconfig",
        "pip.conf",
        "fstab",
        "crontab",
        "docker",
        "kubernetes",
        "krb5.keytab",
        "NetworkManager",
    ] {
        assert!(!names.contains(&name), "{name} is seen");
    }
    // Accounts of the host must not be visible inside.
    let passwd = world.shell("cat /etc/passwd").stdout;
    assert!(passwd.lines().count() < 20, "{passwd}");
    drop((first, second));
}

/// Removes a directory of `/etc` when dropped.
struct Planted(std::path::PathBuf);

impl Drop for Planted {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Secrets lie under any name of `/etc`; what is shown there is shown to every user of the host too.
fn secrets_of_etc(world: &World) {
    use std::os::unix::fs::PermissionsExt as _;
    if !crate::harness::tests_run_as_root() {
        crate::harness::skip("escape::secrets::secrets_of_etc", "only root may write to /etc");
        return;
    }
    let (first, second) = host::token();
    let secret = format!("{first}{second}");
    let id = std::process::id();
    let planted = Planted(format!("/etc/e2e-{:?}-{id}", world.identity).to_lowercase().into());
    let at = |name: &str| planted.0.join(name);
    fs::create_dir_all(at("private")).unwrap();
    let write = |name: &str, mode: u32, text: String| {
        fs::write(at(name), text).unwrap();
        fs::set_permissions(at(name), fs::Permissions::from_mode(mode)).unwrap();
    };
    write("plain.conf", 0o644, "value\n".into());
    write("owner-only.conf", 0o600, secret.clone());
    write("group.conf", 0o640, secret.clone());
    write("tool.key", 0o644, secret.clone());
    write("private/x", 0o644, secret.clone());
    write("api-token", 0o644, secret.clone());
    write("old.conf~", 0o644, secret.clone());
    write("any.pem", 0o644, format!("-----BEGIN PRIVATE KEY-----\n{secret}\n"));
    write("env.conf", 0o644, format!("export SERVICE_TOKEN={secret}\n"));
    write("repo.list", 0o644, format!("deb https://me:{secret}@example.com/ x\n"));
    std::os::unix::fs::symlink("private/x", at("link")).unwrap();
    let directory = planted.0.display();
    let script =
        format!("cat {directory}/plain.conf; grep -r . /etc 2> /dev/null; cat {directory}/*");
    let outcome = world.shell(&script);
    assert!(outcome.stdout.starts_with("value\n"), "{outcome}");
    assert!(!outcome.stdout.contains(&secret), "{outcome}");
    world.stockade(&["create", "--id", "etc"]).finish().succeeds();
    let held = world.stockade(&["exec", "etc", "--", "sh", "-c", &script]).finish();
    assert!(held.stdout.starts_with("value\n") && !held.stdout.contains(&secret), "{held}");
}

fn environment(world: &World) {
    let (first, second) = host::token();
    let secret = format!("{first}{second}");
    let names = [
        "AWS_SECRET_ACCESS_KEY",
        "SSH_AUTH_SOCK",
        "GITHUB_TOKEN",
        "LD_PRELOAD",
        "LD_LIBRARY_PATH",
        "ANTHROPIC_API_KEY",
        "DBUS_SESSION_BUS_ADDRESS",
        "XDG_RUNTIME_DIR",
        "BASH_ENV",
        "GIT_DIR",
        "HTTPS_PROXY",
        "STOCKADE_DATA_DIR",
        "RUST_LOG",
    ];
    let mut call = world.stockade(&["run", "--discard", "--", "env"]);
    for name in names {
        call = call.env(name, &secret);
    }
    // The loop also set this variable, with which Stockade would use another data directory.
    let outcome = call.env("STOCKADE_DATA_DIR", world.data()).finish();
    outcome.succeeds();
    assert!(!outcome.stdout.contains(&secret), "{outcome}");
    // The proxy is the sandbox's own, which refuses everything.
    for name in names.into_iter().filter(|name| *name != "HTTPS_PROXY") {
        assert!(!outcome.stdout.contains(&format!("{name}=")), "{name}: {outcome}");
    }
    let home = world.home().display().to_string();
    let data = world.data().display().to_string();
    assert!(!outcome.stdout.contains(&data), "{outcome}");
    assert!(outcome.stdout.contains("HOME=") && outcome.stdout.contains("PATH="), "{outcome}");
    let words = ["run", "--discard", "--", "./probe", "environments", &first, &second];
    let held = world.stockade(&words).env("A_SECRET", &secret).finish();
    held.is_blocked();
    drop(home);
}

/// Variables that are passed explicitly arrive, and no others.
fn environment_by_request(world: &World) {
    let outcome = world
        .stockade(&[
            "run",
            "--discard",
            "--env",
            "GIVEN=a value\nof two lines",
            "--env",
            "EMPTY=",
            "--",
            "sh",
            "-c",
            "printf %s \"$GIVEN\"; test -n \"${EMPTY+set}\"; env | grep -c TOKEN",
        ])
        .env("TOKEN", "secret")
        .finish();
    assert_eq!(outcome.stdout, "a value\nof two lines0\n", "{outcome}");
}

/// The home and /tmp are new: empty, and removed afterwards.
fn home_and_tmp_are_fresh(world: &World) {
    let (first, second) = host::token();
    let word = format!("{first}{second}");
    let script = format!(
        "ls -A \"$HOME\" /tmp; for d in \"$HOME\" /tmp; do echo x > $d/{word} || exit 1; done"
    );
    let outcome = world.shell(&script);
    outcome.succeeds();
    let again = world.shell(&script);
    assert!(!again.stdout.contains(&word), "{again}");
    assert!(!Path::new("/tmp").join(&word).exists());
    assert!(world.files_with(&world.home(), &word).is_empty());
    // The audit records have the command that the user typed.
    let mut left = world.files_with(&world.data(), &word);
    left.retain(|path| !path.starts_with(world.data().join("audit")));
    assert!(left.is_empty(), "left behind in the data directory: {left:?}");
}

/// Shared memory of other processes of the host that has a name.
fn shared_memory_files(world: &World) {
    let (first, second) = host::token();
    let word = format!("{first}{second}");
    let path = Path::new("/dev/shm").join(&word);
    if fs::write(&path, &word).is_err() {
        crate::harness::skip("shared_memory_files", "/dev/shm cannot be written");
        return;
    }
    let outcome = world.attack(&["read", path.to_str().unwrap()]);
    fs::remove_file(&path).unwrap();
    outcome.is_blocked();
    world.shell(&format!("echo x > /dev/shm/{word}"));
    assert!(!path.exists());
}

/// A data directory inside the project would show every bundle to every command.
fn data_directory_in_the_project(world: &World) {
    let data = world.project.join("state");
    fs::create_dir(&data).unwrap();
    world.chown(&data);
    let run = |words: &[&str]| {
        let mut all = vec!["run", "--review", "--"];
        all.extend(words);
        world.stockade(&all).env("STOCKADE_DATA_DIR", &data).finish()
    };
    run(&["sh", "-c", "echo a-first-secret > made"]);
    let second = run(&[
        "sh",
        "-c",
        "grep -r a-first-secret state; ls state/*; \
        mkdir -p state/bundles/x && echo forged > state/bundles/x/manifest.json",
    ]);
    assert!(!second.stdout.contains("a-first-secret"), "{second}");
    assert!(!data.join("bundles/x").exists(), "a bundle was forged");
}

fn keyring(world: &World) {
    world.attack(&["syscall", "keyctl", "add_key", "request_key"]).is_blocked();
    let outcome = world.shell("cat /proc/keys /proc/key-users");
    assert_eq!(outcome.stdout, "", "{outcome}");
}

as_root_and_as_user![
    files_outside_the_project,
    shadow_and_host_keys,
    etc_follows_a_rule,
    secrets_of_etc,
    environment,
    environment_by_request,
    home_and_tmp_are_fresh,
    shared_memory_files,
    data_directory_in_the_project,
    keyring,
];
