//! A process inside that changes everything during an operation: nothing outside is ever read,
//! written or removed, and no operation waits for the process.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{CWD, FileType, Mode, RenameFlags};

use super::{read, write};
use crate::files::testing::{Fixture, path};
use stockade_runtime::WriteOptions;

/// How often each operation is repeated under attack.
const ROUNDS: usize = 60;

/// Runs `attack` repeatedly, as the ordinary user, while `act` runs.
fn while_attacked(fixture: &Fixture, attack: impl Fn() + Sync, act: impl FnOnce()) {
    /// Ends the attack also when the test fails.
    struct End<'a>(&'a AtomicBool);
    impl Drop for End<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _end = End(&done);
        scope.spawn(|| {
            fixture.as_user(|| {
                while !done.load(Ordering::Relaxed) {
                    attack();
                }
            });
        });
        act();
    });
}

/// A directory beside the root that no process inside may reach.
struct Canary(PathBuf);

impl Canary {
    fn beside(fixture: &Fixture) -> Self {
        let canary = fixture.outside.path().join("canary");
        fs::create_dir(&canary).unwrap();
        for name in ["file", "victim"] {
            fs::write(canary.join(name), "outside").unwrap();
        }
        // All users may access it, so that a wrong access succeeds and is detected.
        super::super::testing::chmod(&canary, 0o777);
        Self(canary)
    }

    fn expect_untouched(&self) {
        assert_eq!(fs::read_dir(&self.0).unwrap().count(), 2);
        for name in ["file", "victim"] {
            assert_eq!(fs::read_to_string(self.0.join(name)).unwrap(), "outside");
        }
    }
}

fn exchange(one: &PathBuf, other: &PathBuf) {
    // Another process may have created or removed something there meanwhile.
    let _ = rustix::fs::renameat_with(CWD, one, CWD, other, RenameFlags::EXCHANGE);
}

#[test]
fn a_directory_that_becomes_a_link_leads_nowhere() {
    for fixture in Fixture::all() {
        let canary = Canary::beside(&fixture);
        write(&fixture, "/project/swap/file", b"inside").unwrap();
        write(&fixture, "/project/swap/victim", b"inside").unwrap();
        let (swap, link) = (fixture.at("project/swap"), fixture.at("project/link"));
        fixture.as_user(|| symlink(&canary.0, &link).unwrap());
        let source = fixture.outside.path().join("source");
        fs::create_dir_all(source.join("below")).unwrap();
        fs::write(source.join("below/shipped"), "").unwrap();

        while_attacked(
            &fixture,
            || exchange(&swap, &link),
            || {
                for round in 0..ROUNDS {
                    if let Ok(content) = read(&fixture, "/project/swap/file") {
                        assert_eq!(content, b"inside", "{}", fixture.name);
                    }
                    let _ = write(&fixture, "/project/swap/written", b"");
                    let _ = write(&fixture, "/project/swap/file", b"inside");
                    let _ = fixture.root.remove(&path("/project/swap/victim"));
                    let below = path(format!("/project/swap/{}/below", round % 8));
                    let _ = fixture.root.make_directory(&below, WriteOptions::default());
                    let _ = fixture
                        .root
                        .rename(&path("/project/swap/file"), &path("/project/swap/other"));
                    let _ = fixture
                        .root
                        .rename(&path("/project/swap/other"), &path("/project/swap/file"));
                    let _ = fixture.root.ship(&source, &path("/project/swap/shipped"));
                    let to = fixture.outside.path().join("collected");
                    if fixture.root.collect(&path("/project"), &to, 1 << 20).is_ok() {
                        for name in ["swap/file", "link/file"] {
                            let copied = fs::symlink_metadata(to.join(name).parent().unwrap());
                            if copied.is_ok_and(|copied| copied.is_dir())
                                && let Ok(content) = fs::read(to.join(name))
                            {
                                assert_eq!(content, b"inside", "{}", fixture.name);
                            }
                        }
                        fs::remove_dir_all(&to).unwrap();
                    }
                }
            },
        );
        canary.expect_untouched();
    }
}

