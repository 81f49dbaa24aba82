//! `cargo xtask bench clients`: what a client of E2B waits for, through its released library.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, ensure};
use serde_json::Value;

use crate::arguments::BenchOptions;
use crate::programs::release_programs;
use crate::workspace::Workspace;

/// The number of sandboxes one after the other, unless another number is given.
const ROUNDS: usize = 50;
/// Where `cargo xtask ci` has installed the library.
const PYTHON: &str = "tmp/packages/e2b/bin/python";
const SCRIPT: &str = "tests/packages/e2b_bench.py";

/// A server, which ends with this value.
struct Server {
    child: Child,
    url: String,
}

impl Drop for Server {
    fn drop(&mut self) {
        // It has ended if this fails.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Measures, and prints the numbers. False when a client failed.
pub(crate) fn run(workspace: &Workspace, options: &BenchOptions) -> anyhow::Result<bool> {
    let python = workspace.target_directory()?.join(PYTHON);
    ensure!(python.exists(), "the library is not installed: cargo xtask ci installs it");
    let stockade = release_programs(workspace)?;
    let home = tempfile::tempdir()?;
    let command = || {
        let mut command = Command::new(&stockade);
        for name in ["HOME", "XDG_DATA_HOME", "XDG_RUNTIME_DIR", "XDG_CONFIG_HOME"] {
            command.env(name, home.path());
        }
        command
    };
    let server = serve(command())?;
    let created = command().args(["keys", "create", "--json"]).output()?;
    let created: Value = serde_json::from_slice(&created.stdout).context("create a key")?;
    let key = created["key"].as_str().context("the key is missing")?;
    let measured = Command::new(python)
        .arg(workspace.root.join(SCRIPT))
        .arg(options.rounds(ROUNDS).to_string())
        .env("E2B_API_URL", &server.url)
        .env("E2B_SANDBOX_URL", &server.url)
        .env("E2B_API_KEY", key)
        .stderr(Stdio::inherit())
        .output()?;
    if !measured.status.success() {
        return Ok(false);
    }
    let numbers: Value = serde_json::from_slice(&measured.stdout)?;
    println!("{numbers:#}");
    if let Some(path) = &options.json {
        let text = serde_json::to_string_pretty(&numbers)? + "\n";
        std::fs::write(path, text).with_context(|| format!("write {}", path.display()))?;
    }
    Ok(true)
}

/// Starts a server at a free port.
fn serve(mut command: Command) -> anyhow::Result<Server> {
    command.args(["serve", "--listen", "127.0.0.1:0"]).stderr(Stdio::piped());
    let mut child = command.spawn()?;
    let messages = BufReader::new(child.stderr.take().context("the server has no messages")?);
    let mut server = Server { child, url: String::new() };
    let mut lines = messages.lines();
    while let Some(line) = lines.next() {
        if let Some((_, url)) = line?.split_once("listening on ") {
            server.url = url.to_owned();
            // The server may write more.
            std::thread::spawn(move || lines.for_each(drop));
            return Ok(server);
        }
    }
    anyhow::bail!("the server does not listen")
}
