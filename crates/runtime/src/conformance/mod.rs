//! The suite that every backend must pass: one case for each promise of
//! [`Runtime`](crate::Runtime).
//!
//! A backend's tests implement [`Backend`] and call
//! [`conformance_tests!`](crate::conformance_tests), which makes one test of each case.
//! [`Runtime::supports`](crate::Runtime::supports) reports what the backend cannot do here; cases
//! that need it are reported as skipped, and another case checks that it is refused.
//!
//! No case measures time. A case waits for an expected event, up to [`DEADLINE`]; the absence of an
//! event is shown by another event that happens later. Programs inside are those of POSIX, and of
//! the core utilities that a host and a busybox image have in common.
//!
//! Reading order: `backend` (what a backend's tests provide), `list` (all cases), `harness`,
//! `sandbox` and `running` (the helpers with which cases are written), then any case.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "cases are tests, and fail by panicking"
)]

mod backend;
mod harness;
mod list;
mod running;
mod sandbox;

mod cases;

use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use crate::capability::Capability;

pub use backend::Backend;
pub use harness::Harness;
pub use list::CASES;
pub use stockade_test_support::skipped;

/// How long a case waits for any expected event.
pub const DEADLINE: Duration = Duration::from_secs(30);

/// One promise of a runtime, and the function that checks whether a backend keeps it.
#[derive(Debug, Clone, Copy)]
pub struct Case {
    /// Its name, such as `streams::output_is_whole`.
    pub name: &'static str,
    /// What a backend must support for it.
    pub needs: &'static [Need],
    /// Runs the check, and panics when the promise is broken.
    pub run: for<'a> fn(&'a Harness) -> Pin<Box<dyn Future<Output = ()> + 'a>>,
}

/// What a case needs besides the operations that every backend has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    /// A POSIX shell and the core utilities inside.
    Shell,
    /// A server that can be started inside ([`Backend::serve`]).
    Server,
    /// A process that holds the sandboxes and that can be killed ([`Backend::kill_holder`]).
    Holder,
    /// Commands whose streams the runtime holds ([`Backend::pipes`]).
    Pipes,
    /// Commands whose processes the runtime sees end ([`Backend::processes`]).
    Processes,
    /// Paths of any bytes, and trees as streams ([`Backend::raw_paths`]).
    RawPaths,
    /// An optional feature of the runtime itself.
    Can(Capability),
}

/// Makes one `#[test]` for each case, in modules named after their groups. `$run` is the full path
/// of a function that runs the case of a name: `fn(&str)`, which calls [`conformance::run`](run)
/// with a backend.
#[macro_export]
macro_rules! conformance_tests {
    ($run:path) => {
        $crate::conformance_list! { ($crate::conformance_tests_of) [$run] }
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! conformance_tests_of {
    ([$run:path] $($group:ident { $($cases:tt)* })*) => {
        $(mod $group {
            $crate::conformance_tests_in! { [$run] $group $($cases)* }
        })*
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! conformance_tests_in {
    ([$run:path] $group:ident
     $($(#[$attribute:meta])* $name:ident [$($need:expr),*];)*) => {$(
        #[test]
        $(#[$attribute])*
        fn $name() {
            $run(concat!(stringify!($group), "::", stringify!($name)));
        }
    )*};
}

/// Runs the case of this name in a tokio runtime of its own, on a thread that has the test's name,
/// and removes what it has left. If a backend cannot be tested here, the test is reported as
/// skipped, with the backend's reason.
///
/// # Panics
/// When the promise is broken, or something is left that cannot be removed.
pub fn run(name: &str, backend: Result<Arc<dyn Backend>, String>) {
    let case = CASES.iter().find(|case| case.name == name).expect("a case of that name");
    let backend = match backend {
        Ok(backend) => backend,
        Err(reason) => return skipped(&reason),
    };
    let tokio = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    tokio.unwrap().block_on(check(case, backend));
}

async fn check(case: &'static Case, backend: Arc<dyn Backend>) {
    let harness = Harness::open(backend).await;
    match harness.lacks(case.needs).await {
        Some(reason) => skipped(&reason),
        None => {
            let outcome = outcome((case.run)(&harness)).await;
            let cleaned = harness.clean_up().await;
            if let Err(panic) = outcome {
                harness.close().await;
                resume_unwind(panic);
            }
            cleaned.unwrap_or_else(|left| panic!("after the case: {left}"));
        }
    }
    harness.close().await;
}

/// The panic of a case, if any.
async fn outcome(mut case: Pin<Box<dyn Future<Output = ()> + '_>>) -> std::thread::Result<()> {
    poll_fn(|context| match catch_unwind(AssertUnwindSafe(|| case.as_mut().poll(context))) {
        Ok(Poll::Pending) => Poll::Pending,
        Ok(Poll::Ready(())) => Poll::Ready(Ok(())),
        Err(panic) => Poll::Ready(Err(panic)),
    })
    .await
}
