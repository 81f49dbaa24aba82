//! Each flag that `run` and `create` share has one meaning: both produce the same request from it.

use std::collections::BTreeSet;
use std::path::Path;

use clap::CommandFactory as _;
use clap::Parser as _;
use stockade_bundle::data::DataDir;
use stockade_bundle::project::Project;
use stockade_core::{OwnerId, Problem, SandboxSpec};

use crate::args::{Arguments, Command};
use crate::commands::sandbox::create;
use crate::run;

/// Flags of both commands that are not part of the request: those of the output; those of secrets,
/// whose values go to the egress process; the profile and the devcontainer.json, whose values are
/// added to the other flags before; `pull`, which decides whether an image is downloaded before;
/// toolchains, which this host need not have; the time limit, which `create` has for each command;
/// the proxy, whose password no request has; the ssh agent, which a run serves itself; and where and by which runtime it is executed.
const NOT_REQUESTED: [&str; 16] = [
    "data-dir",
    "devcontainer",
    "json",
    "help",
    "profile",
    "fallback-runtime",
    "pull",
    "runtime",
    "secret",
    "server",
    "ssh-agent",
    "strict-secrets",
    "timeout",
    "tls-ca",
    "tools",
    "upstream-proxy",
];

/// A value for each flag that both have; `@` stands for an existing directory, and a flag without a
/// value has the empty one.
const SAMPLES: &[(&str, &[&str])] = &[
    ("image", &["@/image"]),
    ("image", &["debian:12"]),
    ("private-base", &[]),
    ("mount", &["@/image:/m:ro"]),
    ("mount", &["@/image:/m:rw"]),
    ("mount", &["@/image:/m"]),
    ("mount", &["type=volume,source=data,target=/m,volume-subpath=below"]),
    ("mount", &["type=bind,source=@/image,target=/m,readonly"]),
    ("volume", &["data:/m", "other:/n:ro"]),
    ("volume", &["@/image:/m:ro"]),
    ("cache", &["npm", "mine:/cache"]),
    ("policy", &["package-registries"]),
    ("env", &["A=b=c", "EMPTY=", "A=d"]),
    ("label", &["team=x"]),
    ("env-file", &["@/variables"]),
    ("user", &["1234"]),
    ("user", &["1234:1234"]),
    ("cwd", &["/tmp/../var"]),
    ("cwd", &["below"]),
    ("memory", &["64M"]),
    ("cpus", &["0.5"]),
    ("pids", &["7"]),
    ("disk", &["1G"]),
    ("shm", &["8M"]),
    ("best-effort", &["pids"]),
    ("best-effort", &["processes", "landlock", "memory", "cpus", "disk"]),
    ("access", &["deny:read:/a:b", "allow:readwrite:/"]),
    ("private-base", &[""]),
    ("net", &["off"]),
    ("net", &["policy"]),
    ("allow-internal", &["mirror.test", "*.corp.test:443"]),
    ("allow", &["example.com:443", "*.example.com"]),
    ("max-connections", &["7"]),
    ("max-traffic", &["2G"]),
    ("max-bandwidth", &["5M"]),
    ("max-output", &["1K"]),
];

/// Values that both commands refuse.
const BAD: &[(&str, &str)] = &[
    ("mount", "/a"),
    ("mount", "/a:b"),
    ("mount", ":/b"),
    ("mount", "/a:/"),
    ("mount", "type=tmpfs,target=/a"),
    ("volume", "/a"),
    ("volume", "a"),
    ("volume", "a:/b:z"),
    ("cache", "nothing"),
    ("env", "=x"),
    ("env-file", "/nowhere"),
    ("access", "allow:/x"),
    ("access", "maybe:read:/x"),
];

struct Scene {
    directory: tempfile::TempDir,
    project: Project,
    data: DataDir,
}

