//! tinyproxy, a proxy that is kept by others, with a configuration that checks nothing.

use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

pub(crate) struct Peer {
    process: Child,
    file: PathBuf,
    pub(crate) port: u16,
}

impl Peer {
    /// The proxy; `None` if it is not installed.
    pub(crate) fn start() -> Option<Self> {
        let port = TcpListener::bind("127.0.0.1:0").ok()?.local_addr().ok()?.port();
        let file = std::env::temp_dir().join(format!("bench-egress-{}.conf", std::process::id()));
        let text =
            format!("Port {port}\nListen 127.0.0.1\nMaxClients 200\nTimeout 600\nLogLevel Error\n");
        std::fs::write(&file, text).ok()?;
        let mut command = Command::new("tinyproxy");
        command.arg("-d").arg("-c").arg(&file).stdout(Stdio::null()).stderr(Stdio::null());
        let peer = Self { process: command.spawn().ok()?, file, port };
        for _ in 0..200 {
            if TcpStream::connect(("127.0.0.1", port)).is_ok() {
                return Some(peer);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        None
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = std::fs::remove_file(&self.file);
    }
}
