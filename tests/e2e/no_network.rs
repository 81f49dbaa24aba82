//! A run without network access refuses what programs ask for at once, and says at the end what that
//! was and how to allow it.

use serde_json::json;

use crate::call::Outcome;
use crate::harness::World;
use crate::host::processes_with;

fn hint(outcome: &Outcome) -> Option<&str> {
    outcome.stderr.lines().find_map(|line| line.trim().strip_prefix("hint: "))
}

fn what_was_asked_for_is_listed_with_how_to_allow_it(world: &World) {
    let discard = ["--discard"];
    let by_name = ["./probe", "fetch", "direct", "packages.example.com:443"];
    let outcome = world.run(&discard, &by_name);
    outcome.is_blocked();
    assert!(outcome.stdout.contains("no answer"), "{outcome}");
    assert!(outcome.stderr.contains("no network access [EGRESS_DENIED]"), "{outcome}");
    assert_eq!(hint(&outcome), Some("--allow packages.example.com"), "{outcome}");
    // Through the proxy the port is known, and so is an address. It answers with the reason.
    let wanted =
        ["a.example.org:443", "a.example.org:80", "93.184.216.34:443", "[2606:2800::1]:80"];
    let by_proxy = [&["./probe", "fetch", "proxy"][..], &wanted].concat();
    let outcome = world.run(&discard, &by_proxy);
    assert!(outcome.stdout.contains("403 Forbidden"), "{outcome}");
    assert!(outcome.stdout.contains("no network access"), "{outcome}");
    let expected: Vec<_> = wanted.iter().map(|host| format!("--allow {host}")).collect();
    assert_eq!(hint(&outcome), Some(expected.join(" ").as_str()), "{outcome}");
    // What was printed is what a run takes.
    let mut again = vec!["--discard"];
    again.extend(hint(&outcome).unwrap().split(' '));
    world.run(&again, &["true"]).ends_with(0);
    for net in [&["--discard", "--json"][..], &["--discard", "--json", "--net", "off"]] {
        let network = world.run(net, &by_name).json()["network"].clone();
        let host = json!({
            "host": "packages.example.com",
            "port": null,
            "allow": "--allow packages.example.com",
        });
        assert_eq!(network, json!({ "wanted": [host], "unlisted": 0 }));
    }
}

/// A program can ask for any name: what it asked for is named, but is no way to make a user open the
/// host's own networks, nor to write to the terminal.
fn nothing_internal_is_offered(world: &World) {
    let hosts = [
        "127.0.0.2:80",
        "10.0.0.5:80",
        "169.254.169.254:80",
        "[::1]:9",
        "[fd00::1]:80",
        "[::ffff:10.0.0.5]:80",
        "db:5432",
        "printer.local:631",
        "metadata.google.internal:80",
        "host.stockade.internal:80",
    ];
    for way in ["proxy", "direct"] {
        let command = [&["./probe", "fetch", way][..], &hosts].concat();
        let outcome = world.run(&["--discard"], &command);
        outcome.is_blocked();
        assert_eq!(hint(&outcome), None, "{outcome}");
        // They are named all the same.
        let named = outcome.stderr.lines().find(|line| line.contains("of a private network: "));
        let named = named.unwrap_or_else(|| panic!("{outcome}"));
        for host in ["db", "printer.local", "metadata.google.internal"] {
            assert!(named.contains(host), "{outcome}");
        }
        assert!(!named.contains("127.0.0.2") && !named.contains(" [::1]"), "{outcome}");
        assert_eq!(named.contains("10.0.0.5:80"), way == "proxy", "{outcome}");
    }
    let command = ["./probe", "fetch", "proxy", "db:5432", "a.example.org:443"];
    let network = world.run(&["--discard", "--json"], &command).json()["network"].clone();
    assert_eq!(network["wanted"][0], json!({ "host": "db", "port": 5432, "allow": null }));
    assert_eq!(network["wanted"][1]["allow"], "--allow a.example.org:443");
    let bytes = r"CONNECT a\033[2Jb.example.org:1 HTTP/1.1\r\n\r\n";
    let send = format!("exec 3<>/dev/tcp/127.0.0.1/1021; printf '{bytes}' >&3; cat <&3");
    let outcome = world.run(&["--discard"], &["bash", "-c", &send]);
    assert!(outcome.stdout.contains("400 Bad Request"), "{outcome}");
    assert!(!outcome.stderr.contains(['\u{1b}', '[']), "{outcome}");
}

