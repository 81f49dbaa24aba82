//! Names the directory in which the copy of a program that is mounted into a container finds its
//! libraries (`crates/runtime-docker/src/programs.rs`). It does not exist on the host.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-link-arg-bins=-Wl,-rpath,/opt/stockade/lib");
}
