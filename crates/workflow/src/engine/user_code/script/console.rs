//! The console of a realm, whose lines become events of the run.

use std::sync::{Arc, Mutex};

use crate::authoring::Console;
use crate::sync::lock;

/// Levels and texts that were written and not yet taken.
pub(super) type Lines = Mutex<Vec<(String, String)>>;

/// How many lines are retained until they are taken. Further lines are dropped.
const MAX_LINES: usize = 10_000;

/// A console that appends to the lines.
pub(super) fn writer(lines: &Arc<Lines>) -> Console {
    let lines = Arc::clone(lines);
    Arc::new(move |level: &str, text: &str| {
        let mut lines = lock(&lines);
        if lines.len() < MAX_LINES {
            lines.push((level.to_owned(), text.to_owned()));
        }
    })
}
