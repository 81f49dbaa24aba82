//! `cargo xtask guest`: boots a stock kernel with only control groups of version 2 in an emulated
//! machine, and tests there what limits promise; then another machine, which is reset while
//! Stockade is working, and booted again with the same disk. Needs no privileges and no hardware,
//! so the result is the same on every host that has QEMU.

mod initrd;
mod kernel;
mod machine;
mod programs;
mod verdicts;

use std::fs::{self, File};
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context as _;

use crate::workspace::{Workspace, find_program, is_installed, output};
use initrd::Initrd;
use kernel::Kernel;
use machine::Boot;
use programs::Programs;

/// The package of the emulator.
pub(crate) const PACKAGE: (&str, &str) = (machine::PROGRAM, "qemu-system-x86");

/// The program that creates the file system of the persistent disk, and its package.
const MAKE_DISK: (&str, &str) = ("mkfs.ext4", "e2fsprogs");
const DISK_BYTES: u64 = 1 << 30;

/// What the machines are booted for, as in `tests/programs/guest`: the first alone, the other two
/// one after the other with the same disk.
const BOOTS: [(&str, bool); 3] = [("boot", false), ("before-reset", true), ("after-reset", true)];

/// Programs of the host with which remedies are followed literally.
const SHELL: &[&str] = &["cat", "chown", "mkdir", "mount", "seq", "sh", "umount", "unshare"];

/// The result of the machines.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// Every promise was kept.
    Passed,
    /// Some were not, as was printed.
    Failed,
    /// Such a machine cannot run here: the reason.
    Missing(String),
}

/// Boots the machines, that which is reset on request only, and prints the promises that were not kept.
pub(crate) fn run(workspace: &Workspace, with_reset: bool) -> anyhow::Result<Outcome> {
    if !cfg!(target_arch = "x86_64") {
        return Ok(Outcome::Missing(
            "the machine runs programs of x86-64, not of this host".into(),
        ));
    }
    for (program, package) in [PACKAGE, MAKE_DISK] {
        if !is_installed(program) {
            return Ok(Outcome::Missing(format!("not installed: apt-get install {package}")));
        }
    }
    let directory = workspace.target_directory()?.join("guest");
    fs::create_dir_all(&directory).context("make the kernel's directory")?;
    let kernel = match Kernel::get(&directory) {
        Ok(kernel) => kernel,
        Err(error) => return Ok(Outcome::Missing(format!("no kernel to boot: {error:#}"))),
    };
    let programs = Programs::build(workspace)?;
    let archive = directory.join("initrd");
    let initrd = initrd(&kernel, &programs)?;
    let mut file = BufWriter::new(File::create(&archive).context("make the archive")?);
    initrd.write(&mut file).and_then(|()| file.flush()).context("write the archive")?;
    let disk = disk(&directory)?;
    let boot = Boot { kernel: &kernel.image, initrd: &archive, directory: &directory };
    let mut outputs = Vec::new();
    let boots = BOOTS.into_iter().filter(|(_, is_reset)| with_reset || !is_reset);
    for (word, has_disk) in boots {
        let output = machine::boot(boot, word, has_disk.then_some(disk.as_path()))?;
        for line in output.verdicts.lines().filter(|line| line.starts_with("PASS")) {
            println!("guest: {}", line.trim_end());
        }
        outputs.push(output);
    }
    let verdicts: Vec<&str> = outputs.iter().map(|said| said.verdicts.as_str()).collect();
    let findings = verdicts::findings(&verdicts, with_reset);
    for finding in &findings {
        println!("guest: BROKEN {finding}");
    }
    if findings.is_empty() {
        return Ok(Outcome::Passed);
    }
    for output in outputs {
        println!("guest: a console is in {}", output.console.display());
    }
    Ok(Outcome::Failed)
}

/// A disk with an empty file system.
fn disk(directory: &Path) -> anyhow::Result<PathBuf> {
    let path = directory.join("disk");
    let file = File::create(&path).context("make the disk")?;
    file.set_len(DISK_BYTES).context("make the disk")?;
    output(Command::new(MAKE_DISK.0).args(["-q", "-F"]).arg(&path))?;
    Ok(path)
}

/// The content of the machine: programs, and the accounts of root and one ordinary user.
fn initrd(kernel: &Kernel, programs: &Programs) -> anyhow::Result<Initrd> {
    let mut initrd = Initrd::default();
    for directory in ["/dev", "/home", "/new-root", "/proc", "/root", "/run", "/sys", "/tmp"] {
        initrd.directory(directory);
    }
    initrd.program("/init", &programs.guest)?;
    initrd.program("/usr/bin/stockade", &programs.stockade)?;
    initrd.program("/usr/bin/stockade-server", &programs.server)?;
    initrd.program("/usr/bin/probe", &programs.probe)?;
    initrd.program("/usr/bin/jail-tests", &programs.jail_tests)?;
    for program in SHELL {
        let host = find_program(program).with_context(|| format!("there is no {program}"))?;
        initrd.program(&format!("/usr/bin/{program}"), &host)?;
    }
    for module in &kernel.modules {
        let content = fs::read(module).context("read a module")?;
        let name = module.file_name().context("a module has a name")?;
        initrd.file(&Path::new("/modules").join(name), content);
    }
    Ok(initrd)
}
