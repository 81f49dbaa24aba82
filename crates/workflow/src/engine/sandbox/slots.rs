//! How many sandboxes of a run may run at the same time.

use std::collections::BTreeMap;

/// The number of slots, unless a variable sets another number (the same default as upstream's).
const DEFAULT_SLOTS: usize = 10;
/// The variables that set the number; the first one that contains a number applies.
const VARIABLES: [&str; 2] =
    ["STOCKADE_MAX_CONCURRENT_SANDBOXES", "SMITHERS_MAX_CONCURRENT_SANDBOXES"];

/// How many sandboxes of a run with this environment may run at the same time.
pub(crate) fn slots(environment: &BTreeMap<String, String>) -> usize {
    let number = |name: &&str| environment.get(*name)?.trim().parse::<f64>().ok();
    let found = VARIABLES.iter().find_map(number).filter(|number| *number >= 1.0);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "from 1 to 1024")]
    let slots = found.map(|number| number.min(1024.0) as usize);
    slots.unwrap_or(DEFAULT_SLOTS)
}
