//! Commands run as the requested user, and files belong to the requested owner.

use stockade_core::SandboxSpec;
use stockade_core::sandbox::User;

use super::super::harness::{Harness, path, within};
use super::super::sandbox::{Sandbox, content, script};
use crate::exec::{Command, Ending};
use crate::files::WriteOptions;

const ANNE: User = User { user: 1234, group: 2345 };
const BERT: User = User { user: 3456, group: 4567 };

async fn run_as(sandbox: &Sandbox<'_>, user: Option<User>, text: &str) -> (Ending, String) {
    let finished = sandbox.start(&Command { user, ..script(text) }).await.finish().await;
    (finished.ending.clone(), finished.output())
}

const WHO: &str = "echo $(id -u) $(id -g) $(id -G)";

pub(crate) async fn commands_run_as_they_are_told(harness: &Harness) {
    let sandbox = harness.empty_sandbox(&SandboxSpec { user: Some(ANNE), ..harness.spec() }).await;
    assert_eq!(run_as(&sandbox, None, WHO).await.1, "1234 2345 2345\n");
    assert_eq!(run_as(&sandbox, Some(BERT), WHO).await.1, "3456 4567 4567\n");
}

pub(crate) async fn one_user_cannot_harm_another(harness: &Harness) {
    let sandbox = harness.sandbox().await;
    let secret = "umask 077; echo secret > /data/secret; exec sleep 1000";
    let anne = sandbox.start(&Command { user: Some(ANNE), ..script(secret) }).await;
    sandbox.grows_beyond("/data/secret", 0).await;
    let (ending, text) = run_as(&sandbox, Some(BERT), "cat /data/secret 2>/dev/null").await;
    assert_eq!((ending, text.as_str()), (Ending::Exited(1), ""));
    // Processes of other users may be visible, but cannot be killed.
    run_as(&sandbox, Some(BERT), "kill -9 -1").await;
    assert_eq!(run_as(&sandbox, Some(ANNE), "cat /data/secret").await.1, "secret\n");
    sandbox.signal(&anne.exec, 15).await;
    assert_eq!(anne.finish().await.ending, Ending::Signaled(15));
}

pub(crate) async fn files_belong_to_whom_they_are_given(harness: &Harness) {
    let sandbox = harness.sandbox().await;
    let (runtime, id) = (sandbox.runtime(), sandbox.id());
    let options = WriteOptions { owner: Some(ANNE), mode: 0o600, make_parents: true };
    let (file, directory) = (path("/data/of/anne"), path("/data/hers"));
    let written = runtime.write_file(id, &file, content("hers"), options);
    within("writing", written).await.unwrap();
    let made = runtime.make_directory(id, &directory, WriteOptions { mode: 0o700, ..options });
    within("a directory", made).await.unwrap();
    for file in ["/data/of/anne", "/data/hers"] {
        assert_eq!(sandbox.stat(file).await.unwrap().owner, ANNE, "{file}");
    }
    let touch = "echo more >> /data/of/anne && : > /data/hers/new";
    assert_ne!(run_as(&sandbox, Some(BERT), touch).await.0, Ending::Exited(0));
    assert_eq!(run_as(&sandbox, Some(ANNE), touch).await.0, Ending::Exited(0));
    assert_eq!(sandbox.stat("/data/hers/new").await.unwrap().owner, ANNE);
}

/// Files without a requested owner belong to the user of commands without a requested user.
pub(crate) async fn files_are_the_ordinary_users(harness: &Harness) {
    let sandbox = harness.sandbox().await;
    sandbox.write("/data/below/file", "api\n").await;
    let written = sandbox.sh("echo shell >> /data/below/file && : > /data/below/new").await;
    assert_eq!(written.ending, Ending::Exited(0), "{}", written.error());
    assert_eq!(sandbox.read("/data/below/file").await, "api\nshell\n");
    let owner = sandbox.stat("/data/below/new").await.unwrap().owner;
    assert_eq!(sandbox.stat("/data/below/file").await.unwrap().owner, owner);
    let ids = sandbox.good("echo $(id -u) $(id -g)").await;
    assert_eq!(ids, format!("{} {}\n", owner.user, owner.group));
}
