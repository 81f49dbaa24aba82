//! The environment and the working directory of a command, which contain nothing of the host's.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;

use stockade_core::SandboxSpec;
use stockade_core::sandbox::Root;

use super::super::harness::{Harness, path};
use super::super::sandbox::{Sandbox, command, script};
use crate::exec::{Command, Ending};

/// Values that may be the same inside and outside, because they reveal nothing about the host.
const COMMON: [&str; 12] = [
    "PATH", "HOME", "USER", "LOGNAME", "SHELL", "TERM", "LANG", "PWD", "OLDPWD", "SHLVL",
    "HOSTNAME", "_",
];

async fn environment(sandbox: &Sandbox<'_>, command: &Command) -> BTreeMap<String, String> {
    let finished = sandbox.start(command).await.finish().await;
    assert_eq!(finished.ending, Ending::Exited(0));
    let pairs = finished.output();
    let pairs = pairs.lines().filter_map(|line| line.split_once('='));
    pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

pub(crate) async fn it_is_the_sandboxes_and_the_commands(harness: &Harness) {
    let own = [("ONE", "of the sandbox"), ("TWO", "of the sandbox"), ("EMPTY", "")];
    let own = own.map(|(name, value)| (name.to_owned(), value.into()));
    let spec = SandboxSpec { environment: own.into(), ..harness.spec() };
    let sandbox = harness.sandbox_with(&spec).await;
    let added = [("TWO", "of the command"), ("THREE", "a=b c")];
    let added = added.map(|(name, value)| (name.into(), value.into()));
    let command = Command { environment: added.into(), ..command(&["env"]) };
    let environment = environment(&sandbox, &command).await;
    let value = |name: &str| environment.get(name).map(String::as_str);
    assert_eq!(value("ONE"), Some("of the sandbox"));
    assert_eq!(value("TWO"), Some("of the command"));
    assert_eq!(value("THREE"), Some("a=b c"));
    assert_eq!(value("EMPTY"), Some(""));
    for name in ["PATH", "HOME"] {
        assert!(value(name).is_some_and(|value| !value.is_empty()), "{name} is not set");
    }
}

/// The environment of the tests is not visible inside.
pub(crate) async fn it_has_nothing_of_the_hosts(harness: &Harness) {
    let sandbox = harness.sandbox().await;
    let inside = environment(&sandbox, &command(&["env"])).await;
    let outside = std::env::vars_os();
    let leaked: Vec<_> = outside
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .filter(|(name, value)| inside.get(name) == Some(value))
        .filter(|(name, _)| !COMMON.contains(&name.as_str()))
        .collect();
    assert!(leaked.is_empty(), "{leaked:?}");
}

pub(crate) async fn values_come_as_they_are(harness: &Harness) {
    let sandbox = harness.sandbox().await;
    let odd = OsString::from_vec(b"new\nline \xff=\"'".to_vec());
    let environment = [(OsString::from("ODD"), odd.clone())].into();
    let command = Command { environment, ..script(r#"printf %s "$ODD""#) };
    let finished = sandbox.start(&command).await.finish().await;
    assert_eq!(finished.output, odd.into_vec());
}

pub(crate) async fn it_may_be_large(harness: &Harness) {
    let sandbox = harness.sandbox().await;
    let long = "y".repeat(100_000);
    let names = ["A", "B", "C"].map(|name| (name.into(), (&long).into()));
    let command = Command { environment: names.into(), ..command(&["env"]) };
    let environment = environment(&sandbox, &command).await;
    assert!(["A", "B", "C"].iter().all(|name| environment.get(*name) == Some(&long)));
}

pub(crate) async fn commands_start_where_they_are_told(harness: &Harness) {
    let spec = SandboxSpec { working_directory: Some("/tmp".into()), ..harness.spec() };
    let sandbox = harness.sandbox_with(&spec).await;
    assert_eq!(sandbox.run(&["pwd"]).await.output(), "/tmp\n");
    let elsewhere = Command { working_directory: Some(path("/data")), ..command(&["pwd"]) };
    assert_eq!(sandbox.start(&elsewhere).await.finish().await.output(), "/data\n");
}

/// In a home directory, but at the root of an image that names no directory, as with docker.
pub(crate) async fn by_default_they_start_at_home(harness: &Harness) {
    let sandbox = harness.sandbox().await;
    let home = environment(&sandbox, &command(&["env"])).await.remove("HOME");
    let is_image = matches!(harness.spec().root, Root::Image(_));
    let expected = if is_image { "/".to_owned() } else { home.unwrap() };
    assert_eq!(sandbox.run(&["pwd"]).await.output().trim_end(), expected);
}

pub(crate) async fn where_nothing_is_they_do_not_start(harness: &Harness) {
    let sandbox = harness.sandbox().await;
    sandbox.write("/data/file", "").await;
    for (directory, errno) in [("/data/none", 2), ("/data/file", 20)] {
        let lost = Command { working_directory: Some(path(directory)), ..command(&["true"]) };
        let ending = sandbox.start(&lost).await.finish().await.ending;
        match ending {
            Ending::NotRun { errno: told, .. } => assert_eq!(told, errno, "{directory}"),
            ending => panic!("{directory}: {ending:?}"),
        }
    }
}
