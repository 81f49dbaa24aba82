//! The project's own commands: `cargo xtask ci|tidy|bench`.
fn main() {}
