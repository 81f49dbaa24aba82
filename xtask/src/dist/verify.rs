//! Verifies an archive by what a user does with it: unpacks it elsewhere and starts the programs.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, bail, ensure};
use serde_json::Value;
use stockade_test_support::Elf;

use super::build::{FRONT, NEUTRAL, SERVER, Target};
use super::{VERSION, archive, layout, sums};

/// Fails with the first thing that is wrong with an archive.
pub(super) fn archive(
    path: &Path,
    name: &str,
    target: Target,
    private: &[PathBuf],
) -> anyhow::Result<()> {
    let place = tempfile::tempdir().context("make a directory to unpack into")?;
    archive::unpack(path, place.path())?;
    let directory = place.path().join(name);
    sums::check(&directory)?;
    check_files(&directory)?;
    let data = place.path().join("data");
    let start = |program: &str| {
        let mut command = Command::new(layout::program(&directory, program));
        command.current_dir(&directory).env("STOCKADE_DATA_DIR", &data).stdin(Stdio::null());
        command
    };
    for program in [FRONT, SERVER] {
        check_hardening(&layout::program(&directory, program))?;
        check_paths(&layout::program(&directory, program), private)?;
    }
    let elf = Elf::read(&layout::program(&directory, FRONT)).map_err(anyhow::Error::msg)?;
    ensure!(elf.is_static() == target.is_static(), "{FRONT} is not linked as {target:?} needs");

    let printed = printed(start(FRONT).arg("--version"))?;
    ensure!(printed == format!("{FRONT} {VERSION}\n"), "--version printed {printed:?}");
    check_doctor(start(FRONT))?;
    let (front, server) = (build_of(start(FRONT))?, build_of(start(SERVER))?);
    ensure!(front == server, "{FRONT} is of build {front}, {SERVER} of {server}");
    check_both(start(FRONT))
}

/// Nothing is missing that users expect.
fn check_files(directory: &Path) -> anyhow::Result<()> {
    let completions = layout::COMPLETIONS.iter().map(|(_, path)| *path);
    let others = ["share/man/man1/stockade.1", "share/man/man1/stockade-run.1"];
    for file in [layout::LICENCES, layout::RUST_LICENCES]
        .into_iter()
        .chain(layout::DOCUMENTS.iter().copied())
        .chain(completions)
        .chain(others)
    {
        let size = fs::metadata(directory.join(file)).with_context(|| file.to_owned())?.len();
        ensure!(size > 0, "{file} is empty");
    }
    for program in [FRONT, SERVER] {
        let file = directory.join("sbom").join(format!("{program}.cdx.json"));
        let sbom: Value = serde_json::from_str(&fs::read_to_string(&file)?)?;
        ensure!(sbom["bomFormat"] == "CycloneDX", "{} is no SBOM", file.display());
    }
    Ok(())
}

fn check_hardening(program: &Path) -> anyhow::Result<()> {
    let elf = Elf::read(program).map_err(anyhow::Error::msg)?;
    let weaknesses = elf.weaknesses();
    ensure!(weaknesses.is_empty(), "{}: {}", program.display(), weaknesses.join("; "));
    Ok(())
}

/// No path of the machine that built the program is in it.
fn check_paths(program: &Path, private: &[PathBuf]) -> anyhow::Result<()> {
    let content = fs::read(program)?;
    // A workspace may lie where the neutral names point to.
    for path in private.iter().filter(|path| !NEUTRAL.iter().any(|name| *path == Path::new(name))) {
        let text = format!("{}/", path.display());
        let is_in = content.windows(text.len()).any(|part| part == text.as_bytes());
        ensure!(!is_in, "{} names {text}", program.display());
    }
    Ok(())
}

/// The program examines this host. What is missing here is no fault of the program.
fn check_doctor(mut front: Command) -> anyhow::Result<()> {
    let output = front.args(["doctor", "--json"]).output()?;
    let report: Value = serde_json::from_slice(&output.stdout).context("doctor printed no JSON")?;
    ensure!(report.is_object(), "doctor printed {report}");
    Ok(())
}

/// The build of a program, which it names when it refuses another one.
fn build_of(mut program: Command) -> anyhow::Result<String> {
    let output = program.args(["--build=0-other", "doctor"]).output()?;
    let message = String::from_utf8_lossy(&output.stderr);
    let build =
        message.lines().find_map(|line| line.split_once("of different builds, 0-other and "));
    let Some((_, build)) = build else { bail!("another build is not refused: {message}") };
    let build = build.split_whitespace().next().unwrap_or_default();
    ensure!(build.starts_with(VERSION), "{build:?} is no name of a build");
    Ok(build.to_owned())
}

/// The front becomes the server for this, which accepts it.
fn check_both(mut front: Command) -> anyhow::Result<()> {
    let printed = printed(front.args(["ls", "--in-process", "--json"]))?;
    let answer: Value = serde_json::from_str(&printed).context("ls printed no JSON")?;
    ensure!(!answer.is_null(), "ls printed nothing");
    Ok(())
}

fn printed(command: &mut Command) -> anyhow::Result<String> {
    crate::workspace::output(command)
}
