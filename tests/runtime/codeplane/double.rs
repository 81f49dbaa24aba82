//! A local double of the documented interface of Codeplane: workspaces are directories, each with a real
//! server of OpenSSH in namespaces of its own (bubblewrap) at a port of the loopback.

use std::collections::{BTreeMap, VecDeque};
use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;

use super::machine::{Machine, missing_programs};

/// The key of the double.
pub(crate) const KEY: &str = "codeplane_key-of-the-tests";
/// The repository of all workspaces.
pub(crate) const REPOSITORY: &str = "org/repo";

/// What happens to a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// It is answered with this status, and has no effect.
    Status(u16),
    /// The same with 429 and this time to wait, in seconds.
    Busy(u64),
    /// It has its effect, and the answer is lost.
    LoseAnswer,
    /// Nobody answers.
    Silence,
}

/// A workspace.
struct Workspace {
    name: String,
    status: &'static str,
    snapshot: Option<String>,
    machine: Machine,
}

#[derive(Default)]
struct State {
    workspaces: BTreeMap<String, Workspace>,
    snapshots: BTreeMap<String, String>,
    count: u32,
    faults: VecDeque<(String, Fault)>,
    requests: Vec<String>,
    names_host_keys: bool,
}

/// The double.
pub(crate) struct Double {
    pub(crate) directory: TempDir,
    pub(crate) url: String,
    state: Arc<Mutex<State>>,
}

impl std::fmt::Debug for Double {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.url)
    }
}

impl Double {
    /// Starts the double, or says why it cannot run here.
    pub(crate) fn start() -> Result<Self, String> {
        missing_programs()?;
        let directory = tempfile::Builder::new().prefix("stockade-codeplane-").tempdir().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/api", listener.local_addr().unwrap());
        let state = Arc::new(Mutex::new(State { names_host_keys: true, ..State::default() }));
        let (shared, top) = (Arc::clone(&state), directory.path().to_owned());
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let (state, top) = (Arc::clone(&shared), top.clone());
                // A connection that ends early is what is tested.
                std::thread::spawn(move || drop(serve(client, &state, &top)));
            }
        });
        Ok(Self { directory, url, state })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// Lets the next request whose first line contains a text fail.
    pub(crate) fn fail(&self, line: &str, fault: Fault) {
        self.state().faults.push_back((line.to_owned(), fault));
    }

    /// Whether all faults have happened.
    pub(crate) fn is_done(&self) -> bool {
        self.state().faults.is_empty()
    }

    /// The first lines of all requests.
    pub(crate) fn requests(&self) -> Vec<String> {
        self.state().requests.clone()
    }

    /// The names of all workspaces, with their states.
    pub(crate) fn workspaces(&self) -> Vec<(String, &'static str)> {
        self.state().workspaces.values().map(|it| (it.name.clone(), it.status)).collect()
    }

    /// Whether the service tells the keys of hosts.
    pub(crate) fn name_host_keys(&self, names: bool) {
        self.state().names_host_keys = names;
    }

    /// Takes a snapshot of each workspace, whose ids are `snap_1` and so on.
    pub(crate) fn take_snapshots(&self) {
        let mut state = self.state();
        let ids: Vec<String> = state.workspaces.keys().cloned().collect();
        for id in ids {
            take_snapshot(&mut state, &id, self.directory.path());
        }
    }

    /// The keys of all hosts, in the form of a file of known hosts.
    pub(crate) fn known_hosts(&self) -> String {
        let lines = self.state().workspaces.values().map(|it| it.machine.known_host()).collect();
        let lines: Vec<String> = lines;
        lines.concat()
    }

    /// Ends all SSH connections: the servers start again.
    pub(crate) fn drop_connections(&self) {
        self.state().workspaces.values().for_each(|it| it.machine.drop_connections());
    }

    /// Gives all hosts other keys.
    pub(crate) fn change_host_keys(&self) {
        self.state().workspaces.values_mut().for_each(|it| it.machine.change_host_key());
    }
}

