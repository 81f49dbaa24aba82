//! Hands the linker the order of the functions that a run calls (`cargo xtask order`).

fn main() {
    println!("cargo::rerun-if-changed=order.ld");
    let directory = std::env::var("CARGO_MANIFEST_DIR").unwrap_or_default();
    println!("cargo::rustc-link-arg-bin=stockade=-Wl,-T,{directory}/order.ld");
}
