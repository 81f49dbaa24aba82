//! The attacker: `probe ATTACK [ARGS]` makes one raw attempt to leave a sandbox and reports the
//! result.
//!
//! Exit 42 and `ESCAPED: …` mean that the attack worked, 0 and `held: …` that it was refused, 3 and
//! `BROKEN: …` that it could not even be tried, which never counts as a refusal. An attack that
//! works does no lasting harm: it opens and does not write, or passes arguments that cause an
//! error.
#![expect(unsafe_code, reason = "attacks are raw system calls; nothing here runs in the product")]
#![expect(clippy::exit, reason = "the exit code is the verdict")]
#![expect(clippy::panic, reason = "a helper that cannot be set up has nothing better to do")]
#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    reason = "system calls take machine words of either sign"
)]

use std::io::Write as _;

mod attempt;
mod descriptors;
mod files;
mod helpers;
mod kernel;
mod mounts;
mod proc_files;
mod processes;
mod resources;
mod sockets;
mod traffic;

/// How an attack went.
pub(crate) enum Verdict {
    /// It worked.
    Escaped(String),
    /// It was refused.
    Blocked(String),
    /// It could not be tried.
    Broken(String),
}

/// One attack: its name, and the function that makes it with the remaining arguments.
pub(crate) type Attack = (&'static str, fn(&[String]) -> Verdict);

impl Verdict {
    /// `Blocked` when `escapes` is empty, else `Escaped` with all of them.
    pub(crate) fn unless(escapes: &[String], held: impl Into<String>) -> Self {
        if escapes.is_empty() {
            Self::Blocked(held.into())
        } else {
            let shown: Vec<_> = escapes.iter().take(20).cloned().collect();
            Self::Escaped(format!("{} ({} in all)", shown.join("; "), escapes.len()))
        }
    }
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let name = arguments.next().unwrap_or_default();
    let rest: Vec<String> = arguments.collect();
    let attacks = [
        descriptors::ATTACKS,
        files::ATTACKS,
        helpers::ATTACKS,
        kernel::ATTACKS,
        mounts::ATTACKS,
        processes::ATTACKS,
        proc_files::ATTACKS,
        resources::ATTACKS,
        sockets::ATTACKS,
        traffic::ATTACKS,
    ];
    let verdict = match attacks.iter().copied().flatten().find(|attack| attack.0 == name) {
        Some((_, attack)) => attack(&rest),
        None => Verdict::Broken(format!("there is no attack `{name}`")),
    };
    let (word, detail, code) = match verdict {
        Verdict::Escaped(detail) => ("ESCAPED", detail, 42),
        Verdict::Blocked(detail) => ("held", detail, 0),
        Verdict::Broken(detail) => ("BROKEN", detail, 3),
    };
    // After some attacks no process is left that could read it.
    let _ = writeln!(std::io::stdout(), "{word}: {detail}");
    std::process::exit(code);
}
