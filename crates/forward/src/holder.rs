//! Which program is at the other end of a connection on this host. A user is not enough where a
//! connection has the rights of its user: the process that connects on behalf of a sandbox has the same
//! user as the one who has started it.
//!
//! A process counts only if it can be seen that it is another one. One that hides its descriptors from
//! others, as every confined process of Stockade does, is not admitted; nor is one that accepts
//! connections from such a process, as a proxy of the user may do, or from one that does, and so on.

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::fs;
use std::net::SocketAddr;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use crate::peer::{Socket, canonical, sockets};

/// A process that was seen: what it executes, and its sockets.
#[derive(Debug, Default)]
struct Process {
    /// `None` if that cannot be seen.
    program: Option<PathBuf>,
    sockets: HashSet<u64>,
}

/// The sockets and processes of this host at one moment.
#[derive(Debug, Default)]
struct Moment {
    sockets: Vec<Socket>,
    processes: Vec<Process>,
    /// The processes that have a socket, by its inode.
    holders: HashMap<u64, Vec<usize>>,
}

/// The user of the process that has the other end of a connection, if every process that has it
/// executes another program than `refused`, the name of a file, and accepts no connection of one that
/// does or that hides what it is, whether itself or through others.
pub async fn find_user_of_program(
    peer: SocketAddr,
    own: SocketAddr,
    refused: &'static str,
) -> Option<u32> {
    let found = tokio::task::spawn_blocking(move || {
        let all = sockets();
        let uid = socket(&all, peer, own)?.uid;
        let moment = Moment::of(all, processes(uid));
        moment.admits(peer, own, OsStr::new(refused)).then_some(uid)
    });
    found.await.ok().flatten()
}

fn socket(all: &[Socket], local: SocketAddr, remote: SocketAddr) -> Option<&Socket> {
    let (local, remote) = (canonical(local), canonical(remote));
    // A socket that no process has any more has no inode.
    all.iter().find(|one| one.local == local && one.remote == remote && one.inode != 0)
}

impl Moment {
    fn of(sockets: Vec<Socket>, processes: Vec<Process>) -> Self {
        let mut holders: HashMap<u64, Vec<usize>> = HashMap::new();
        for (number, process) in processes.iter().enumerate() {
            for inode in &process.sockets {
                holders.entry(*inode).or_default().push(number);
            }
        }
        Self { sockets, processes, holders }
    }

    fn admits(&self, peer: SocketAddr, own: SocketAddr, refused: &OsStr) -> bool {
        let Some(found) = socket(&self.sockets, peer, own) else { return false };
        let mut open = vec![found.inode];
        let mut seen = HashSet::new();
        while let Some(inode) = open.pop() {
            if !seen.insert(inode) {
                continue;
            }
            if !self.is_other_program(inode, refused) {
                return false;
            }
            // One proxy may serve another one.
            for process in self.holders_of(inode) {
                open.extend(self.accepted_from(process, found.uid));
            }
        }
        true
    }

    fn holders_of(&self, inode: u64) -> impl Iterator<Item = &Process> {
        let numbers = self.holders.get(&inode).map(Vec::as_slice).unwrap_or_default();
        numbers.iter().filter_map(|number| self.processes.get(*number))
    }

    /// Whether it can be seen which processes have a socket, and that none executes this program.
    fn is_other_program(&self, inode: u64, refused: &OsStr) -> bool {
        let mut holders = self.holders_of(inode).peekable();
        holders.peek().is_some()
            && holders.all(|process| {
                process.program.as_deref().is_some_and(|program| !is_named(program, refused))
            })
    }

    /// The sockets of this user whose connections a process has accepted.
    fn accepted_from(&self, process: &Process, uid: u32) -> impl Iterator<Item = u64> {
        let listens =
            |port: u16| self.sockets.iter().any(|one| one.is_listener && one.local.port() == port);
        let own = self.sockets.iter().filter(move |one| {
            !one.is_listener && process.sockets.contains(&one.inode) && listens(one.local.port())
        });
        own.filter_map(|own| socket(&self.sockets, own.remote, own.local))
            .filter(move |other| other.uid == uid)
            .map(|other| other.inode)
    }
}

/// Whether a program has this file name. The kernel appends a mark if its file was replaced.
fn is_named(program: &Path, name: &OsStr) -> bool {
    let bytes = program.as_os_str().as_bytes();
    let bytes = bytes.strip_suffix(b" (deleted)").unwrap_or(bytes);
    Path::new(OsStr::from_bytes(bytes)).file_name() == Some(name)
}

