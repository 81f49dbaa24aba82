//! Faults that a test asks the double for.

use axum::http::Method;

/// Requests that fail.
#[derive(Debug, Clone)]
pub(crate) struct Fault {
    /// The method; for a watch and exec it is `GET`.
    pub(crate) method: Method,
    /// A part of the path with the query.
    pub(crate) part: &'static str,
    /// How many of them.
    pub(crate) times: usize,
    /// What becomes of them.
    pub(crate) then: Then,
}

/// What becomes of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Then {
    /// It is answered with this status, and has no effect.
    Answer(u16),
    /// It has its effect, and is answered with this status.
    DoneThenAnswer(u16),
    /// The connection is closed after this many bytes of output.
    CutAfter(usize),
    /// A watch says that its version is too old.
    Gone,
    /// It is never answered.
    Hang,
}

/// Takes the fault that is meant for a request.
pub(crate) fn take(faults: &mut [Fault], method: &Method, path: &str) -> Option<Then> {
    let at = faults.iter().position(|fault| {
        fault.times > 0 && fault.method == *method && path.contains(fault.part)
    })?;
    faults[at].times -= 1;
    Some(faults[at].then)
}