fn serve(
    mut client: TcpStream,
    state: &Mutex<State>,
    top: &std::path::Path,
) -> std::io::Result<()> {
    let mut sent = Vec::new();
    let mut buffer = [0; 16 << 10];
    let end = loop {
        let length = client.read(&mut buffer)?;
        if length == 0 {
            return Ok(());
        }
        sent.extend(&buffer[..length]);
        if let Some(end) = sent.windows(4).position(|part| part == b"\r\n\r\n") {
            break end + 4;
        }
    };
    let head = String::from_utf8_lossy(&sent[..end]).into_owned();
    let header = |name: &str| {
        head.lines().find_map(|line| {
            let (found, value) = line.split_once(':')?;
            found.eq_ignore_ascii_case(name).then(|| value.trim().to_owned())
        })
    };
    let length: usize = header("content-length").and_then(|it| it.parse().ok()).unwrap_or(0);
    while sent.len() < end + length {
        let length = client.read(&mut buffer)?;
        if length == 0 {
            return Ok(());
        }
        sent.extend(&buffer[..length]);
    }
    let line = head.lines().next().unwrap_or_default().to_owned();
    let body: Value = serde_json::from_slice(&sent[end..]).unwrap_or_default();
    let is_authorized = header("authorization") == Some(format!("token {KEY}"));
    let fault = {
        let mut state = state.lock().unwrap();
        state.requests.push(line.clone());
        let place = state.faults.iter().position(|(text, _)| line.contains(text.as_str()));
        place.and_then(|place| state.faults.remove(place)).map(|(_, fault)| fault)
    };
    let (status, answer, wait) = match fault {
        Some(Fault::Silence) => {
            std::thread::sleep(Duration::from_secs(30));
            return Ok(());
        }
        Some(Fault::Status(status)) => (status, message("for a test"), None),
        Some(Fault::Busy(wait)) => (429, message("API rate limit exceeded"), Some(wait)),
        Some(Fault::LoseAnswer) | None if !is_authorized => {
            // It repeats what was sent, as a careless service does.
            let told = header("authorization").unwrap_or_default();
            (401, message(&format!("no user has {told}")), None)
        }
        Some(Fault::LoseAnswer) | None => {
            let (status, answer) = answer(&line, &body, state, top);
            (status, answer, None)
        }
    };
    if fault == Some(Fault::LoseAnswer) {
        return client.shutdown(Shutdown::Both);
    }
    let wait = wait.map_or_else(String::new, |wait| format!("retry-after: {wait}\r\n"));
    let text = if status == 204 { String::new() } else { answer.to_string() };
    let head = format!(
        "HTTP/1.1 {status} Answer\r\ncontent-type: application/json\r\n{wait}content-length: {}\r\n\r\n",
        text.len()
    );
    client.write_all(head.as_bytes())?;
    client.write_all(text.as_bytes())?;
    client.shutdown(Shutdown::Both)
}

fn message(text: &str) -> Value {
    json!({ "message": text, "errors": [] })
}

fn answer(line: &str, body: &Value, state: &Mutex<State>, top: &std::path::Path) -> (u16, Value) {
    let mut words = line.split(' ');
    let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let (path, query) = path.split_once('?').unwrap_or((path, ""));
    let Some(rest) = path.strip_prefix(&format!("/api/repos/{REPOSITORY}/workspaces")) else {
        return (404, message("not found"));
    };
    let parts: Vec<&str> = rest.split('/').filter(|part| !part.is_empty()).collect();
    let mut state = state.lock().unwrap();
    let known = parts.first().is_none_or(|id| state.workspaces.contains_key(*id));
    if !known {
        return (404, message("workspace not found"));
    }
    match (method, &parts[..]) {
        ("GET", []) => {
            let number = |name: &str, usual: usize| {
                let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
                let found = pairs.find(|(found, _)| *found == name);
                found.and_then(|(_, value)| value.parse().ok()).unwrap_or(usual)
            };
            let (page, size) = (number("page", 1).max(1), number("per_page", 30).min(100));
            let all = state.workspaces.iter().skip((page - 1) * size).take(size);
            (200, all.map(|(id, it)| shown(id, it)).collect())
        }
        ("POST", []) => create(&mut state, body, top),
        ("GET", [id]) => (200, shown(id, &state.workspaces[*id])),
        ("DELETE", [id]) => {
            state.workspaces.remove(*id);
            (204, Value::Null)
        }
        ("GET", [id, "ssh"]) => ssh(&state, id),
        ("POST", [id, "suspend"]) => set_status(&mut state, id, "suspended"),
        ("POST", [id, "resume"]) => set_status(&mut state, id, "running"),
        ("POST", [id, "snapshot"]) => {
            let snapshot = take_snapshot(&mut state, id, top);
            (201, json!({ "id": snapshot, "name": body["name"] }))
        }
        _ => (405, message("not allowed")),
    }
}

