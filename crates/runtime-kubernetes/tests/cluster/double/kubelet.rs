//! Runs pods: their init container once, and their container as process 1 of new namespaces, with what its security
//! context says.

use std::os::fd::AsRawFd as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use stockade_test_support::program;
use tokio::sync::Notify;

use super::store::{Key, Store};

/// The image that cannot be pulled.
pub(crate) const NO_IMAGE: &str = "no-such-image:1";
/// The environment of every image.
pub(crate) const PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// A container.
#[derive(Debug)]
pub(crate) struct Process {
    /// Process 1 of the container, as this host sees it.
    pub(crate) pid: i32,
    ended: Notify,
    pub(crate) user: (u64, u64),
}

impl Process {
    pub(crate) fn kill(&self) {
        // It may have ended.
        let _ = kill_process(Pid::from_raw(self.pid).unwrap(), Signal::KILL);
    }
}

fn set_status(store: &Store, at: &Key, status: &Value) {
    store.change(at, |pod| pod["status"] = status.clone());
}

/// Starts a pod.
pub(crate) async fn start(store: &Arc<Store>, at: &Key, pod: &Value) {
    set_status(store, at, &json!({ "phase": "Pending" }));
    let container = &pod["spec"]["containers"][0];
    if container["image"] == NO_IMAGE {
        let waiting = json!({ "reason": "ErrImagePull", "message": "not found" });
        set_status(
            store,
            at,
            &json!({ "phase": "Pending", "containerStatuses": [
            { "name": "sandbox", "state": { "waiting": waiting } }] }),
        );
        return;
    }
    let rights = &container["securityContext"];
    let user = (rights["runAsUser"].as_u64().unwrap(), rights["runAsGroup"].as_u64().unwrap());
    let place = store.directory.join(&at.1).join(&at.2);
    let mut command = bubblewrap(container, &place, user);
    let (info, told) = rustix::pipe::pipe().unwrap();
    // The number is the same in the child: nothing closes it before bubblewrap has written to it.
    rustix::io::fcntl_setfd(&told, rustix::io::FdFlags::empty()).unwrap();
    command.args(["--info-fd", &told.as_raw_fd().to_string(), "setpriv"]);
    command.args(["--reuid", &user.0.to_string(), "--regid", &user.1.to_string()]);
    command.args(["--clear-groups", "--bounding-set=-all", "--inh-caps=-all"]);
    command.args(["--ambient-caps=-all", "--no-new-privs"]);
    for word in container["command"].as_array().unwrap() {
        command.arg(word.as_str().unwrap());
    }
    let log = std::fs::File::create(place.join("log")).unwrap();
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn().unwrap();
    drop(told);
    let info = tokio::task::spawn_blocking(move || {
        // Another process may have inherited the other end, so the end of the stream may not come.
        let mut values = serde_json::Deserializer::from_reader(std::fs::File::from(info));
        <Value as serde::Deserialize>::deserialize(&mut values).unwrap()
    });
    let info = info.await.unwrap();
    let pid = i32::try_from(info["child-pid"].as_i64().unwrap()).unwrap();
    let process = Arc::new(Process { pid, ended: Notify::new(), user });
    store.processes.lock().unwrap().insert(at.clone(), Arc::clone(&process));
    if store.get(at).is_none() {
        // It was deleted meanwhile.
        process.kill();
    }
    let running = json!({ "startedAt": "2026-01-01T00:00:00Z" });
    set_status(
        store,
        at,
        &json!({ "phase": "Running", "containerStatuses": [
        { "name": "sandbox", "ready": true, "state": { "running": running } }] }),
    );
    let seconds = pod["spec"]["activeDeadlineSeconds"].as_u64().unwrap();
    let mut waiting = tokio::task::spawn_blocking(move || child.wait());
    let reason = tokio::select! {
        _ = &mut waiting => None,
        () = tokio::time::sleep(Duration::from_secs(seconds)) => Some("DeadlineExceeded"),
    };
    process.kill();
    if reason.is_some() {
        let _ = waiting.await;
    }
    store.processes.lock().unwrap().remove(at);
    process.ended.notify_waiters();
    let terminated = json!({ "reason": "Error", "exitCode": 137 });
    set_status(
        store,
        at,
        &json!({ "phase": "Failed", "reason": reason, "containerStatuses": [
        { "name": "sandbox", "state": { "terminated": terminated } }] }),
    );
}

fn bubblewrap(container: &Value, place: &Path, user: (u64, u64)) -> Command {
    let mut command = Command::new("bwrap");
    command.args(["--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts"]);
    command.args(["--as-pid-1", "--die-with-parent", "--tmpfs", "/"]);
    for directory in ["/usr", "/etc"] {
        command.args(["--ro-bind", directory, directory]);
    }
    for directory in ["bin", "lib", "lib64", "sbin"] {
        command.args(["--symlink", &format!("usr/{directory}"), &format!("/{directory}")]);
    }
    for directory in ["/stockade", "/stockade/bin", "/home", "/run", "/var"] {
        command.args(["--perms", "755", "--dir", directory]);
    }
    command.args(["--proc", "/proc", "--dev", "/dev"]);
    for mount in container["volumeMounts"].as_array().unwrap() {
        let (name, path) = (mount["name"].as_str().unwrap(), mount["mountPath"].as_str().unwrap());
        if name == "programs" {
            // What the init container copies.
            let inside = format!("{path}/stockade");
            command.arg("--ro-bind").arg(program("stockade")).arg(inside);
            continue;
        }
        let directory = volume(place, name, user);
        // A container engine makes the directories above as well.
        for above in Path::new(path).ancestors().skip(1).collect::<Vec<_>>().into_iter().rev() {
            command.args(["--perms", "755", "--dir"]).arg(above);
        }
        let bind = if mount["readOnly"] == true { "--ro-bind" } else { "--bind" };
        command.arg(bind).arg(directory).arg(path);
    }
    // The image declares this volume, which a container engine makes.
    command.arg("--bind").arg(volume(place, "of-the-image", user)).arg("/data");
    command.args(["--remount-ro", "/", "--clearenv", "--setenv", "PATH", PATH]);
    for capability in ["CAP_SETPCAP", "CAP_SETUID", "CAP_SETGID"] {
        command.args(["--cap-add", capability]);
    }
    command
}

/// A new volume, to which everybody may write.
fn volume(place: &Path, name: &str, user: (u64, u64)) -> std::path::PathBuf {
    let directory = place.join(name);
    std::fs::create_dir_all(&directory).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o777);
    std::fs::set_permissions(&directory, mode).unwrap();
    let id = |id: u64| Some(u32::try_from(id).unwrap());
    std::os::unix::fs::chown(&directory, id(user.0), id(user.1)).unwrap();
    directory
}

/// Ends a pod, and returns when its processes have ended.
pub(crate) async fn stop(store: &Arc<Store>, at: &Key) {
    loop {
        let process = store.processes.lock().unwrap().get(at).cloned();
        let Some(process) = process else { break };
        let ended = process.ended.notified();
        process.kill();
        let _ = tokio::time::timeout(Duration::from_millis(100), ended).await;
    }
    let place = store.directory.join(&at.1).join(&at.2);
    if place.exists() {
        std::fs::remove_dir_all(place).unwrap();
    }
}
