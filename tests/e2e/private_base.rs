//! `--private-base`: a sandbox sees a copy of the system directories and none of the host's files.
//! The copy of a whole system takes gigabytes, so `/usr` is replaced by a small one for these tests.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use crate::call::Outcome;
use crate::harness::{Identity, World};

/// Makes `usr` in the world: a shell, some programs and their libraries.
const MAKE_USR: &str = r#"
    mkdir -p "$usr/bin" "$usr/sbin" "$usr/lib" "$usr/lib64" "$usr/share"
    printf AAAA > "$usr/share/mark"
    for name in sh cat stat ls dd chmod setpriv mount mkdir sleep stockade stockade-server; do
        file=$(command -v $name)
        case $name in stockade*) ;; *) cp -L "$file" "$usr/bin/$name" ;; esac
        { ldd "$file" 2>/dev/null || true; } | while read -r word arrow path rest; do
            case $arrow in '=>') found=$path ;; *) found=$word ;; esac
            case $found in
                /*) to="$usr/${found#/usr}"; mkdir -p "${to%/*}"; cp -Ln "$found" "$to" ;;
            esac
        done
    done
"#;

/// Runs a shell script where `/usr` is small, which no other process sees. All processes end with
/// it. `before` runs with the rights to mount.
fn with_small_usr(world: &World, before: &str, script: &str) -> Outcome {
    let mut words = vec!["--mount", "--propagation=private", "--pid", "--fork", "--mount-proc"];
    let weaken = match world.identity {
        Identity::Root => "exec",
        Identity::User => {
            words.extend(["--user", "--map-current-user", "--keep-caps"]);
            "exec setpriv --inh-caps=-all --ambient-caps=-all"
        }
    };
    let path = format!("PATH={}:$PATH; export PATH", world.binary().parent().unwrap().display());
    let usr = world.outside().join("usr");
    let mount = format!(
        "set -e; {path}; usr='{}'; {MAKE_USR} mount --bind \"$usr\" /usr; {before}
         {weaken} sh -ec \"$0\"",
        usr.display()
    );
    words.extend(["sh", "-c", &mount, script]);
    world.on_host(Path::new("/usr/bin/unshare"), &words).finish()
}

/// The device and the inode of each file that `/proc/self/maps` names.
fn mapped(text: &str) -> Vec<(String, String, u64)> {
    let lines = text.lines().filter_map(|line| {
        let mut words = line.split_ascii_whitespace().skip(3);
        let (device, inode, path) = (words.next()?, words.next()?, words.next()?);
        path.starts_with('/').then(|| (path.to_owned(), device.to_owned(), inode.parse().unwrap()))
    });
    lines.collect()
}

fn a_run_maps_no_file_of_the_host(world: &World) {
    let outcome = with_small_usr(
        world,
        "",
        "stockade run --discard --private-base -- sh -c 'cat /proc/self/maps'
         echo ==
         stockade run --discard --private-base -- sh -c 'cat /proc/self/mountinfo'
         stockade run --discard --private-base -- stat -c 'inode %i' /usr/bin/sh
         stockade run --discard -- stat -c 'inode %i' /usr/bin/sh",
    );
    outcome.succeeds();
    let (maps, rest) = outcome.stdout.split_once("==\n").unwrap();
    let mapped = mapped(maps);
    for part in ["/cat", "libc.so", "ld-linux"] {
        assert!(mapped.iter().any(|(path, ..)| path.contains(part)), "{part}: {outcome}");
    }
    let usr = world.outside().join("usr");
    for (path, device, inode) in &mapped {
        let below = path.strip_prefix("/usr").unwrap_or(path).trim_start_matches('/');
        let host = fs::metadata(usr.join(below)).unwrap();
        let (major, minor) = (rustix::fs::major(host.dev()), rustix::fs::minor(host.dev()));
        let of_host = (format!("{major:02x}:{minor:02x}"), host.ino());
        assert_ne!((device.clone(), *inode), of_host, "{path}: {outcome}");
    }
    assert!(!rest.contains(&world.data().display().to_string()), "{outcome}");
    let inodes: Vec<_> = rest.lines().filter_map(|line| line.strip_prefix("inode ")).collect();
    let host = fs::metadata(usr.join("bin/sh")).unwrap().ino().to_string();
    assert_eq!(inodes.len(), 2, "{outcome}");
    assert_ne!(inodes[0], host, "{outcome}");
    assert_eq!(inodes[1], host, "{outcome}");
}

/// What is written to a file of the one side is not seen on the other: not the same pages either.
fn writing_to_the_copy_does_not_change_the_host(world: &World) {
    let outcome = with_small_usr(
        world,
        "",
        "stockade create --id private --private-base
         stockade create --id plain
         write() { printf $1 | dd of=$2 conv=notrunc 2>/dev/null; }
         see() { stockade exec $1 -- cat /usr/share/mark; echo \" $1\"; }
         see private; see plain
         write BBBB /usr/share/mark
         see private; see plain
         write CCCC $STOCKADE_DATA_DIR/bases/*/root/usr/share/mark
         see private; see plain; cat /usr/share/mark; echo ' host'
         stockade exec private -- sh -c 'echo x > /usr/share/mark' && echo WRITTEN
         stockade base --json
         stockade base --rm
         stockade kill private plain
         stockade base --rm",
    );
    outcome.succeeds();
    let lines: Vec<_> = outcome.stdout.lines().filter(|line| line.contains(' ')).collect();
    let seen = [
        "AAAA private",
        "AAAA plain",
        "AAAA private",
        "BBBB plain",
        "CCCC private",
        "BBBB plain",
        "BBBB host",
    ];
    assert_eq!(lines[..seen.len()], seen, "{outcome}");
    assert!(!outcome.stdout.contains("WRITTEN"), "{outcome}");
    assert!(outcome.stdout.contains("\"sizeBytes\""), "{outcome}");
    assert!(outcome.stdout.contains("0 removed, 0 MiB freed, 1 in use"), "{outcome}");
    assert!(outcome.stdout.contains("1 removed"), "{outcome}");
}