fn an_address_is_unreachable_at_once(world: &World) {
    let connect = "exec 3<>/dev/tcp/93.184.216.34/80";
    let outcome = world.run(&["--discard"], &["bash", "-c", connect]);
    assert!(outcome.stderr.contains("Network is unreachable"), "{outcome}");
}

/// How much is listed is bounded, whatever a program asks for.
fn many_hosts_are_counted(world: &World) {
    let hosts: Vec<_> = (0..200).map(|number| format!("n{number}.example.org:443")).collect();
    let command: Vec<_> =
        ["./probe", "fetch", "proxy"].into_iter().chain(hosts.iter().map(String::as_str)).collect();
    let outcome = world.run(&["--discard"], &command);
    assert_eq!(hint(&outcome).unwrap().matches("--allow").count(), 16, "{outcome}");
    assert!(outcome.stderr.contains("more are not listed"), "{outcome}");
    let network = world.run(&["--discard", "--json"], &command).json()["network"].clone();
    assert_eq!(network["wanted"].as_array().unwrap().len(), 64, "{network}");
    assert_eq!(network["unlisted"], 1, "{network}");
}

/// The loopback stays the sandbox's own: servers inside are reached without the proxy, and no request
/// means no process and no line.
fn what_asks_for_nothing_is_not_disturbed(world: &World) {
    let serve = "exec 3<>/dev/tcp/127.0.0.1/1021; echo $NO_PROXY; cat /etc/resolv.conf";
    let outcome = world.run(&["--discard"], &["bash", "-c", serve]);
    assert!(outcome.stdout.contains("localhost,127.0.0.1,::1"), "{outcome}");
    assert!(outcome.stdout.contains("nameserver 127.0.0.1"), "{outcome}");
    for command in ["true", "exec 3<>/dev/tcp/127.0.0.1/1021"] {
        let outcome = world.run(&["--discard"], &["bash", "-c", command]);
        outcome.ends_with(0);
        assert_eq!(outcome.stderr, "", "{outcome}");
    }
    let outcome = world.run(&["--discard"], &["bash", "-c", "exec 3<>/dev/tcp/127.0.0.1/1"]);
    assert!(outcome.stderr.contains("Connection refused"), "{outcome}");
}

/// The process that refuses ends with its run, and holds no privilege.
fn the_process_is_confined_and_ends_with_the_run(world: &World) {
    let ask = "exec 3<>/dev/tcp/127.0.0.1/1021; printf 'GET http://a.example.org/ HTTP/1.1\\r\\n\\r\\n' >&3; cat <&3; echo ready; read line";
    let mut run = world.stockade(&["run", "--discard", "--", "bash", "-c", ask]).start();
    run.wait_for_output("ready");
    let parent = format!("PPid:\t{}\n", run.pid());
    let status = |process: u32| {
        std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default()
    };
    let found: Vec<_> = processes_with("__network-stub")
        .into_iter()
        .filter(|process| status(*process).contains(&parent))
        .collect();
    let [process] = found[..] else { panic!("{found:?}") };
    let status = status(process);
    for line in
        ["CapEff:\t0000000000000000", "CapPrm:\t0000000000000000", "NoNewPrivs:\t1", "Seccomp:\t2"]
    {
        assert!(status.contains(line), "{line}: {status}");
    }
    run.signal(rustix::process::Signal::KILL);
    crate::daemons::wait_until("the process has ended", || {
        !processes_with("__network-stub").contains(&process)
    });
}

as_root_and_as_user![
    what_was_asked_for_is_listed_with_how_to_allow_it,
    nothing_internal_is_offered,
    an_address_is_unreachable_at_once,
    many_hosts_are_counted,
    what_asks_for_nothing_is_not_disturbed,
    the_process_is_confined_and_ends_with_the_run,
];
