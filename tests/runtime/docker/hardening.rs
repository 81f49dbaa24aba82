//! What a container is, as the engine reports it, and what attacks from inside it reach.

use serde_json::{Value, json};
use stockade_core::network::Policy;
use stockade_core::sandbox::{HostMount, Root, User};
use stockade_core::{SandboxId, SandboxSpec};
use stockade_runtime::{Error, Runtime as _};
use stockade_test_support::Engine;

use super::{DockerFixture, with_engine};

/// What the engine reports about the only container of a fixture.
fn container(fixture: &DockerFixture) -> Value {
    let all = fixture.objects("container");
    let [id] = all.as_slice() else { panic!("not one container: {all:?}") };
    let id = id.trim_start_matches("container ");
    serde_json::from_str::<Value>(&fixture.engine.docker(&["inspect", id])).unwrap()[0].clone()
}

#[test]
fn the_engine_was_asked_for_nothing_more_than_needed() {
    with_engine(Engine::start(), async |fixture| {
        let runtime = fixture.client();
        let id = fixture
            .sandbox(&runtime, |spec| {
                spec.environment.insert("TOKEN".to_owned(), "not-in-the-engine".into());
            })
            .await;
        let found = container(fixture);
        assert!(!found.to_string().contains("not-in-the-engine"), "{found}");
        let (host, config) = (&found["HostConfig"], &found["Config"]);
        for (name, expected) in [
            ("NetworkMode", json!("none")),
            ("CapDrop", json!(["ALL"])),
            ("CapAdd", Value::Null),
            ("ReadonlyRootfs", json!(true)),
            ("Privileged", json!(false)),
            ("IpcMode", json!("private")),
            ("PidMode", json!("")),
            ("UTSMode", json!("")),
            ("CgroupnsMode", json!("private")),
            ("Devices", json!([])),
            ("AutoRemove", json!(true)),
            ("PidsLimit", json!(4096)),
        ] {
            assert_eq!(host[name], expected, "{name}: {host}");
        }
        assert_eq!(host["LogConfig"]["Type"], "none");
        let options: Vec<&str> =
            host["SecurityOpt"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
        assert!(options.contains(&"no-new-privileges:true"), "{options:?}");
        let filter = options.iter().find_map(|option| option.strip_prefix("seccomp="));
        assert!(filter.is_some_and(|filter| filter.contains("SCMP_ACT_ERRNO")), "{options:?}");
        assert_eq!(config["User"], "1000:1000");
        let nothing = |value: &Value| value.as_array().is_none_or(Vec::is_empty);
        assert!(nothing(&config["Cmd"]), "{config}");
        runtime.cleanup(&id).await.unwrap();
        assert_eq!(fixture.objects("container"), Vec::<String>::new());
    });
}

/// Each line of the script attacks something, and prints its name if that succeeds.
const ATTACKS: &str = r#"
touch /here 2>/dev/null && echo the root
touch /etc/here 2>/dev/null && echo the system
mount -t tmpfs none /tmp 2>/dev/null && echo a mount
unshare -r true 2>/dev/null && echo a user namespace
mknod /tmp/null c 1 3 2>/dev/null && echo a device
chroot /data /bin/true 2>/dev/null && echo another root
ls /.stockade/* 2>/dev/null
ls /proc/1/root/ >/dev/null 2>&1 && echo the root of init
cat /proc/1/environ >/dev/null 2>&1 && echo the environment of init
kill -9 1 2>/dev/null; kill -0 1 2>/dev/null && test "$(cat /proc/1/comm)" != stockade-init && echo init
test -s /etc/resolv.conf && echo a resolver
ip route 2>/dev/null | grep -q . && echo a route
(echo x > /proc/sys/kernel/hostname) 2>/dev/null && echo a setting
(echo x > /sys/fs/cgroup/memory.max) 2>/dev/null && echo a control group
ls /var/run/docker.sock 2>/dev/null
grep -c . /proc/kcore >/dev/null 2>&1 && echo the memory of the host
dmesg >/dev/null 2>&1 && echo the log of the kernel
test "$(id -u)" = 0 && echo user 0
grep -E '^Cap(Inh|Prm|Eff|Bnd|Amb)' /proc/self/status | grep -v 0000000000000000 && echo a capability
grep -q '^NoNewPrivs:.1' /proc/self/status || echo new privileges
grep -q '^Seccomp:.2' /proc/self/status || echo no filter
true
"#;

#[test]
fn no_attack_from_inside_reaches_anything() {
    with_engine(Engine::start(), async |fixture| {
        let runtime = fixture.client();
        let id = fixture.sandbox(&runtime, |_| {}).await;
        assert_eq!(fixture.sh(&runtime, &id, ATTACKS).await, "");
        // Init still serves after all that.
        assert_eq!(fixture.sh(&runtime, &id, "echo alive").await, "alive\n");
        runtime.cleanup(&id).await.unwrap();
    });
}

#[test]
fn commands_of_a_network_and_of_root_have_no_capability_either() {
    with_engine(Engine::start(), async |fixture| {
        let runtime = fixture.client();
        let caps = "grep -E '^Cap' /proc/self/status | grep -v 0000000000000000; id -u";
        let id = fixture.sandbox(&runtime, |spec| spec.network = Some(Policy::default())).await;
        assert_eq!(fixture.sh(&runtime, &id, caps).await, "1000\n");
        assert_eq!(fixture.sh(&runtime, &id, "grep Cap /proc/1/status | grep -v 00000").await, "");
        runtime.cleanup(&id).await.unwrap();
        let root = User { user: 0, group: 0 };
        let id = fixture.sandbox(&runtime, |spec| spec.user = Some(root)).await;
        assert_eq!(fixture.sh(&runtime, &id, caps).await, "0\n");
        let attack = "touch /root/x /etc/x 2>/dev/null && echo written; \
             chown 7 /data 2>/dev/null && echo given away; mount -t tmpfs x /tmp 2>/dev/null && echo mounted";
        assert_eq!(fixture.sh(&runtime, &id, attack).await, "");
        runtime.cleanup(&id).await.unwrap();
    });
}

#[test]
fn an_image_decides_what_a_request_does_not() {
    with_engine(Engine::start(), async |fixture| {
        let runtime = fixture.client();
        let with_image = |spec: &mut SandboxSpec| spec.root = Root::Image("t:user".to_owned());
        let id = fixture.sandbox(&runtime, with_image).await;
        let found = fixture.sh(&runtime, &id, "id -u; id -g; pwd; echo $FROM_IMAGE").await;
        assert_eq!(found, "1001\n1002\n/var\nyes\n");
        runtime.cleanup(&id).await.unwrap();
    });
}

#[test]
fn only_checked_paths_of_the_host_are_mounted_and_read_only_means_it() {
    with_engine(Engine::start(), async |fixture| {
        let runtime = fixture.client();
        let place = tempfile::tempdir().unwrap();
        std::fs::write(place.path().join("file"), "host\n").unwrap();
        let mount = |host: &std::path::Path| HostMount {
            host: host.to_owned(),
            inside: "/shown".into(),
            writable: false,
        };
        let shown = mount(place.path());
        let id = fixture.sandbox(&runtime, |spec| spec.mounts = vec![shown]).await;
        let found = "cat /shown/file; echo x > /shown/file; mount -o remount,rw /shown; echo x > /shown/new";
        assert_eq!(fixture.sh(&runtime, &id, &format!("({found}) 2>/dev/null")).await, "host\n");
        runtime.cleanup(&id).await.unwrap();
        for refused in [fixture.data(), fixture.data().join("runtime-docker"), "/".into()] {
            let spec = SandboxSpec {
                root: Root::Image("t:1".to_owned()),
                mounts: vec![mount(&refused)],
                ..SandboxSpec::default()
            };
            let id = SandboxId::new("refused").unwrap();
            let refused = runtime.create(&id, &spec).await.unwrap_err();
            assert!(matches!(refused, Error::PathRefused(_)), "{refused:?}");
        }
        assert_eq!(fixture.objects("container"), Vec::<String>::new());
    });
}
