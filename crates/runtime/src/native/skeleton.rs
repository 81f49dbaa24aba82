//! interim
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use stockade_jail::Mount;
use stockade_jail::system::{self, Account};

pub(crate) fn ensure(directory: &Path) -> io::Result<PathBuf> {
    let path = directory.join("skeleton");
    let make = |name: &str, mode: u32| -> io::Result<PathBuf> {
        let path = path.join(name);
        std::fs::DirBuilder::new().recursive(true).mode(mode).create(&path)?;
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode))?;
        Ok(path)
    };
    make("", 0o755)?;
    for name in ["bin", "dev", "etc", "home", "proc", "root", "run", "sys", "usr", "var"] {
        if name == "bin" {
            continue;
        }
        make(name, 0o755)?;
    }
    make("tmp", 0o1777)?;
    make("var/tmp", 0o1777)?;
    let home = make("home/user", 0o755)?;
    if rustix::process::geteuid().is_root() {
        std::os::unix::fs::chown(home, Some(1000), Some(1000))?;
    }
    Ok(path)
}

pub(crate) fn mounts(account: &Account, hostname: &str) -> io::Result<Vec<(PathBuf, Mount)>> {
    let mut mounts = system::programs()?;
    mounts.extend(system::configuration(account, hostname)?);
    Ok(mounts)
}
