//! The JSON of every command, and the errors that a command line can cause, compared with the files in
//! `tests/snapshots`. What differs between runs and hosts is replaced before.
//!
//! The tests run as an ordinary user only: other tests compare the identities.

use stockade_test_support::Snapshots;

use crate::call::{Call, Outcome};
use crate::harness::World;

/// Declares, for each function that takes a [`World`], one test as an ordinary user.
macro_rules! as_user {
    ($($name:ident),+ $(,)?) => {$(
        mod $name {
            #[test]
            fn as_user() {
                use $crate::harness::Identity;
                Identity::User.runs(concat!(module_path!(), "::as_user"), super::$name);
            }
        }
    )+};
}

mod errors;
mod json;
mod json_stores;
mod redact;

/// Access rules under which commands run, and one path is denied.
const ACCESS: [&str; 6] = [
    "--access",
    "allow:execute:/",
    "--access",
    "allow:readwrite:/",
    "--access",
    "deny:read:/etc/hostname",
];

/// The calls of one test, each with a snapshot.
struct Calls<'a> {
    world: &'a World,
    snapshots: Snapshots,
}

impl<'a> Calls<'a> {
    /// Calls whose snapshots are in this directory.
    fn new(world: &'a World, directory: &str) -> Self {
        Self { world, snapshots: Snapshots::new(directory) }
    }

    /// Runs `stockade WORDS` and compares its output with the file of that name.
    #[track_caller]
    fn call(&mut self, name: &str, words: &[&str]) -> Outcome {
        self.prepared(name, words, self.world.stockade(words))
    }

    /// The same for a call with another environment.
    #[track_caller]
    fn prepared(&mut self, name: &str, words: &[&str], call: Call) -> Outcome {
        let outcome = call.finish();
        self.compare(name, words, &outcome);
        outcome
    }

    /// Compares the output of a call that has ended.
    #[track_caller]
    fn compare(&mut self, name: &str, words: &[&str], outcome: &Outcome) {
        self.snapshots.assert(name, &redact::outcome(self.world, words, outcome));
    }

    /// Fails if there are snapshots of other calls.
    fn finish(self) {
        self.snapshots.finish();
    }
}
