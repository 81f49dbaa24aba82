//! What the init of a jail tells: it may have been taken over by what runs inside.

use stockade_jail::control::{KEY_BYTES, Report};

/// Words of the format.
pub(super) const WORDS: &[&str] = &[
    "s", "n", "x", "g", "c", "r", "d", "o", "l", "\0", "\u{1}", "\u{2}", "\u{3}", "\0\0\0\0",
    "build",
];

/// Reads a report. What is understood means one thing, and is bounded.
pub(super) fn run(bytes: &[u8]) -> bool {
    let Some(report) = Report::decode(bytes) else { return false };
    match &report {
        // A step may hold bytes that are no text.
        Report::NotStarted { step, .. } => assert!(step.len() <= 3 * bytes.len(), "{report:?}"),
        Report::Record(record) => {
            assert!(record.key.len() <= KEY_BYTES, "{report:?}");
            assert_eq!(report.encode(), bytes);
        }
        _ => assert_eq!(report.encode(), bytes),
    }
    true
}
