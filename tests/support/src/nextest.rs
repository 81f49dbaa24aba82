//! Requirements of some tests on the test runner.

/// Fails a test that does not run in nextest. It needs its own process, or must not run beside
/// tests that fill memory, disk or the process table (`.config/nextest.toml`).
///
/// # Panics
///
/// When another runner runs it.
#[track_caller]
pub fn require_nextest() {
    let is_nextest = std::env::var_os("NEXTEST").is_some();
    assert!(is_nextest, "this test needs nextest: `cargo xtask test` or `cargo nextest run`");
}
