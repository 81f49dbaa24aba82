//! Attacks from inside a pod, as far as the double's pods are like those of a cluster.

use stockade_runtime::{Runtime as _, State};

use crate::double::Agents;
use crate::doubled::{Fixture, id, sh, with_double};

#[test]
fn commands_have_no_rights_and_no_credentials() {
    with_double(Agents::None, 0, async |fixture| {
        let (runtime, one) = (fixture.client(), id("one"));
        runtime.create(&one, &Fixture::spec()).await.unwrap();
        let status =
            sh(&runtime, &one, "a", "grep -E 'Cap|NoNewPrivs|Seccomp:|^Uid' /proc/self/status")
                .await;
        for line in [
            "CapEff:\t0000000000000000",
            "CapBnd:\t0000000000000000",
            "NoNewPrivs:\t1",
            "Seccomp:\t2",
        ] {
            assert!(status.contains(line), "{status}");
        }
        assert!(status.contains("Uid:\t1000\t1000\t1000\t1000"), "{status}");
        let found = sh(&runtime, &one, "b", "env; ls /var/run/secrets/kubernetes.io 2>&1").await;
        for text in ["KUBERNETES", "token-of-the-double", "STOCKADE_KUBE"] {
            assert!(!found.contains(text), "{found}");
        }
        let tried = "echo x > /stockade/bin/stockade; echo x > /etc/x; rm -f /stockade/bin/stockade; ls /stockade/bin";
        assert_eq!(sh(&runtime, &one, "c", &format!("({tried}) 2>/dev/null")).await, "stockade\n");
        runtime.cleanup(&one).await.unwrap();
    });
}

#[test]
fn an_end_leaves_no_process_however_it_hides() {
    with_double(Agents::None, 0, async |fixture| {
        let (runtime, one) = (fixture.client(), id("one"));
        runtime.create(&one, &Fixture::spec()).await.unwrap();
        // One that leaves its session, its parents and its group, and has the name of a keeper.
        let script = "cp /bin/sleep ~/stockade; setsid setsid ~/stockade 1000 __keeper >/dev/null 2>&1 & sleep 0.2; echo started";
        assert_eq!(sh(&runtime, &one, "a", script).await, "started\n");
        let [process] = {
            let processes = fixture.double.store.processes.lock().unwrap();
            processes.values().cloned().collect::<Vec<_>>().try_into().unwrap()
        };
        let inside = || {
            let namespace = |pid: &str| std::fs::read_link(format!("/proc/{pid}/ns/pid")).ok();
            let own = namespace(&process.pid.to_string());
            let names = std::fs::read_dir("/proc").unwrap().flatten();
            let pids = names.filter_map(|entry| entry.file_name().into_string().ok());
            pids.filter(|pid| namespace(pid) == own)
                .filter_map(|pid| std::fs::read_to_string(format!("/proc/{pid}/cmdline")).ok())
                .filter(|line| line.contains("1000\0__keeper"))
                .count()
        };
        runtime.end(&one).await.unwrap();
        assert_eq!(inside(), 0);
        // Its files are still there, and so is its record.
        assert_eq!(runtime.inspect(&one).await.unwrap().state, State::Ended);
        runtime.cleanup(&one).await.unwrap();
    });
}