/// The processes of a user whose descriptors can be seen.
fn processes(uid: u32) -> Vec<Process> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let name = entry.file_name();
        let is_process = name.as_bytes().iter().all(u8::is_ascii_digit);
        if !is_process || !entry.metadata().is_ok_and(|metadata| metadata.uid() == uid) {
            continue;
        }
        let path = entry.path();
        let descriptors = fs::read_dir(path.join("fd")).into_iter().flatten().flatten();
        let sockets: HashSet<u64> = descriptors
            .filter_map(|descriptor| fs::read_link(descriptor.path()).ok())
            .filter_map(|link| {
                let inode = link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?;
                inode.parse().ok()
            })
            .collect();
        if !sockets.is_empty() {
            found.push(Process { program: fs::read_link(path.join("exe")).ok(), sockets });
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use tokio::net::{TcpListener, TcpStream};

    use super::*;

    const US: &str = "stockade-server";

    fn address(port: u16) -> SocketAddr {
        ([127, 0, 0, 1], port).into()
    }

    fn connected(local: u16, remote: u16, inode: u64) -> Socket {
        let (local, remote) = (address(local), address(remote));
        Socket { local, remote, uid: 7, inode, is_listener: false }
    }

    fn process(program: Option<&str>, sockets: &[u64]) -> Process {
        let program = program.map(PathBuf::from);
        Process { program, sockets: sockets.iter().copied().collect() }
    }

    /// A client on port 1 of the server at port 80, which is what is decided about.
    fn admits(more: Vec<Socket>, processes: Vec<Process>) -> bool {
        let mut all = vec![connected(1, 80, 10), connected(80, 1, 11)];
        all.extend(more);
        Moment::of(all, processes).admits(address(1), address(80), OsStr::new(US))
    }

    #[test]
    fn only_a_process_that_is_seen_and_is_another_program_is_admitted() {
        let python = || process(Some("/usr/bin/python3"), &[10]);
        assert!(admits(Vec::new(), vec![python()]));
        assert!(!admits(Vec::new(), Vec::new()), "it hides its descriptors");
        assert!(!admits(Vec::new(), vec![process(None, &[10])]));
        for program in ["/opt/stockade-server", "/x/stockade-server (deleted)"] {
            assert!(!admits(Vec::new(), vec![process(Some(program), &[10])]), "{program}");
            let both = vec![python(), process(Some(program), &[10])];
            assert!(!admits(Vec::new(), both), "it shares the socket");
        }
        assert!(admits(Vec::new(), vec![process(Some("/opt/not-stockade-server"), &[10])]));
        assert!(!Moment::default().admits(address(1), address(80), OsStr::new(US)));
    }

    #[test]
    fn a_proxy_that_serves_a_sandbox_is_not_admitted() {
        // The proxy listens at port 3128, and has accepted a connection from port 2.
        let listener = Socket { is_listener: true, ..connected(3128, 0, 20) };
        let sockets = || vec![listener, connected(3128, 2, 21), connected(2, 3128, 22)];
        let proxy = || process(Some("/usr/bin/proxy"), &[10, 20, 21]);
        let client = |program| process(Some(program), &[22]);
        assert!(admits(sockets(), vec![proxy(), client("/usr/bin/curl")]));
        assert!(!admits(sockets(), vec![proxy(), client("/opt/stockade-server")]));
        assert!(!admits(sockets(), vec![proxy()]), "its client hides");
        // The client is a proxy as well, of which the sandbox is the client, or which hides it.
        let mut chain = sockets();
        chain.extend([
            Socket { is_listener: true, ..connected(8118, 0, 30) },
            connected(8118, 3, 31),
            connected(3, 8118, 32),
        ]);
        let second = || process(Some("/usr/bin/other"), &[22, 30, 31]);
        let third = |program| process(Some(program), &[32]);
        assert!(admits(chain.clone(), vec![proxy(), second(), third("/usr/bin/curl")]));
        assert!(!admits(chain.clone(), vec![proxy(), second(), third("/x/stockade-server")]));
        assert!(!admits(chain, vec![proxy(), second()]));
        // Two that serve each other.
        let mut ring = sockets();
        ring.extend([connected(3128, 4, 41), connected(4, 3128, 42)]);
        assert!(admits(ring, vec![process(Some("/usr/bin/proxy"), &[10, 20, 21, 41, 42, 22])]));
        // A connection that the process has made itself leads to whom it wants.
        let made = vec![connected(5, 5432, 21), connected(5432, 5, 22)];
        assert!(admits(made, vec![proxy()]));
        // One of another user or of another host says nothing.
        let mut others = sockets();
        others[2].uid = 8;
        assert!(admits(others, vec![proxy()]));
        assert!(admits(vec![listener, connected(3128, 2, 21)], vec![proxy()]));
    }

    #[tokio::test]
    async fn this_program_is_found() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let own = listener.local_addr().unwrap();
        let connecting = TcpStream::connect(own).await.unwrap();
        let (_accepted, peer) = listener.accept().await.unwrap();
        let uid = rustix::process::geteuid().as_raw();
        // The test has both ends, so that it serves itself.
        assert_eq!(find_user_of_program(peer, own, US).await, Some(uid));
        let program = std::env::current_exe().unwrap();
        let name: &'static str = program.file_name().unwrap().to_str().unwrap().to_owned().leak();
        assert_eq!(find_user_of_program(peer, own, name).await, None);
        drop(connecting);
        assert_eq!(find_user_of_program(peer, own, US).await, None);
    }
}
