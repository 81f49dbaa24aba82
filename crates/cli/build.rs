//! Hands the linker the order of the functions that a run calls (`cargo xtask order`), and where the
//! program begins (`crates/jail/src/early.rs`).

fn main() {
    println!("cargo::rerun-if-changed=order.ld");
    let directory = std::env::var("CARGO_MANIFEST_DIR").unwrap_or_default();
    println!("cargo::rustc-link-arg-bin=stockade=-Wl,-T,{directory}/order.ld");
    let target = |what: &str| std::env::var(format!("CARGO_CFG_TARGET_{what}")).unwrap_or_default();
    if target("ARCH") == "x86_64" && target("ENV") == "gnu" {
        println!("cargo::rustc-link-arg-bin=stockade=-Wl,--entry=stockade_begin");
    }
}
