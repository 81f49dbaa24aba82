//! The variables of git's configuration that name a program, a directory of hooks, or a file that
//! git obeys (git-config(1), and the manual page of the command that a section belongs to).

use super::config::Variable;

/// What the value of a variable is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Meaning {
    /// A directory in which git executes hooks.
    Hooks,
    /// A command for a shell.
    Command,
    /// A command for a shell after `!`, else something that is not executed.
    CommandAfterMark,
    /// The path of a program, or of a file or directory that git obeys.
    Path,
    /// The path of another file of variables.
    Include,
    /// A URL. `ext::` is followed by a command, and a path by a repository with a configuration.
    Url,
}

use Meaning::{Command, CommandAfterMark, Hooks, Include, Path, Url};

/// `section.name`, or `section.*.name` for any subsection.
const KEYS: &[(&str, Meaning)] = &[
    ("alias.*", CommandAfterMark),
    ("alias.*.command", CommandAfterMark),
    ("browser.*.cmd", Command),
    ("browser.*.path", Path),
    ("core.alternaterefscommand", Command),
    ("core.askpass", Command),
    ("core.attributesfile", Path),
    ("core.editor", Command),
    ("core.excludesfile", Path),
    ("core.fsmonitor", Command),
    ("core.gitproxy", Command),
    ("core.hookspath", Hooks),
    ("core.pager", Command),
    ("core.sshcommand", Command),
    ("credential.helper", Command),
    ("credential.*.helper", Command),
    ("diff.external", Command),
    ("diff.*.command", Command),
    ("diff.*.textconv", Command),
    ("difftool.*.cmd", Command),
    ("difftool.*.path", Path),
    ("filter.*.clean", Command),
    ("filter.*.smudge", Command),
    ("filter.*.process", Command),
    ("gitcvs.dbdriver", Command),
    ("gpg.program", Command),
    ("gpg.*.program", Command),
    ("gpg.ssh.defaultkeycommand", Command),
    ("gpg.ssh.allowedsignersfile", Path),
    ("gpg.ssh.revocationfile", Path),
    ("guitool.*.cmd", Command),
    ("hook.*.command", Command),
    ("http.cookiefile", Path),
    ("http.*.cookiefile", Path),
    ("http.sslcainfo", Path),
    ("http.sslcert", Path),
    ("http.sslkey", Path),
    ("imap.tunnel", Command),
    ("include.path", Include),
    ("includeif.*.path", Include),
    ("init.templatedir", Hooks),
    ("instaweb.httpd", Command),
    ("instaweb.modulepath", Path),
    ("interactive.difffilter", Command),
    ("lfs.customtransfer.*.path", Path),
    ("lfs.extension.*.clean", Command),
    ("lfs.extension.*.smudge", Command),
    ("man.*.cmd", Command),
    ("man.*.path", Path),
    ("merge.*.driver", Command),
    ("mergetool.*.cmd", Command),
    ("mergetool.*.path", Path),
    ("pager.*", Command),
    ("remote.*.pushurl", Url),
    ("remote.*.receivepack", Command),
    ("remote.*.uploadpack", Command),
    ("remote.*.url", Url),
    ("sendemail.aliasesfile", Path),
    ("sendemail.*", Command),
    ("sequence.editor", Command),
    ("submodule.*.update", CommandAfterMark),
    ("submodule.*.url", Url),
    ("svn-remote.*.url", Url),
    ("tar.*.command", Command),
    ("trailer.*.cmd", Command),
    ("trailer.*.command", Command),
    ("uploadpack.packobjectshook", Command),
    ("web.browser", Command),
];

/// The ends of the names of variables that hold a command. They are for the sections of programs
/// around git, and for versions of git that are newer than the list.
const ENDS: &[&str] = &[
    "askpass",
    "browser",
    "cmd",
    "command",
    "driver",
    "editor",
    "external",
    "filter",
    "helper",
    "hook",
    "pager",
    "program",
    "proxycommand",
    "script",
    "shell",
    "textconv",
    "tool",
];

/// What the value of a variable is; `None` if git neither executes nor obeys anything in it.
pub(super) fn meaning(variable: &Variable) -> Option<Meaning> {
    let section = std::str::from_utf8(&variable.section).ok()?;
    let name = std::str::from_utf8(&variable.name).ok()?;
    let exact = KEYS.iter().find(|(key, _)| {
        let mut parts = key.splitn(2, '.');
        let (of, rest) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        of == section
            && match rest.rsplit_once('.') {
                None => variable.subsection.is_none() && (rest == "*" || rest == name),
                Some((subsection, last)) => {
                    last == name
                        && variable
                            .subsection
                            .as_deref()
                            .is_some_and(|found| fits(subsection, found))
                }
            }
    });
    let by_end = || ENDS.iter().any(|end| name.ends_with(end)).then_some(Command);
    exact.map(|(_, meaning)| *meaning).or_else(by_end)
}

/// Whether a subsection has the form of the table: `*` is anything, and anything may follow `x.`.
fn fits(pattern: &str, found: &[u8]) -> bool {
    let found = found.to_ascii_lowercase();
    match pattern.strip_suffix('*') {
        Some(start) => found.starts_with(start.as_bytes()),
        None => found == pattern.as_bytes(),
    }
}
