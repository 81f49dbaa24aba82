//! One emulated machine: no acceleration and no devices but two serial ports and an optional disk,
//! so that it runs wherever QEMU does.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};

/// The emulator.
pub(super) const PROGRAM: &str = "qemu-system-x86_64";

/// Without `cmpxchg16b`: in QEMU 7.2 it sometimes leaves wrong flags, which crashes kernels.
const PROCESSOR: &str = "qemu64,-cx16";

/// How long the machine may run.
const DEADLINE: Duration = Duration::from_secs(300);

/// The machine's output on its serial ports.
#[derive(Debug)]
pub(super) struct BootOutput {
    /// The first port: the kernel's output, and any unexpected output.
    pub(super) console: PathBuf,
    /// The second port: the verdicts.
    pub(super) verdicts: String,
}

/// The emulator's process; killed when dropped.
struct Machine(Child);

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The memory of a machine that unpacks an archive of so many bytes, in MiB. The archive is in
/// memory until it is unpacked, and the file system that it is unpacked into may fill half of what
/// is left (Linux: Documentation/filesystems/ramfs-rootfs-initramfs.rst). The rest is for programs.
const fn memory_mib(archive_bytes: u64) -> u64 {
    1024 + 3 * archive_bytes.div_ceil(1 << 20)
}

/// What is booted.
#[derive(Debug, Clone, Copy)]
pub(super) struct Boot<'a> {
    pub(super) kernel: &'a Path,
    pub(super) initrd: &'a Path,
    /// The directory for the files with its output.
    pub(super) directory: &'a Path,
}

/// Boots a machine for the purpose that `word` means to its first process, and waits until it ends,
/// also by a reset. The content of its disk is persistent.
pub(super) fn boot(boot: Boot<'_>, mode: &str, disk: Option<&Path>) -> anyhow::Result<BootOutput> {
    let console = boot.directory.join(format!("console-{mode}"));
    let verdicts = boot.directory.join(format!("verdicts-{mode}"));
    let archive_bytes = std::fs::metadata(boot.initrd).context("read the archive's size")?.len();
    let memory = format!("{}M", memory_mib(archive_bytes));
    let mut command = Command::new(PROGRAM);
    command.args(["-machine", "pc", "-accel", "tcg", "-smp", "1", "-m", &memory]);
    command.args(["-cpu", PROCESSOR]);
    command.args(["-nodefaults", "-display", "none", "-no-reboot"]);
    command.arg("-kernel").arg(boot.kernel).arg("-initrd").arg(boot.initrd);
    command.arg("-append").arg(format!("console=ttyS0 panic=-1 rdinit=/init -- {mode}"));
    if let Some(disk) = disk {
        let drive = format!("file={},format=raw,if=virtio", disk.display());
        command.arg("-drive").arg(drive);
    }
    for port in [&console, &verdicts] {
        command.arg("-serial").arg(format!("file:{}", port.display()));
    }
    command.stdin(Stdio::null()).stdout(Stdio::null());
    let child = command.spawn().with_context(|| format!("start {PROGRAM}"))?;
    wait(Machine(child), DEADLINE)
        .with_context(|| format!("the console is in {}", console.display()))?;
    check_unpacked(&std::fs::read(&console).context("read the first serial port")?)
        .with_context(|| format!("the console is in {}", console.display()))?;
    let verdicts = std::fs::read(&verdicts).context("read the second serial port")?;
    Ok(BootOutput { console, verdicts: String::from_utf8_lossy(&verdicts).into_owned() })
}

/// Fails if the kernel could not unpack the whole archive: it boots all the same, without the files
/// that come last.
fn check_unpacked(console: &[u8]) -> anyhow::Result<()> {
    const MESSAGE: &str = "Initramfs unpacking failed";
    if String::from_utf8_lossy(console).contains(MESSAGE) {
        bail!("{MESSAGE}: the machine has too little memory for its programs");
    }
    Ok(())
}

fn wait(mut machine: Machine, deadline: Duration) -> anyhow::Result<()> {
    let start = Instant::now();
    loop {
        if let Some(status) = machine.0.try_wait().context("wait for the machine")? {
            if status.success() {
                return Ok(());
            }
            bail!("{PROGRAM}: {status}");
        }
        if start.elapsed() > deadline {
            bail!("the machine did not end within {deadline:?}");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_holds_the_archive_twice() {
        let archive_mib = 350;
        let left = memory_mib(archive_mib << 20) - archive_mib;
        assert!(left / 2 > archive_mib + 256, "{left}");
    }

    #[test]
    fn an_archive_that_is_cut_short_is_an_error() {
        let line = b"[    2.057044] Initramfs unpacking failed: write error\n";
        assert!(check_unpacked(line).is_err());
        assert!(check_unpacked(b"[    0.804915] Trying to unpack rootfs image\n").is_ok());
    }

    #[test]
    fn a_machine_that_hangs_is_ended() {
        let child = Command::new("sleep").arg("1000").spawn().unwrap();
        let process = PathBuf::from(format!("/proc/{}", child.id()));
        let error = wait(Machine(child), Duration::ZERO).unwrap_err();
        assert!(error.to_string().contains("did not end within"), "{error}");
        assert!(!process.exists());
    }
}
