//! Builds both programs as they are shipped: optimized, without symbols, and without paths of this
//! machine in them.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, bail, ensure};
use serde::Deserialize;

use crate::workspace::{Workspace, output};

/// The program that people start, which launches sandboxes.
pub(super) const FRONT: &str = "stockade";
/// The program with the engines.
pub(super) const SERVER: &str = "stockade-server";

/// The profile of `Cargo.toml` for what is shipped.
const PROFILE: &str = "dist";

/// What stands in the programs for directories of this machine: the sources of the registry, the
/// workspace, and cargo's target directory.
const REGISTRY: &str = "/registry";
const WORKSPACE: &str = "/stockade";
const TARGET: &str = "/target";
pub(super) const NEUTRAL: [&str; 3] = [REGISTRY, WORKSPACE, TARGET];

/// What the front is built for. The server always needs glibc.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Target {
    /// Statically linked.
    Musl,
    /// With the C library of the host.
    Gnu,
}

impl Target {
    pub(super) const fn triple(self) -> &'static str {
        match self {
            Self::Musl => "x86_64-unknown-linux-musl",
            Self::Gnu => "x86_64-unknown-linux-gnu",
        }
    }

    pub(super) const fn is_static(self) -> bool {
        matches!(self, Self::Musl)
    }

    /// The target that was asked for; else musl where it is installed.
    pub(super) fn choose(asked: Option<&str>) -> anyhow::Result<Self> {
        let install = "rustup target add x86_64-unknown-linux-musl";
        let is_static_possible = is_installed(Self::Musl)?;
        match asked {
            Some(triple) if triple == Self::Gnu.triple() => Ok(Self::Gnu),
            Some(triple) if triple != Self::Musl.triple() => bail!("cannot build for {triple}"),
            Some(triple) if !is_static_possible => {
                bail!("the target {triple} is not installed: {install}")
            }
            None if !is_static_possible => {
                eprintln!(
                    "dist: skipped static linking of {FRONT}: the target {} is not installed: \
                     {install}",
                    Self::Musl.triple()
                );
                Ok(Self::Gnu)
            }
            _ => Ok(Self::Musl),
        }
    }
}

/// Whether the toolchain has the standard library for a target.
fn is_installed(target: Target) -> anyhow::Result<bool> {
    let mut rustc = Command::new("rustc");
    rustc.args(["--print", "target-libdir", "--target", target.triple()]);
    Ok(Path::new(output(&mut rustc)?.trim()).is_dir())
}

/// A program that was built.
#[derive(Debug)]
pub(super) struct Program {
    pub(super) name: &'static str,
    /// The package that it is of.
    pub(super) package: &'static str,
    pub(super) path: PathBuf,
}

/// The ids of the packages that cargo has compiled.
#[derive(Debug, Default)]
pub(super) struct Artifacts {
    /// For the target: what programs can be linked with.
    pub(super) of_target: BTreeSet<String>,
    /// For this machine: build scripts, macros and what those use.
    pub(super) of_host: BTreeSet<String>,
}

/// Both programs.
#[derive(Debug)]
pub(super) struct RustWorkflow {
    pub(super) target: Target,
    pub(super) programs: Vec<Program>,
    pub(super) artifacts: Artifacts,
}

/// Builds both programs, of which each accepts the other: a build is named by its sources.
pub(super) fn programs(workspace: &Workspace, target: Target) -> anyhow::Result<RustWorkflow> {
    let front = (FRONT, "stockade-cli");
    let server = (SERVER, "stockade-host");
    let gnu = flags(workspace, Target::Gnu)?;
    let mut built = RustWorkflow { target, programs: Vec::new(), artifacts: Artifacts::default() };
    if target.is_static() {
        let musl = flags(workspace, Target::Musl)?;
        compile(workspace, Target::Musl, &musl, &[front], &mut built)?;
        compile(workspace, Target::Gnu, &gnu, &[server], &mut built)?;
    } else {
        compile(workspace, Target::Gnu, &gnu, &[front, server], &mut built)?;
    }
    Ok(built)
}

/// The flags for `rustc`, without those of the environment: what is shipped depends on nothing else.
fn flags(workspace: &Workspace, target: Target) -> anyhow::Result<OsString> {
    let mut flags = OsString::from("--remap-path-prefix=");
    flags.push(super::packages::sources_of_registry(workspace)?);
    flags.push(format!("={REGISTRY}\x1f--remap-path-prefix="));
    flags.push(&workspace.root);
    flags.push(format!("={WORKSPACE}"));
    if target.is_static() {
        flags.push("\x1f-Ctarget-feature=+crt-static\x1f-Crelocation-model=pie");
    }
    Ok(flags)
}

/// The flags for the C compiler, to the same end. Cargo's target directory has generated sources.
fn flags_for_c(workspace: &Workspace) -> anyhow::Result<OsString> {
    let mut flags = OsString::from("-ffile-prefix-map=");
    flags.push(super::packages::sources_of_registry(workspace)?);
    flags.push(format!("={REGISTRY} -ffile-prefix-map="));
    flags.push(workspace.target_directory()?);
    flags.push(format!("={TARGET}"));
    Ok(flags)
}

/// What cargo says of one thing that it has compiled.
#[derive(Debug, Deserialize)]
struct Message {
    reason: String,
    package_id: Option<String>,
    #[serde(default)]
    filenames: Vec<PathBuf>,
    executable: Option<PathBuf>,
}

fn compile(
    workspace: &Workspace,
    target: Target,
    flags: &OsString,
    programs: &[(&'static str, &'static str)],
    built: &mut RustWorkflow,
) -> anyhow::Result<()> {
    let mut cargo = workspace.cargo();
    cargo.args(["build", "--locked", "--profile", PROFILE, "--target", target.triple()]);
    cargo.args(["--message-format", "json-render-diagnostics"]);
    for (name, package) in programs {
        cargo.args(["--package", package, "--bin", name]);
    }
    cargo.env("CARGO_ENCODED_RUSTFLAGS", flags);
    cargo.env(format!("CFLAGS_{}", target.triple()), flags_for_c(workspace)?);
    let result = cargo.stderr(Stdio::inherit()).output().context("start cargo")?;
    ensure!(result.status.success(), "the programs do not build");
    let mut executables = Vec::new();
    let directory = Path::new(target.triple()).join(PROFILE);
    for line in String::from_utf8(result.stdout)?.lines() {
        let message: Message = serde_json::from_str(line).context("a message of cargo")?;
        let Some(id) = message.package_id.filter(|_| message.reason == "compiler-artifact") else {
            continue;
        };
        let is_of_target = message.filenames.iter().any(|file| contains(file, &directory));
        let artifacts = &mut built.artifacts;
        let ids = if is_of_target { &mut artifacts.of_target } else { &mut artifacts.of_host };
        ids.insert(id);
        executables.extend(message.executable);
    }
    for (name, package) in programs {
        let path = executables.iter().find(|path| path.ends_with(name));
        let path = path.with_context(|| format!("cargo built no {name}"))?.clone();
        built.programs.push(Program { name, package, path });
    }
    Ok(())
}

/// Whether a path has these directories in it.
fn contains(path: &Path, directories: &Path) -> bool {
    path.ancestors().any(|part| part.ends_with(directories))
}
