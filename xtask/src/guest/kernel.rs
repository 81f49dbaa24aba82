//! The kernel that the machine boots: Debian's kernel for virtual machines, downloaded and unpacked
//! in cargo's target directory. Nothing of it is installed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context as _;

use crate::apt;
use crate::workspace::{is_installed, output};

/// The package that depends on the newest such kernel.
const PACKAGE: &str = "linux-image-cloud-amd64";

/// The prefix of the name of the kernel itself.
const IMAGE: &str = "vmlinuz-";
/// The prefixes of the names of the modules that are needed if they are not built in: the overlay
/// file system for sandboxes, and the drivers for a disk. They may be compressed.
const MODULES: &[&str] = &[
    "overlay.ko",
    "virtio.ko",
    "virtio_ring.ko",
    "virtio_pci_legacy_dev.ko",
    "virtio_pci_modern_dev.ko",
    "virtio_pci.ko",
    "virtio_blk.ko",
    "crc16.ko",
    "crc32c_generic.ko",
    "mbcache.ko",
    "jbd2.ko",
    "ext4.ko",
];

/// A kernel with the modules that are needed.
#[derive(Debug)]
pub(super) struct Kernel {
    /// The kernel to boot.
    pub(super) image: PathBuf,
    /// The modules to load, in any order.
    pub(super) modules: Vec<PathBuf>,
}

impl Kernel {
    /// The kernel in `directory`, which is downloaded if it is missing.
    ///
    /// # Errors
    /// Why it is not available here.
    pub(super) fn get(directory: &Path) -> anyhow::Result<Self> {
        let kept = directory.join("kernel-and-modules");
        if !kept.is_dir() {
            for program in ["apt-get", "apt-cache", "dpkg-deb"] {
                anyhow::ensure!(is_installed(program), "no {program} here to get {PACKAGE} with");
            }
            let unpacked = directory.join("unpacked");
            if unpacked.exists() {
                // Left by a process that was killed.
                fs::remove_dir_all(&unpacked)
                    .with_context(|| format!("remove {}", unpacked.display()))?;
            }
            fs::create_dir_all(&unpacked)
                .with_context(|| format!("make {}", unpacked.display()))?;
            let taken = unpack(&unpacked).and_then(|()| store_package(&unpacked, &kept));
            fs::remove_dir_all(&unpacked)
                .with_context(|| format!("remove {}", unpacked.display()))?;
            taken?;
        }
        let modules = modules(&kept)?;
        anyhow::ensure!(!modules.is_empty(), "{} has no modules", kept.display());
        Ok(Self { image: file(&kept, IMAGE)?, modules })
    }
}

/// Moves the needed files of a package to their own directory, which is complete or does not exist.
fn store_package(package: &Path, kept: &Path) -> anyhow::Result<()> {
    let chosen = package.join("chosen");
    fs::create_dir(&chosen).context("make the kernel's directory")?;
    for found in modules(package)?.into_iter().chain([file(package, IMAGE)?]) {
        let name = found.file_name().context("a file has a name")?;
        fs::rename(&found, chosen.join(name)).context("move a file of the package")?;
    }
    fs::rename(&chosen, kept).context("move the kernel's directory")
}

/// The modules anywhere below a directory.
fn modules(directory: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let found = MODULES.iter().filter_map(|start| find(directory, start).transpose());
    found.collect()
}

/// Downloads the package and unpacks it in `directory`.
fn unpack(directory: &Path) -> anyhow::Result<()> {
    let package = download(directory).or_else(|error| {
        // The package lists may be old, or empty as in a new container. Only root can update them.
        apt::get("update", &[], directory).map_err(|_| error)?;
        download(directory)
    })?;
    output(Command::new("dpkg-deb").arg("--extract").arg(package).arg(directory))?;
    Ok(())
}

fn download(directory: &Path) -> anyhow::Result<PathBuf> {
    let name = newest()?;
    apt::get("download", &[&name], directory)?;
    file(directory, &format!("{name}_"))
}

/// The name of the package that contains the kernel itself.
fn newest() -> anyhow::Result<String> {
    let output = output(Command::new("apt-cache").args(["depends", PACKAGE]))?;
    dependency(&output).with_context(|| format!("there is no {PACKAGE} in the lists of packages"))
}

/// The first dependency on a kernel in the output of `apt-cache depends`.
fn dependency(depends: &str) -> Option<String> {
    let mut names = depends.lines().filter_map(|line| line.trim().strip_prefix("Depends: "));
    names.find(|name| name.starts_with("linux-image-")).map(str::to_owned)
}

/// The file whose name starts with this, anywhere below a directory.
fn file(directory: &Path, start: &str) -> anyhow::Result<PathBuf> {
    find(directory, start)?.with_context(|| format!("{} has no {start}", directory.display()))
}

fn find(directory: &Path, start: &str) -> anyhow::Result<Option<PathBuf>> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let found = if entry.file_type()?.is_dir() {
            find(&entry.path(), start)?
        } else {
            entry.file_name().to_string_lossy().starts_with(start).then(|| entry.path())
        };
        if found.is_some() {
            return Ok(found);
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_is_the_first_dependency_of_its_name() {
        let depends = "linux-image-cloud-amd64\n  Depends: linux-image-6.1.0-56-cloud-amd64\n";
        assert_eq!(dependency(depends).as_deref(), Some("linux-image-6.1.0-56-cloud-amd64"));
        assert_eq!(dependency("linux-image-cloud-amd64\n  Depends: initramfs-tools\n"), None);
    }

    #[test]
    fn of_a_package_the_kernel_and_its_modules_are_kept() {
        let package = std::env::temp_dir().join(format!("xtask-kernel-{}", std::process::id()));
        let modules = MODULES.iter().map(|name| format!("usr/lib/modules/6/fs/{name}.xz"));
        for path in
            ["boot/vmlinuz-6", "usr/share/doc"].map(str::to_owned).into_iter().chain(modules)
        {
            let path = package.join("package").join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "").unwrap();
        }
        let kept = package.join("kernel");
        store_package(&package.join("package"), &kept).unwrap();
        assert!(kept.join("vmlinuz-6").is_file() && kept.join("overlay.ko.xz").is_file());
        assert_eq!(fs::read_dir(&kept).unwrap().count(), MODULES.len() + 1);
        assert!(store_package(&package.join("package"), &package.join("again")).is_err());
        fs::remove_dir_all(package).unwrap();
    }
}
