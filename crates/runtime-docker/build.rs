//! Builds `stockade-init`, which this crate contains: process 1 of a container runs in any image, so it
//! is linked statically, and needs flags that the rest of the workspace does not have.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The variables of this build that would change the other one.
const NOT_INHERITED: [&str; 6] = [
    "CARGO_ENCODED_RUSTFLAGS",
    "RUSTFLAGS",
    "CARGO_TARGET_DIR",
    "CARGO_BUILD_TARGET",
    "RUSTC_WRAPPER",
    "RUSTC_WORKSPACE_WRAPPER",
];

fn main() {
    // Not that of the compilation: a program of another checkout may be run, if both have one target directory.
    let own = std::env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from).unwrap_or_default();
    let crates = own.join("..");
    for sources in ["init/src", "init/Cargo.toml", "jail/src", "jail/Cargo.toml"] {
        println!("cargo:rerun-if-changed={}", crates.join(sources).display());
    }
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-check-cfg=cfg(has_init)");
    match build(&crates) {
        Ok(program) => {
            println!("cargo:rustc-cfg=has_init");
            println!("cargo:rustc-env=STOCKADE_INIT={}", program.display());
            println!("cargo:rustc-env=STOCKADE_INIT_MISSING=");
        }
        Err(reason) => {
            println!("cargo:rustc-env=STOCKADE_INIT_MISSING={reason}");
            // Cargo runs this program again where such a file is missing: the reason may be gone by then.
            println!("cargo:rerun-if-changed={}", own.join("not-built").display());
        }
    }
}

/// The path of the program, or in one line why it cannot be built here.
fn build(crates: &Path) -> Result<PathBuf, String> {
    let variable = |name: &str| std::env::var(name).map_err(|error| format!("{name}: {error}"));
    let (target, out) = (variable("TARGET")?, PathBuf::from(variable("OUT_DIR")?));
    let directory = out.join("init");
    let mut cargo = Command::new(variable("CARGO")?);
    cargo.args([
        "build",
        "--quiet",
        "--release",
        "--offline",
        "--locked",
        "--bin",
        "stockade-init",
    ]);
    cargo.arg("--manifest-path").arg(crates.join("init/Cargo.toml"));
    cargo.args(["--target", &target]).arg("--target-dir").arg(&directory);
    let flags = format!("target.{target}.rustflags=[\"-Ctarget-feature=+crt-static\"]");
    cargo.args(["--config", &flags, "--config", "profile.release.strip=\"symbols\""]);
    for name in NOT_INHERITED {
        cargo.env_remove(name);
    }
    let output = cargo.output().map_err(|error| error.to_string())?;
    if !output.status.success() {
        let text = String::from_utf8_lossy(&output.stderr);
        let reason = text.lines().find(|line| line.contains("error")).unwrap_or("no reason");
        return Err(reason.trim().to_owned());
    }
    Ok(directory.join(target).join("release/stockade-init"))
}
