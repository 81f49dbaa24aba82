//! Every variable of git's configuration that leads into a project is found, in every file and form.

use super::*;
use crate::testing::git;

struct Fixture {
    _scratch: tempfile::TempDir,
    root: PathBuf,
    home: PathBuf,
}

/// A project and a home directory, beside each other.
fn fixture() -> Fixture {
    let scratch = tempfile::tempdir().unwrap();
    let top = scratch.path().canonicalize().unwrap();
    let (root, home) = (top.join("project"), top.join("home"));
    for part in ["objects", "refs", "hooks"] {
        std::fs::create_dir_all(root.join(".git").join(part)).unwrap();
    }
    std::fs::write(root.join(".git/HEAD"), "ref: refs/heads/main\n").unwrap();
    std::fs::create_dir_all(home.join(".config/git")).unwrap();
    Fixture { _scratch: scratch, root, home }
}

impl Fixture {
    fn write(&self, path: &Path, content: &str) {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }

    fn programs(&self) -> Programs {
        let files = vec![self.home.join(".config/git/config"), self.home.join(".gitconfig")];
        let project = Project::open(&self.root, None).unwrap();
        Programs::of(&project, &Surroundings::new(&self.home, files), std::iter::empty())
    }

    fn holds(&self, path: &str) -> bool {
        self.programs().hold(&RelativePath::new(path).unwrap(), false)
    }

    /// Whether this configuration of the repository makes git execute or obey a path.
    fn with(&self, config: &str, path: &str) -> bool {
        self.write(&self.root.join(".git/config"), config);
        self.holds(path)
    }
}

/// The header and the name of a variable with this key.
fn variable(key: &str, value: &str) -> String {
    let (section, rest) = key.split_once('.').unwrap();
    match rest.rsplit_once('.') {
        None => format!("[{section}]\n\t{rest} = {value}\n"),
        Some((sub, name)) => format!("[{section} \"{sub}\"]\n\t{name} = {value}\n"),
    }
}

const COMMANDS: &[&str] = &[
    "core.fsmonitor",
    "core.pager",
    "core.editor",
    "core.sshCommand",
    "core.askPass",
    "core.gitProxy",
    "core.alternateRefsCommand",
    "filter.x.clean",
    "filter.x.smudge",
    "filter.x.process",
    "diff.external",
    "diff.x.command",
    "diff.x.textconv",
    "merge.x.driver",
    "credential.helper",
    "credential.https:\u{2f}/x.example.helper",
    "gpg.program",
    "gpg.ssh.program",
    "gpg.x509.program",
    "gpg.ssh.defaultKeyCommand",
    "uploadpack.packObjectsHook",
    "sequence.editor",
    "difftool.x.cmd",
    "difftool.x.path",
    "mergetool.x.cmd",
    "mergetool.x.path",
    "trailer.x.command",
    "trailer.x.cmd",
    "pager.log",
    "interactive.diffFilter",
    "remote.x.receivepack",
    "remote.x.uploadpack",
    "browser.x.cmd",
    "browser.x.path",
    "man.x.cmd",
    "man.x.path",
    "tar.x.command",
    "sendemail.tocmd",
    "sendemail.cccmd",
    "sendemail.smtpserver",
    "sendemail.x.toCmd",
    "instaweb.httpd",
    "imap.tunnel",
    "guitool.x.cmd",
    "hook.x.command",
    "lfs.customtransfer.x.path",
    "lfs.extension.x.clean",
    "web.browser",
    "core.attributesFile",
    "core.hooksPath",
    "init.templateDir",
    "include.path",
    "newsection.x.newCommand",
];

#[test]
fn every_key_is_known_in_every_form_of_its_value() {
    let fixture = fixture();
    let root = fixture.root.to_str().unwrap();
    for key in COMMANDS {
        let mut values = vec![
            "tools/x".to_owned(),
            "./tools/x".to_owned(),
            "tools/../tools/./x".to_owned(),
            format!("{root}/tools/x"),
            "\"tools/x\"".to_owned(),
            "\\\n  tools/x".to_owned(),
            "tools/x ; words".to_owned(),
            "~/../project/tools/x".to_owned(),
        ];
        if *key == "include.path" {
            values = vec![
                format!("{root}/tools/x"),
                "../tools/x".to_owned(),
                "~/../project/tools/x".to_owned(),
            ];
        }
        for value in values {
            let config = variable(key, &value);
            assert!(fixture.with(&config, "tools/x"), "{config}");
            assert!(
                fixture
                    .with(&config.to_uppercase().replace(&value.to_uppercase(), &value), "tools/x"),
                "{config}"
            );
            assert!(!fixture.with(&config, "tools/y"), "{config}");
            assert!(!fixture.with(&config, "src/x"), "{config}");
        }
    }
    for key in ["alias.st", "submodule.x.update"] {
        assert!(fixture.with(&variable(key, "!tools/x --a"), "tools/x"), "{key}");
        assert!(fixture.with(&variable(key, "\"!f() { tools/x; }; f\""), "tools/x"), "{key}");
        assert!(!fixture.with(&variable(key, "tools/x"), "tools/x"), "{key}");
    }
    assert!(fixture.with(&variable("remote.x.url", "ext::tools/x %S"), "tools/x"));
}

