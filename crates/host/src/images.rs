//! What a server does for images: programs that run in each of them, and downloads. A download is the
//! command `stockade image pull` as a process of its own, which continues, and keeps its progress on disk,
//! whatever happens to the request that needs it.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use serde::Deserialize;
use stockade_api::DownloadProgress;
use stockade_cli::programs::{BUILD, FRONT, sibling_program};
use stockade_core::sandbox::HostMount;
use stockade_core::{Code, Problem};
use stockade_image::Reference;
use stockade_plan::PROGRAMS;
use stockade_runtime_docker::{LIBRARIES, Portable};
use stockade_service::{ImageSource, Report};
use stockade_workflow::engine::ImagePrograms;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader};
use tokio::process::{ChildStderr, Command};
use tokio::sync::Semaphore;

/// How many images are downloaded at the same time; further ones wait.
const DOWNLOADS: usize = 4;
/// How long one download may take. The deadlines for a silent registry are much shorter.
const DEADLINE: Duration = Duration::from_secs(2 * 60 * 60);

/// How much a download may say: a short line each second, and some messages.
const MAX_SAID_BYTES: u64 = 16 << 20;

/// The images of the registries, for the store of a data directory.
#[derive(Debug)]
pub(crate) struct Registries {
    data: PathBuf,
    slots: Arc<Semaphore>,
}

impl Registries {
    pub(crate) fn new(data: PathBuf) -> Self {
        Self { data, slots: Arc::new(Semaphore::new(DOWNLOADS)) }
    }
}

#[async_trait]
impl ImageSource for Registries {
    async fn pull(&self, name: &str, report: Report) -> Result<(), Problem> {
        let reference = reference(name)?;
        let (data, slots) = (self.data.clone(), Arc::clone(&self.slots));
        // Not ended with the request: the next one finds what was downloaded.
        let pulled = tokio::spawn(async move {
            let _slot = slots.acquire_owned().await.ok();
            let late = || {
                let hours = DEADLINE.as_secs() / 3600;
                let message = format!("the download of {reference} took longer than {hours} hours");
                Problem::new(Code::TimedOut, message)
                    .remedied_by(format!("stockade image pull {}", reference.familiar()))
            };
            tokio::time::timeout(DEADLINE, pull(data, &reference, &report))
                .await
                .map_err(|_| late())?
        });
        pulled.await.map_err(|error| failed(&error))?
    }

    fn registry(&self, name: &str) -> Result<String, Problem> {
        reference(name).map(|reference| reference.registry().to_owned())
    }
}

/// Copies of the programs of a child that bring their loader and libraries.
#[derive(Debug)]
pub(crate) struct OwnPrograms {
    data: PathBuf,
    programs: Vec<(String, PathBuf)>,
}

impl OwnPrograms {
    pub(crate) fn new(data: PathBuf, programs: Vec<(String, PathBuf)>) -> Self {
        Self { data, programs }
    }
}

impl ImagePrograms for OwnPrograms {
    fn mounts(&self, directory: &Path) -> Result<Vec<HostMount>, String> {
        let all = self.data.join(PROGRAMS);
        std::fs::create_dir_all(&all).map_err(|error| format!("{}: {error}", all.display()))?;
        let copies = Portable::open(&all, BUILD).map_err(|error| error.to_string())?;
        let read_only =
            |host: PathBuf, inside: PathBuf| HostMount { host, inside, writable: false };
        let mut mounts = vec![read_only(copies.libraries(), LIBRARIES.into())];
        for (name, program) in &self.programs {
            let copy = copies.program(program).map_err(|error| error.to_string())?;
            mounts.push(read_only(copy, directory.join(name)));
        }
        Ok(mounts)
    }
}

fn reference(name: &str) -> Result<Reference, Problem> {
    name.parse().map_err(|error: stockade_image::InvalidReference| {
        Problem::caused(Code::InvalidInput, &error)
    })
}

/// Runs the command, and waits until it has ended.
async fn pull(data: PathBuf, reference: &Reference, report: &Report) -> Result<(), Problem> {
    let mut command = Command::new(sibling_program(FRONT)?);
    command
        .args(["image", "pull", "--json", "--events", "--", &reference.to_string()])
        .env("STOCKADE_DATA_DIR", data)
        // The server itself has the store.
        .env_remove("STOCKADE_SERVER")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    let mut child = command.spawn().map_err(|error| failed(&error))?;
    let log = child.stderr.take().map(|lines| follow(lines, report));
    let output = child.wait_with_output();
    let (output, ()) = tokio::join!(output, async {
        if let Some(log) = log {
            log.await;
        }
    });
    let output = output.map_err(|error| failed(&error))?;
    if output.status.success() {
        return Ok(());
    }
    #[derive(Deserialize)]
    struct Answer {
        error: Problem,
    }
    let answer: Result<Answer, _> = serde_json::from_slice(&output.stdout);
    Err(answer.map_or_else(|_| failed(&output.status), |answer| answer.error))
}

/// Reports the progress of a download, and puts its messages into the server's log.
async fn follow(lines: ChildStderr, report: &Report) {
    let mut lines = BufReader::new(lines.take(MAX_SAID_BYTES)).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        if let Ok(progress) = serde_json::from_str::<DownloadProgress>(&line) {
            report(progress);
            continue;
        }
        let line = line.strip_prefix("stockade: ").unwrap_or(&line);
        tracing::info!(target: "stockade::images", "{line}");
    }
}

fn failed(why: &dyn std::fmt::Display) -> Problem {
    Problem::new(Code::LaunchFailed, "the command that downloads images failed")
        .because(why.to_string())
}