fn take_snapshot(state: &mut State, id: &str, top: &std::path::Path) -> String {
    let snapshot = format!("snap_{}", state.snapshots.len() + 1);
    state.workspaces[id].machine.copy_to(&top.join(&snapshot));
    state.snapshots.insert(snapshot.clone(), id.to_owned());
    snapshot
}

/// Creates a workspace, or resumes the one of that name, as the service does.
fn create(state: &mut State, body: &Value, top: &std::path::Path) -> (u16, Value) {
    let Some(name) = body["name"].as_str().filter(|name| !name.is_empty()) else {
        return (422, message("name is required"));
    };
    let fields = body.as_object().into_iter().flatten();
    let unknown =
        fields.map(|(field, _)| field).find(|it| !["name", "snapshot_id"].contains(&it.as_str()));
    if let Some(unknown) = unknown {
        return (400, message(&format!("unknown field {unknown}")));
    }
    let same = state.workspaces.iter().find(|(_, it)| it.name == name).map(|(id, _)| id.clone());
    if let Some(id) = same {
        return set_status(state, &id, "running");
    }
    let snapshot = body["snapshot_id"].as_str().map(str::to_owned);
    if snapshot.as_ref().is_some_and(|it| !state.snapshots.contains_key(it)) {
        return (404, message("snapshot not found"));
    }
    state.count += 1;
    let id = format!("6ffb7076-08d8-438c-8f77-{:012}", state.count);
    let machine =
        Machine::start(&top.join(&id), snapshot.as_ref().map(|it| top.join(it)).as_deref());
    let workspace = Workspace { name: name.to_owned(), status: "running", snapshot, machine };
    let answer = shown(&id, &workspace);
    state.workspaces.insert(id, workspace);
    (201, answer)
}

fn set_status(state: &mut State, id: &str, status: &'static str) -> (u16, Value) {
    let workspace = state.workspaces.get_mut(id).unwrap();
    workspace.machine.suspend(status == "suspended");
    workspace.status = status;
    (200, shown(id, workspace))
}

fn shown(id: &str, workspace: &Workspace) -> Value {
    json!({
        "id": id, "repository_id": 42, "user_id": 7, "name": workspace.name,
        "status": workspace.status, "is_fork": false, "vm_id": "vm_abc123",
        "persistence": "sticky", "snapshot_id": workspace.snapshot, "idle_timeout_seconds": 1800,
    })
}

fn ssh(state: &State, id: &str) -> (u16, Value) {
    let workspace = &state.workspaces[id];
    if workspace.status != "running" {
        return (409, message("workspace is not running"));
    }
    let (port, token) = (workspace.machine.port, super::machine::TOKEN);
    let mut answer = json!({
        "workspace_id": id, "vm_id": "vm_abc123", "host": "127.0.0.1",
        "ssh_host": "developer@127.0.0.1", "username": "developer", "port": port,
        "access_token": token, "command": format!("ssh developer:{token}@127.0.0.1"),
    });
    if state.names_host_keys {
        answer["host_key"] = json!(workspace.machine.host_key());
    }
    (200, answer)
}