/// Nothing is written where the copy would not fit, and the error says how much is missing.
fn a_full_disk_is_found_before_anything_is_written(world: &World) {
    let mount = format!("mount -t tmpfs -o size=32m,mode=700 small '{}'", world.data().display());
    let outcome = with_small_usr(
        world,
        &mount,
        "stockade run --discard --json --private-base -- true || echo code $?
         stockade create --private-base --json || true
         ls $STOCKADE_DATA_DIR/bases",
    );
    outcome.succeeds();
    assert!(outcome.stdout.contains("code 125"), "{outcome}");
    let all = format!("{}{}", outcome.stdout, outcome.stderr);
    assert_eq!(outcome.stdout.matches("STORAGE_FULL").count(), 2, "{outcome}");
    assert!(all.contains("MiB") && all.contains("STOCKADE_DATA_DIR"), "{outcome}");
    assert!(outcome.stdout.trim_end().ends_with("lock"), "{outcome}");
}

/// A directory of the host as root would share its files.
fn a_directory_as_root_is_refused(world: &World) {
    let image = world.outside().join("image");
    fs::create_dir(&image).unwrap();
    for arguments in [
        vec!["run", "--json", "--private-base", "--image", image.to_str().unwrap(), "--", "true"],
        vec!["create", "--json", "--private-base", "--image", image.to_str().unwrap()],
    ] {
        let outcome = world.stockade(&arguments).finish();
        assert_ne!(outcome.code(), 0, "{outcome}");
        let all = format!("{}{}", outcome.stdout, outcome.stderr);
        assert!(all.contains("INVALID_INPUT") && all.contains("private base"), "{outcome}");
    }
    assert!(!world.data().join("bases").exists());
}

/// `doctor` says what is shared, without making anything.
fn doctor_says_what_is_shared(world: &World) {
    let json = world.stockade(&["doctor", "--json"]).finish().json();
    let shared = json["shared"].as_array().unwrap();
    let with = |name: &str| {
        let part = shared.iter().find(|part| part["name"] == name).unwrap();
        part["with"].as_str().unwrap().to_owned()
    };
    for (name, owner) in
        [("system", "host"), ("private-base", "owner"), ("images", "owner"), ("changes", "none")]
    {
        assert_eq!(with(name), owner);
    }
}

as_root_and_as_user!(
    a_run_maps_no_file_of_the_host,
    writing_to_the_copy_does_not_change_the_host,
    a_full_disk_is_found_before_anything_is_written,
    a_directory_as_root_is_refused,
    doctor_says_what_is_shared,
);