impl Scene {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        for name in ["image", "project", "project/below"] {
            std::fs::create_dir(directory.path().join(name)).unwrap();
        }
        std::fs::write(directory.path().join("variables"), "A=b\n").unwrap();
        let root = directory.path().join("project").canonicalize().unwrap();
        let project = Project::open(&root, None).unwrap();
        let data = DataDir::open(&directory.path().join("data")).unwrap();
        Self { directory, project, data }
    }

    fn words(&self, flag: &str, values: &[&str]) -> Vec<String> {
        if values.is_empty() {
            return vec![format!("--{flag}")];
        }
        let here = self.directory.path().to_str().unwrap();
        let each = values.iter().map(|value| value.replace('@', here));
        let words = each.flat_map(|value| [format!("--{flag}"), value]);
        // Limits on traffic have an effect only with a network.
        let is_of_traffic = ["max-connections", "max-traffic", "max-bandwidth"].contains(&flag);
        let network = is_of_traffic.then(|| "--net=policy".to_owned());
        words.filter(|word| !word.is_empty()).chain(network).collect()
    }

    /// The request of `run`.
    fn run(&self, words: &[String]) -> Result<SandboxSpec, Problem> {
        let line = ["stockade", "run", "--discard"].map(str::to_owned);
        let line = line.iter().chain(words).cloned().chain(["--".into(), "true".into()]);
        let Command::Run(run) = Arguments::try_parse_from(line).unwrap().command else { panic!() };
        run::request(&run, &self.project, &self.project.root, &self.data)
    }

    /// The request of `create` to a runtime, in the project's directory.
    fn create(&self, words: &[String]) -> Result<SandboxSpec, Problem> {
        let workspace = self.project.root.to_str().unwrap();
        let line = ["stockade", "create", "--workspace", workspace].map(str::to_owned);
        let parsed = Arguments::try_parse_from(line.iter().chain(words)).unwrap();
        let Command::Create(create) = parsed.command else { panic!() };
        let request = create::request_in(*create, &self.project.root)?;
        let owner = OwnerId::from_uid(rustix::process::geteuid().as_raw());
        stockade_service::requested_spec(&request, &owner)
    }
}

fn shared_flags() -> BTreeSet<String> {
    let mut whole = Arguments::command();
    // clap creates the arguments of subcommands lazily.
    whole.build();
    let of = |name: &str| -> BTreeSet<String> {
        let command = &whole;
        let command = command.find_subcommand(name).unwrap();
        command.get_arguments().filter_map(|it| it.get_long().map(str::to_owned)).collect()
    };
    let shared: BTreeSet<_> = of("run").intersection(&of("create")).cloned().collect();
    shared.into_iter().filter(|name| !NOT_REQUESTED.contains(&name.as_str())).collect()
}

#[test]
fn every_flag_of_both_commands_makes_the_same_request() {
    let scene = Scene::new();
    let sampled: BTreeSet<String> = SAMPLES.iter().map(|(flag, _)| (*flag).to_owned()).collect();
    assert_eq!(shared_flags(), sampled, "each flag of both has a sample here");
    for (flag, values) in SAMPLES {
        let words = scene.words(flag, values);
        let (run, create) = (scene.run(&words).unwrap(), scene.create(&words).unwrap());
        // No flag that both have sets the lease.
        assert_eq!(run, SandboxSpec { lease: None, ..create }, "--{flag} {values:?}");
    }
}

#[test]
fn a_flag_changes_the_request() {
    let scene = Scene::new();
    let plain = scene.run(&[]).unwrap();
    for (flag, values) in SAMPLES {
        // One limit is not part of the request to a runtime, and `off` is the default.
        if *flag != "max-output" && (*flag, *values) != ("net", &["off"][..]) {
            assert_ne!(scene.run(&scene.words(flag, values)).unwrap(), plain, "--{flag}");
        }
    }
}

#[test]
fn both_refuse_the_same_in_the_same_words() {
    let scene = Scene::new();
    for (flag, value) in BAD {
        let words = scene.words(flag, &[value]);
        let (run, create) = (scene.run(&words).unwrap_err(), scene.create(&words).unwrap_err());
        assert_eq!(run, create, "--{flag} {value}");
    }
}

#[test]
fn commands_start_where_the_caller_is() {
    let scene = Scene::new();
    let root = &scene.project.root;
    let started = |words: &[String]| scene.run(words).unwrap().working_directory;
    assert_eq!(started(&[]).as_deref(), Some(root.as_path()));
    let below = scene.words("cwd", &["below/./x/.."]);
    assert_eq!(started(&below), Some(root.join("below")));
    let elsewhere = scene.words("cwd", &["/tmp/../var"]);
    assert_eq!(started(&elsewhere).as_deref(), Some(Path::new("/var")));
}
