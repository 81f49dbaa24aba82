//! `cargo xtask guest`: boots a stock kernel whose control groups are all of version 2 in an
//! emulated machine, and tries there what limits promise. Needs no rights and no hardware, so
//! that it shows the same on every host that has QEMU.

mod initrd;
mod kernel;
mod machine;
mod programs;
mod verdicts;

use std::fs::{self, File};
use std::io::{BufWriter, Write as _};
use std::path::Path;

use anyhow::Context as _;

use crate::workspace::{Workspace, find_program, is_installed};
use initrd::Initrd;
use kernel::Kernel;
use programs::Programs;

/// The package of the emulator.
pub(crate) const PACKAGE: (&str, &str) = (machine::PROGRAM, "qemu-system-x86");

/// Programs of the host with which remedies are followed word for word.
const SHELL: &[&str] = &["cat", "chown", "mkdir", "mount", "sh", "umount", "unshare"];

/// What the machine came to.
#[derive(Debug)]
pub(crate) enum Answer {
    /// Every promise held.
    Held,
    /// Some did not, as was printed.
    Broken,
    /// There can be no such machine here: why.
    Missing(String),
}

/// Boots the machine and prints what did not hold.
pub(crate) fn run(workspace: &Workspace) -> anyhow::Result<Answer> {
    if !cfg!(target_arch = "x86_64") {
        return Ok(Answer::Missing("the machine runs programs of x86-64, not of this host".into()));
    }
    if !is_installed(PACKAGE.0) {
        return Ok(Answer::Missing(format!("not installed: apt-get install {}", PACKAGE.1)));
    }
    let directory = workspace.target_directory()?.join("guest");
    fs::create_dir_all(&directory).context("make the kernel's directory")?;
    let kernel = match Kernel::get(&directory) {
        Ok(kernel) => kernel,
        Err(error) => return Ok(Answer::Missing(format!("no kernel to boot: {error:#}"))),
    };
    let programs = Programs::build(workspace)?;
    let archive = directory.join("initrd");
    let initrd = initrd(&kernel, &programs)?;
    let mut file = BufWriter::new(File::create(&archive).context("make the archive")?);
    initrd.write(&mut file).and_then(|()| file.flush()).context("write the archive")?;
    let said = machine::boot(&kernel.image, &archive, &directory)?;
    let findings = verdicts::findings(&said.verdicts);
    for line in said.verdicts.lines().filter(|line| line.starts_with("PASS")) {
        println!("guest: {}", line.trim_end());
    }
    for finding in &findings {
        println!("guest: BROKEN {finding}");
    }
    if findings.is_empty() {
        return Ok(Answer::Held);
    }
    println!("guest: the console is in {}", said.console.display());
    Ok(Answer::Broken)
}

/// All that the machine has: programs, and the accounts of root and one ordinary user.
fn initrd(kernel: &Kernel, programs: &Programs) -> anyhow::Result<Initrd> {
    let mut initrd = Initrd::default();
    for directory in ["/dev", "/home", "/new-root", "/proc", "/root", "/run", "/sys", "/tmp"] {
        initrd.directory(directory);
    }
    initrd.program("/init", &programs.guest)?;
    initrd.program("/usr/bin/stockade", &programs.stockade)?;
    initrd.program("/usr/bin/probe", &programs.probe)?;
    initrd.program("/usr/bin/jail-tests", &programs.jail_tests)?;
    for program in SHELL {
        let host = find_program(program).with_context(|| format!("there is no {program}"))?;
        initrd.program(&format!("/usr/bin/{program}"), &host)?;
    }
    let overlay = fs::read(&kernel.overlay).context("read the overlay module")?;
    let name = kernel.overlay.file_name().context("the module has a name")?;
    initrd.file(&Path::new("/modules").join(name), overlay);
    Ok(initrd)
}
