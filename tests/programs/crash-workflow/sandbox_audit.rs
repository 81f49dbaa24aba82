//! What sandboxes leave behind: nothing but the bundles of their changes, each once.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use stockade_api::{ListSandboxes, Sandboxes as _};
use stockade_core::State;
use stockade_runtime::Runtime as _;
use stockade_service::Service;

use crate::{Failure, worker};

/// How long started operations may take to finish.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Creates the project that sandboxes work on.
pub(crate) fn prepare(dir: &Path) -> Result<(), Failure> {
    let project = worker::project(dir);
    fs::create_dir(&project)?;
    fs::write(project.join("package.json"), "{}")?;
    fs::write(project.join("notes.md"), "notes\n")?;
    let count = dir.join("count");
    fs::create_dir(&count)?;
    // Users inside have other ids.
    fs::set_permissions(&count, fs::Permissions::from_mode(0o777))?;
    Ok(())
}

/// Checks a project whose run has ended, and which sandboxes exist.
pub(crate) async fn audit(service: &Service, dir: &Path, stockade: &Path) -> Result<(), Failure> {
    let read = |name: &str| fs::read_to_string(dir.join(name)).unwrap_or_default();
    for (name, expected) in [
        ("count/edit", "x\n"),
        ("project/notes.md", "notes\nchanged\n"),
        ("project/agent.txt", ""),
        ("project/never", ""),
    ] {
        let found = read(name);
        if found != expected {
            return Err(format!("{name} is {found:?}, and should be {expected:?}").into());
        }
    }
    let data = worker::data(dir)?;
    sweep(stockade, &data)?;
    bundles(&data, 1)?;
    let native = worker::native(stockade, &data)?;
    let until = Instant::now() + TIMEOUT;
    loop {
        let held = native.list(&BTreeMap::new()).await?;
        let rows = service.list(&worker::caller()?, ListSandboxes::default()).await;
        let rows = rows.map_err(|problem| problem.message)?.sandboxes;
        let alive = rows.iter().filter(|row| row.state != State::Terminated).count();
        if held.is_empty() && alive == 0 {
            return Ok(());
        }
        if Instant::now() > until {
            return Err(format!("sandboxes are left: {held:?}, {rows:?}").into());
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Removes what killed processes have collected, as the next command that lists bundles does.
fn sweep(stockade: &Path, data: &Path) -> Result<(), Failure> {
    let mut command = Command::new(stockade);
    command.args(["bundles", "--json"]).env("STOCKADE_DATA_DIR", data).stdout(Stdio::null());
    let ended = command.status()?;
    if ended.success() { Ok(()) } else { Err(format!("{command:?}: {ended}").into()) }
}

/// Checks the number of waiting bundles of a data directory. Applied bundles are removed.
pub(crate) fn bundles(data: &Path, expected: usize) -> Result<(), Failure> {
    let open = fs::read_dir(data.join("bundles"))?.count();
    if open != expected {
        return Err(format!("{open} bundles wait, not {expected}").into());
    }
    let left = |folder: &str, is_left: fn(&str) -> bool| {
        let names = fs::read_dir(data.join(folder)).into_iter().flatten().flatten();
        let names = names.map(|file| file.file_name().to_string_lossy().into_owned());
        names.filter(|name| is_left(name)).collect::<Vec<_>>()
    };
    let mut found = left("views", |name| !name.starts_with("spare-"));
    found.extend(left("journals", |_| true));
    if found.is_empty() { Ok(()) } else { Err(format!("files are left: {found:?}").into()) }
}
