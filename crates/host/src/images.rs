//! What a server does for images: programs that run in each of them, downloads and removals. A download is
//! the command `stockade image pull` as a process of its own, which continues, and keeps its progress on
//! disk, whatever happens to the request that needs it; a removal is `stockade image rm`.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use stockade_api::{DownloadProgress, PullImage, PulledImage, RemovedImages};
use stockade_cli::programs::{BUILD, FRONT, sibling_program};
use stockade_core::sandbox::HostMount;
use stockade_core::{Code, Problem};
use stockade_image::{Platform, Reference};
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
/// The longest name of an image that is removed; those of registries are shorter.
const MAX_NAME_BYTES: usize = 1024;
/// How long a removal may take.
const REMOVAL: Duration = Duration::from_secs(10 * 60);

/// How much a command may say: a short line each second of a download, and some messages.
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
    async fn pull(&self, request: &PullImage, report: Report) -> Result<PulledImage, Problem> {
        let reference = reference(&request.image)?;
        let platform = request.platform.as_deref().map(str::parse::<Platform>).transpose();
        let platform = platform.map_err(|error| Problem::caused(Code::InvalidInput, &error))?;
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
            let mut words = ["pull", "--json", "--events"].map(str::to_owned).to_vec();
            words.extend(platform.map(|platform| format!("--platform={platform}")));
            words.extend(["--".to_owned(), reference.to_string()]);
            let pulled = tokio::time::timeout(DEADLINE, run(&data, &words, &report)).await;
            pulled.map_err(|_| late())?
        });
        pulled.await.map_err(|error| failed(&error))?
    }

    async fn remove(&self, name: &str) -> Result<RemovedImages, Problem> {
        // It becomes an argument of a program.
        if name.len() > MAX_NAME_BYTES || name.contains('\0') {
            return Err(Problem::new(Code::InvalidInput, "this is not the name or id of an image"));
        }
        let none: Report = Box::new(|_| ());
        let words = ["rm", "--json", "--", name].map(str::to_owned);
        let removed = tokio::time::timeout(REMOVAL, run(&self.data, &words, &none)).await;
        removed
            .map_err(|_| Problem::new(Code::TimedOut, "the removal of an image took too long"))?
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

/// Runs a command on the store of a data directory, and waits until it has ended.
async fn run<T: DeserializeOwned>(
    data: &Path,
    words: &[String],
    report: &Report,
) -> Result<T, Problem> {
    let mut command = Command::new(sibling_program(FRONT)?);
    command
        .arg("image")
        .args(words)
        .env("STOCKADE_DATA_DIR", data)
        // The store is that of this server, whatever its user is logged in to.
        .env("STOCKADE_SERVER", "local")
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
    #[derive(Deserialize)]
    struct Refusal {
        error: Problem,
    }
    if output.status.success() {
        return serde_json::from_slice(&output.stdout).map_err(|error| failed(&error));
    }
    let refusal: Result<Refusal, _> = serde_json::from_slice(&output.stdout);
    Err(refusal.map_or_else(|_| failed(&output.status), |refusal| refusal.error))
}

/// Reports the progress of a download, and puts the messages of the command into the server's log.
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
    Problem::new(Code::LaunchFailed, "the command on the store of images failed")
        .because(why.to_string())
}