#[test]
fn a_file_that_becomes_a_pipe_or_a_link_is_not_opened() {
    for fixture in Fixture::all() {
        let canary = Canary::beside(&fixture);
        let at = |name: &str| fixture.at("project").join(name);
        let (file, pipe, link) = (at("file"), at("pipe"), at("link"));
        write(&fixture, "/project/file", b"inside").unwrap();
        fixture.as_user(|| {
            let mode = Mode::from_bits_truncate(0o600);
            rustix::fs::mknodat(CWD, &pipe, FileType::Fifo, mode, 0).unwrap();
            symlink(canary.0.join("file"), &link).unwrap();
        });
        let attack = || {
            exchange(&file, &pipe);
            exchange(&pipe, &link);
        };
        while_attacked(&fixture, attack, || {
            for _ in 0..ROUNDS {
                for name in ["/project/file", "/project/pipe", "/project/link"] {
                    if let Ok(content) = read(&fixture, name) {
                        assert_eq!(content, b"inside", "{}", fixture.name);
                    }
                    let _ = write(&fixture, name, b"inside");
                }
                let to = fixture.outside.path().join("collected");
                if fixture.root.collect(&path("/project"), &to, 1 << 20).is_ok() {
                    fs::remove_dir_all(&to).unwrap();
                }
            }
        });
        canary.expect_untouched();
        assert!(fixture.leftovers("project").is_empty());
    }
}

#[test]
fn a_directory_that_is_moved_up_does_not_lead_above_the_root() {
    for fixture in Fixture::all() {
        let canary = Canary::beside(&fixture);
        let (deep, high) = (fixture.at("project/a/b/c"), fixture.at("tmp/high"));
        fixture.root.make_directory(&path("/project/a/b/c"), WriteOptions::default()).unwrap();
        fixture.root.make_directory(&path("/tmp/high"), WriteOptions::default()).unwrap();
        fixture.as_user(|| {
            for up in 1..8 {
                let target = format!("{}canary/file", "../".repeat(up));
                symlink(target, deep.join(up.to_string())).unwrap();
            }
        });
        while_attacked(
            &fixture,
            || exchange(&deep, &high),
            || {
                for _ in 0..ROUNDS {
                    for up in 1..8 {
                        for directory in ["/project/a/b/c", "/tmp/high"] {
                            let at = format!("{directory}/{up}");
                            let content = read(&fixture, &at).unwrap_or_default();
                            assert_ne!(content, b"outside", "{}: {at}", fixture.name);
                            let _ = write(&fixture, &at, b"inside");
                        }
                    }
                }
            },
        );
        canary.expect_untouched();
    }
}

#[test]
fn a_tree_that_never_stands_still_is_collected_within_its_bounds() {
    for fixture in Fixture::all() {
        for number in 0..20 {
            write(&fixture, &format!("/project/{number}/file"), &[1; 5000]).unwrap();
        }
        let at = |name: &str| fixture.at("project").join(name);
        let attack = || {
            for number in 0..20 {
                let file = at(&format!("{number}/file"));
                let _ = fs::write(&file, vec![2; 100_000]);
                let _ = fs::File::create(&file).and_then(|file| file.set_len(10));
                let other = at(&format!("{}/moved", (number + 7) % 20));
                let _ = fs::rename(at(&number.to_string()), &other);
                let _ = fs::rename(&other, at(&number.to_string()));
            }
        };
        while_attacked(&fixture, attack, || {
            let out = fixture.outside.path().join("out");
            fs::create_dir(&out).unwrap();
            let to = out.join("collected");
            for _ in 0..ROUNDS {
                match fixture.root.collect(&path("/project"), &to, 300_000) {
                    Ok(()) => fs::remove_dir_all(&to).unwrap(),
                    Err(_) => assert_eq!(fs::read_dir(&out).unwrap().count(), 0),
                }
            }
        });
    }
}

#[test]
fn a_tree_is_removed_with_nothing_else_while_links_are_planted_in_it() {
    for fixture in Fixture::all() {
        let canary = Canary::beside(&fixture);
        let (swap, link) = (fixture.at("project/tree/swap"), fixture.at("project/link"));
        fixture.as_user(|| symlink(&canary.0, &link).unwrap());
        while_attacked(
            &fixture,
            || exchange(&swap, &link),
            || {
                for _ in 0..ROUNDS {
                    for name in ["file", "victim", "deeper/file"] {
                        let _ = write(&fixture, &format!("/project/tree/swap/{name}"), b"");
                    }
                    let _ = fixture.root.remove(&path("/project/tree"));
                }
            },
        );
        canary.expect_untouched();
    }
}
