//! The parts of the host that every jail may see, the system's own programs, and the files that
//! name a jail's own accounts and hosts. Nothing personal, nothing that identifies a user.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::spec::{Access, HostTree, Mount, Owners, Source};

/// Directories of programs and libraries. On a system with merged `/usr` most are links.
pub const PROGRAMS: [&str; 8] =
    ["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store"];

/// The user of the command, for `/etc/passwd` and similar files.
#[derive(Debug, Clone)]
pub struct Account {
    /// The user's name.
    pub name: String,
    /// The user's id inside.
    pub user: u32,
    /// The group's id inside.
    pub group: u32,
    /// The home directory inside.
    pub home: PathBuf,
}

/// The system directories of the host, read-only.
pub fn programs() -> io::Result<Vec<(PathBuf, Mount)>> {
    let mut mounts = Vec::new();
    for directory in PROGRAMS.map(Path::new) {
        mounts.extend(visible(directory)?.map(|mount| (directory.to_owned(), mount)));
    }
    Ok(mounts)
}

/// `/etc/resolv.conf` of a jail with a resolver of its own ([`crate::Network::Egress`]).
pub fn resolver() -> (PathBuf, Mount) {
    (PathBuf::from("/etc/resolv.conf"), text("nameserver 127.0.0.1\n"))
}

/// The configuration of name lookups where there is no resolver.
pub fn local_name_services() -> (PathBuf, Mount) {
    (PathBuf::from("/etc/nsswitch.conf"), text("passwd: files\ngroup: files\nhosts: files\n"))
}

/// The configuration of name lookups where there is a resolver.
pub fn name_services() -> (PathBuf, Mount) {
    let content = "passwd: files\ngroup: files\nhosts: files dns\n";
    (PathBuf::from("/etc/nsswitch.conf"), text(content))
}

/// `/etc/passwd`, `group`, `hosts` and `hostname`, which every jail gets from here only.
pub fn identity_files(account: &Account, hostname: &str) -> Vec<(PathBuf, Mount)> {
    let Account { name, user, group, home } = account;
    let home = home.display();
    let mut passwd = String::new();
    let mut groups = String::new();
    if *user != 0 {
        passwd.push_str("root:x:0:0:root:/root:/usr/sbin/nologin\n");
    }
    if *group != 0 {
        groups.push_str("root:x:0:\n");
    }
    passwd.push_str(&format!("{name}:x:{user}:{group}::{home}:/bin/sh\n"));
    passwd.push_str("nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n");
    groups.push_str(&format!("{name}:x:{group}:\nnogroup:x:65534:\n"));
    let mut files = vec![file("passwd", &passwd), file("group", &groups)];
    files.extend(host_names(hostname));
    files
}

/// `/etc/hosts` and `hostname`.
pub fn host_names(hostname: &str) -> Vec<(PathBuf, Mount)> {
    let hosts = format!("127.0.0.1 localhost {hostname}\n::1 localhost {hostname}\n");
    vec![file("hosts", &hosts), file("hostname", &format!("{hostname}\n"))]
}

fn file(name: &str, content: &str) -> (PathBuf, Mount) {
    (Path::new("/etc").join(name), text(content))
}

fn text(content: &str) -> Mount {
    Mount::File(content.as_bytes().to_vec())
}

/// The mount for a path of the host; `None` where the path does not exist.
fn visible(path: &Path) -> io::Result<Option<Mount>> {
    let metadata = match fs::symlink_metadata(path) {
        Ok(metadata) => metadata,
        Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            return Ok(None);
        }
        Err(e) => return Err(e),
    };
    if metadata.is_symlink() {
        return Ok(Some(Mount::Link(fs::read_link(path)?)));
    }
    Ok(Some(Mount::Tree(Source::Host {
        tree: HostTree::open(path)?,
        access: Access::Read,
        owners: Owners::Nobody,
    })))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accounts_name_nobody_of_the_host() {
        let account = Account {
            name: "user".into(),
            user: 1000,
            group: 1000,
            home: PathBuf::from("/home/user"),
        };
        let files = identity_files(&account, "stockade");
        let passwd = files.iter().find(|(path, _)| path.ends_with("passwd")).unwrap();
        let Mount::File(content) = &passwd.1 else { panic!("{passwd:?}") };
        let content = String::from_utf8(content.clone()).unwrap();
        let names: Vec<_> = content.lines().map(|l| l.split(':').next().unwrap()).collect();
        assert_eq!(names, ["root", "user", "nobody"]);
    }

    #[test]
    fn what_is_not_there_is_not_mounted() {
        assert!(visible(Path::new("/etc/no-such-file")).unwrap().is_none());
        assert!(visible(Path::new("/etc/hostname/below")).unwrap().is_none());
        assert!(!programs().unwrap().is_empty());
    }
}