#[test]
fn a_directory_of_hooks_counts_with_what_is_new_in_it() {
    let fixture = fixture();
    let config = variable("core.hooksPath", "tools/git");
    for path in ["tools/git/pre-commit", "tools/git/deep/new", "tools/git"] {
        assert!(fixture.with(&config, path), "{path}");
    }
    for path in ["tools/pre-commit", "tools/github/x", "git/pre-commit"] {
        assert!(!fixture.with(&config, path), "{path}");
    }
    let link = RelativePath::new("tools").unwrap();
    assert!(fixture.programs().hold(&link, true) && !fixture.programs().hold(&link, false));
    let config = variable("core.hooksPath", ".");
    assert!(fixture.with(&config, "pre-commit") && fixture.with(&config, "Post-Checkout"));
    assert!(!fixture.with(&config, "README.md") && !fixture.with(&config, "src/pre-commit"));
}

#[test]
fn every_file_of_the_configuration_is_read() {
    let fixture = fixture();
    let config = variable("core.hooksPath", "tools/x");
    let absolute = variable("core.hooksPath", fixture.root.join("tools/x").to_str().unwrap());
    for (file, content) in [
        (fixture.root.join(".git/config.worktree"), &config),
        (fixture.home.join(".gitconfig"), &config),
        (fixture.home.join(".config/git/config"), &absolute),
    ] {
        assert!(!fixture.holds("tools/x/a"), "{}", file.display());
        fixture.write(&file, content);
        assert!(fixture.holds("tools/x/a"), "{}", file.display());
        std::fs::remove_file(&file).unwrap();
    }
    for include in [
        "[include]\n\tpath = ../../more\n",
        "[includeIf \"gitdir:/nowhere/\"]\n\tpath = ../../more\n",
        "[includeIf \"onbranch:x\"]\n\tpath = ~/../more\n",
        "[includeIf \"hasconfig:remote.*.url:x\"]\n\tpath = ../../more\n",
    ] {
        fixture
            .write(&fixture.root.parent().unwrap().join("more"), "[include]\n\tpath = further\n");
        fixture.write(&fixture.root.parent().unwrap().join("further"), &config);
        assert!(fixture.with(include, "tools/x/a"), "{include}");
    }
    // A file in the tree is obeyed, and so is what it names.
    fixture.write(&fixture.root.join("gitconfig"), &variable("diff.x.textconv", "tools/text"));
    let include = "[include]\n\tpath = ../gitconfig\n";
    assert!(fixture.with(include, "gitconfig") && fixture.with(include, "tools/text"));
    // A ring ends.
    fixture.write(&fixture.root.join("gitconfig"), "[include]\n\tpath = gitconfig\n");
    assert!(fixture.with(include, "gitconfig"));
}

#[test]
fn links_are_followed_into_the_tree() {
    let fixture = fixture();
    let link = |target: &str, at: &Path| std::os::unix::fs::symlink(target, at).unwrap();
    link("../../tools/hook", &fixture.root.join(".git/hooks/pre-commit"));
    assert!(fixture.holds("tools/hook"), "it need not exist");
    fixture.write(&fixture.root.join("tools/hook"), "");
    assert!(fixture.holds("tools/hook"));
    std::fs::create_dir_all(fixture.root.join("real/hooks")).unwrap();
    link("real/hooks", &fixture.root.join("hooks"));
    assert!(fixture.with(&variable("core.hooksPath", "hooks"), "real/hooks/pre-commit"));
    assert!(fixture.holds("hooks"));
    fixture.write(&fixture.root.join("dotfiles/gitconfig"), "");
    link("../project/dotfiles/gitconfig", &fixture.home.join(".gitconfig"));
    assert!(fixture.holds("dotfiles/gitconfig"));
}

#[test]
fn submodules_and_worktrees_have_their_own_configuration() {
    let fixture = fixture();
    let module = fixture.root.join(".git/modules/deep/sub");
    fixture.write(&module.join("HEAD"), "ref: refs/heads/main\n");
    let config = "[core]\n\tworktree = ../../../../deep/sub\n\thooksPath = ../../tools/x\n";
    fixture.write(&module.join("config"), config);
    assert!(fixture.holds("tools/x/pre-commit"));
    if std::process::Command::new("git").arg("--version").output().is_err() {
        crate::testing::skipped("git is not installed");
        return;
    }
    let top = fixture.root.parent().unwrap();
    git(top, &["init", "-q", "main"]);
    let main = top.join("main");
    git(&main, &["commit", "-q", "--allow-empty", "-m", "one"]);
    git(&main, &["worktree", "add", "-q", "../side"]);
    git(&main, &["config", "extensions.worktreeConfig", "true"]);
    git(&top.join("side"), &["config", "--worktree", "core.fsmonitor", "tools/x"]);
    git(&main, &["config", "core.pager", "tools/y"]);
    let project = Project::open(&top.join("side"), None).unwrap();
    let surroundings = Surroundings::new(&fixture.home, Vec::new());
    let programs = Programs::of(&project, &surroundings, std::iter::empty());
    for path in ["tools/x", "tools/y"] {
        assert!(programs.hold(&RelativePath::new(path).unwrap(), false), "{path}");
    }
}
