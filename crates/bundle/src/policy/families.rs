//! The names of files that tools of the host execute or obey by themselves, by family.
//!
//! A pattern is a path of one or more names, at any depth; `*` is any part of a name; a slash at the
//! end means a directory with everything in it. All are in lower case. Each family has the page that
//! documents that the tool reads these files without being asked. What a user starts explicitly is
//! not here.

mod agents;
mod build;
mod ci;
mod editors;
mod hooks;
mod shell;

use crate::manifest::ExecutedBy;

/// The files of one tool or of tools that follow one convention.
#[derive(Debug)]
pub(super) struct Family {
    pub(super) by: ExecutedBy,
    /// The page that documents it.
    #[cfg_attr(
        not(test),
        expect(dead_code, reason = "for people; a test checks that there is one")
    )]
    pub(super) source: &'static str,
    pub(super) patterns: &'static [&'static str],
}

const fn family(by: ExecutedBy, source: &'static str, patterns: &'static [&'static str]) -> Family {
    Family { by, source, patterns }
}

/// All families.
pub(super) fn all() -> impl Iterator<Item = &'static Family> {
    let lists = [
        hooks::FAMILIES,
        shell::FAMILIES,
        agents::FAMILIES,
        editors::FAMILIES,
        ci::FAMILIES,
        build::FAMILIES,
    ];
    lists.into_iter().flatten()
}
