//! The engine of the egress process, in a process of its own: this program in another role. It reads
//! commands from its standard input, and confirms each with a line.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{IpAddr, Ipv4Addr, TcpListener, UdpSocket};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use rustix::process::{Resource, getrlimit, setrlimit};
use serde_json::{Value, json};
use stockade_core::SandboxId;
use stockade_core::network::{Name, Policy};
use stockade_egress::{
    Limits, Listeners, NotFound, Options, Queue, Resolution, Resolve, Sandbox, Trust,
};

use crate::{Failure, INTERCEPTED, TUNNELLED};

/// The word that selects the role.
pub(crate) const ROLE: &str = "--engine";

/// Raises the number of descriptors to what is allowed.
pub(crate) fn allow_descriptors() -> Result<(), Failure> {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    Ok(setrlimit(Resource::Nofile, limit)?)
}

#[derive(Debug)]
struct Loopback;

#[async_trait::async_trait]
impl Resolve for Loopback {
    async fn resolve(&self, _: &Name) -> Result<Resolution, NotFound> {
        let addresses = vec![IpAddr::V4(Ipv4Addr::LOCALHOST)];
        Ok(Resolution { addresses, valid: Duration::from_secs(3600) })
    }
}

fn policy(allows: bool) -> Result<Policy, Failure> {
    let allow = |target: &str, requests: Value| json!({"action": "allow", "target": target, "requests": requests});
    let mut rules =
        vec![allow("127.0.0.1", json!({})), allow(INTERCEPTED, json!({"paths": ["/*"]}))];
    if allows {
        rules.push(allow(TUNNELLED, json!({})));
    }
    let limits = json!({"connections": 16_384});
    Ok(serde_json::from_value(json!({"default": "deny", "rules": rules, "limits": limits}))?)
}

/// Serves one sandbox until the standard input ends. `authorities` verifies the hosts.
pub(crate) fn serve(authorities: &Path) -> Result<(), Failure> {
    allow_descriptors()?;
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let (queue, mut events) = Queue::new(1024);
    runtime.spawn(async move { while events.recv().await.is_some() {} });
    let sandbox = Sandbox::new(Options {
        id: SandboxId::new("bench")?,
        policy: policy(true)?,
        limits: Limits::default(),
        resolve: Arc::new(Loopback),
        record: Arc::new(queue),
    });
    let trust = Trust::from_pem(&std::fs::read(authorities)?)?;
    let installed = sandbox.set_credentials(policy(true)?, Vec::new(), trust)?;
    let listener = || TcpListener::bind("127.0.0.1:0");
    let proxy = listener()?;
    let port = proxy.local_addr()?.port();
    let descriptors = vec![
        OwnedFd::from(listener()?),
        proxy.into(),
        UdpSocket::bind("127.0.0.1:0")?.into(),
        listener()?.into(),
    ];
    let _inside = runtime.enter();
    runtime.spawn(Arc::clone(&sandbox).serve(Listeners::from_descriptors(descriptors)?));
    let mut output = std::io::stdout().lock();
    let ready = json!({"port": port, "authority": installed.authorities});
    writeln!(output, "{ready}")?;
    for line in std::io::stdin().lines() {
        sandbox.set_policy(policy(line? == "open")?)?;
        writeln!(output, "done")?;
    }
    Ok(())
}

/// The process of the engine.
pub(crate) struct Engine {
    process: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    pub(crate) port: u16,
    /// The authority that programs inside trust (PEM).
    pub(crate) authority: String,
}

impl Engine {
    pub(crate) fn start(authorities: &str) -> Result<Self, Failure> {
        let file = std::env::temp_dir().join(format!("bench-egress-{}.pem", std::process::id()));
        std::fs::write(&file, authorities)?;
        let mut command = Command::new(std::env::current_exe()?);
        command.arg(ROLE).arg(&file).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.spawn()?;
        let (Some(input), Some(output)) = (process.stdin.take(), process.stdout.take()) else {
            return Err("the engine has no streams".into());
        };
        let mut output = BufReader::new(output);
        let mut line = String::new();
        output.read_line(&mut line)?;
        std::fs::remove_file(&file)?;
        let ready: Value = serde_json::from_str(&line)?;
        let port = ready["port"].as_u64().and_then(|port| u16::try_from(port).ok());
        let authority = ready["authority"].as_str().unwrap_or_default().to_owned();
        let port = port.ok_or("the engine has no port")?;
        Ok(Self { process, input, output, port, authority })
    }

    /// Gives a command, and waits until it is carried out.
    pub(crate) fn tell(&mut self, command: &str) -> Result<(), Failure> {
        writeln!(self.input, "{command}")?;
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        if line == "done\n" { Ok(()) } else { Err("the engine has ended".into()) }
    }

    /// Its memory, in KiB.
    pub(crate) fn memory(&self) -> Result<u64, Failure> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.process.id()))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let number = line.and_then(|line| line.split_whitespace().next()).unwrap_or_default();
        Ok(number.parse()?)
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
