//! What some tests need of their runner.

/// Fails a test that does not run in nextest. It needs a process of its own, or others beside it may
/// not fill memory, disk or the process table (`.config/nextest.toml`).
///
/// # Panics
///
/// When another runner runs it.
#[track_caller]
pub fn require_nextest() {
    let is_nextest = std::env::var_os("NEXTEST").is_some();
    assert!(is_nextest, "this test needs nextest: `cargo xtask test` or `cargo nextest run`");
}
