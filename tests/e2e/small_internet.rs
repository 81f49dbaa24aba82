//! A small internet of network namespaces, with names, an authority and servers of its own, and the
//! programs that people use: curl, git, pip, npm and clients of HTTP/2, gRPC and WebSockets. The
//! machine that Stockade runs on is a namespace too, and reaches nothing else.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use serde_json::{Value, json};
use stockade_test_support::skip;

use crate::call::{Call, Outcome};
use crate::daemons::wait_until;
use crate::harness::{Identity, World, tests_run_as_root};
use crate::host;

/// The network of all hosts. Its addresses are public, and never leave the namespaces.
const NETWORK: &str = "203.0.114";
const HOSTS: [&str; 7] =
    ["web.test", "other.test", "grpc.test", "pypi.test", "npm.test", "git.test", "registry.test"];
/// The same of version 6, and a host that has no other address.
const NETWORK_6: &str = "2a00:1098:7:";
const HOST_6: &str = "six.test";
/// What the tests need.
const PROGRAMS: [&str; 8] =
    ["/usr/sbin/ip", "unshare", "nsenter", "node", "npm", "git", "curl", "/usr/bin/python3"];

const SERVERS: &str = include_str!("small_internet/internet.js");
const CLIENT: &str = include_str!("small_internet/client.js");

/// Runs a program that must succeed.
fn run(program: &str, arguments: &[&str], directory: &Path) {
    let mut command = Command::new(program);
    let output = command.args(arguments).current_dir(directory).output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments:?}: {told}");
}

/// A namespace, which ends with the process that holds it.
struct Namespace(Child);

impl Namespace {
    fn new() -> Self {
        let held = Command::new("unshare").args(["--net", "sleep", "600"]).spawn().unwrap();
        let own = Self(held);
        let link = |pid: &str| std::fs::read_link(format!("/proc/{pid}/ns/net")).ok();
        wait_until("the namespace is there", || link(&own.pid()) != link("self"));
        own
    }

    fn pid(&self) -> String {
        self.0.id().to_string()
    }

    /// Whether it can have addresses of version 6.
    fn has_version_6(&self) -> bool {
        let pid = self.pid();
        let words = ["-t", &pid, "-n", "cat", "/proc/sys/net/ipv6/conf/all/disable_ipv6"];
        let read = Command::new("nsenter").args(words).output().unwrap();
        read.stdout.starts_with(b"0")
    }

    fn ip(&self, arguments: &str) {
        let pid = self.pid();
        let mut words = vec!["-t", &pid, "-n", "ip"];
        words.extend(arguments.split(' '));
        run("nsenter", &words, Path::new("/"));
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The internet, and the machine that is connected to it.
struct Internet<'a> {
    world: &'a World,
    machine: Namespace,
    _far: Namespace,
    servers: Child,
    log: PathBuf,
    /// `/etc/hosts`, `/etc/resolv.conf` and the authorities of the machine.
    files: [String; 3],
}

impl Drop for Internet<'_> {
    fn drop(&mut self) {
        let _ = self.servers.kill();
        let _ = self.servers.wait();
    }
}

fn pem(kind: &str, content: &[u8]) -> String {
    format!("-----BEGIN {kind}-----\n{}\n-----END {kind}-----\n", STANDARD.encode(content))
}

impl<'a> Internet<'a> {
    fn start(world: &'a World) -> Self {
        let (machine, far) = (Namespace::new(), Namespace::new());
        machine.ip(&format!("link add out type veth peer name in netns {}", far.pid()));
        for (own, device, address) in [(&machine, "out", 2), (&far, "in", 1)] {
            own.ip(&format!("addr add {NETWORK}.{address}/24 dev {device}"));
            own.ip(&format!("link set {device} up"));
            own.ip("link set lo up");
        }
        for at in 0..HOSTS.len() {
            far.ip(&format!("addr add {NETWORK}.{}/32 dev in", 10 + at));
        }
        machine.ip(&format!("route add default via {NETWORK}.1"));
        if machine.has_version_6() {
            machine.ip(&format!("addr add {NETWORK_6}:2/64 dev out nodad"));
            far.ip(&format!("addr add {NETWORK_6}:1/64 dev in nodad"));
            far.ip(&format!("addr add {NETWORK_6}:10/128 dev in nodad"));
            machine.ip(&format!("-6 route add default via {NETWORK_6}:1"));
        }

        let place = |name: &str| world.path(name).to_str().unwrap().to_owned();
        let [hosts, resolver, trusted] = ["hosts", "resolv.conf", "authorities.pem"].map(place);
        world.plant(Path::new(&hosts), "127.0.0.1 localhost\n");
        world.plant(Path::new(&resolver), &format!("nameserver {NETWORK}.1\n"));
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        // Programs take a certificate for its own authority if both have the same name.
        params.distinguished_name.push(DnType::CommonName, "a small internet");
        let authority = params.self_signed(&key).unwrap();
        world.plant(Path::new(&trusted), &pem("CERTIFICATE", authority.der()));
        let issuer = Issuer::new(params, key);
        let own = KeyPair::generate().unwrap();
        let names: Vec<_> = HOSTS.iter().chain([&HOST_6]).map(|name| (*name).to_owned()).collect();
        let certificate = CertificateParams::new(names).unwrap().signed_by(&own, &issuer).unwrap();
        let far_files = world.path("far");
        std::fs::create_dir(&far_files).unwrap();
        let far_file = |name: &str| far_files.join(name).to_str().unwrap().to_owned();
        std::fs::write(far_file("key.pem"), pem("PRIVATE KEY", &own.serialize_der())).unwrap();
        std::fs::write(far_file("host.pem"), pem("CERTIFICATE", certificate.der())).unwrap();
        std::fs::write(far_file("internet.js"), SERVERS).unwrap();
        packages(&far_files);
        repository(&far_files);
        world.write("client.js", CLIENT);

        let log = far_files.join("log");
        let output = std::fs::File::create(&log).unwrap();
        let pid = far.pid();
        let servers = Command::new("nsenter")
            .args(["-t", &pid, "-n", "node", &far_file("internet.js"), NETWORK])
            .args([far_file("key.pem"), far_file("host.pem")])
            .args([far_file("packages"), far_file("repositories")])
            .stdout(output.try_clone().unwrap())
            .stderr(output)
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        let files = [hosts, resolver, trusted];
        let internet = Self { world, machine, _far: far, servers, log, files };
        wait_until("the servers are ready", || internet.told().contains("ready"));
        internet
    }

    /// What the servers have told.
    fn told(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap()
    }

    /// The requests that the servers have told since the last call.
    fn take(&self) -> Vec<Value> {
        let told = self.told();
        std::fs::write(&self.log, "").unwrap();
        told.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    }

    /// `stockade WORDS` on the machine.
    fn stockade(&self, words: &[&str]) -> Call {
        let [hosts, resolver, trusted] = &self.files;
        let stockade = self.world.binary();
        let mut all =
            vec!["with-authorities", hosts, resolver, trusted, stockade.to_str().unwrap()];
        all.extend(words);
        self.world.in_network_of(&self.machine.pid(), &self.world.probe(), &all)
    }

    /// `stockade run --discard OPTIONS -- sh -c SCRIPT` on the machine.
    fn shell(&self, options: &[&str], script: &str) -> Outcome {
        self.call(options, script).finish()
    }

    fn call(&self, options: &[&str], script: &str) -> Call {
        // Programs with a list of their own are told where that of the machine is.
        let own = "/etc/ssl/certs/ca-certificates.crt";
        let told = ["NODE_EXTRA_CA_CERTS", "PIP_CERT", "GIT_SSL_CAINFO", "npm_config_cafile"];
        let told = told.map(|name| format!("--env={name}={own}"));
        let reads = options.iter().any(|option| ["--policy", "--secret"].contains(option));
        let mut words = vec!["run", "--discard"];
        if !reads {
            words.extend(told.iter().map(String::as_str));
        }
        words.extend(options);
        words.extend(["--", "sh", "-c", script]);
        self.stockade(&words).deadline(120)
    }

    /// A file with a policy.
    fn policy(&self, policy: &Value) -> String {
        let file = self.world.path("policy.json");
        self.world.plant(&file, &policy.to_string());
        file.to_str().unwrap().to_owned()
    }
}

/// A package for pip and one for npm.
fn packages(directory: &Path) {
    std::fs::create_dir_all(directory.join("packages")).unwrap();
    std::fs::create_dir_all(directory.join("package")).unwrap();
    let wheel = "import zipfile\n\
        wheel = zipfile.ZipFile('packages/tiny-1.0-py3-none-any.whl', 'w')\n\
        wheel.writestr('tiny.py', 'said = \"tiny\"\\n')\n\
        about = 'tiny-1.0.dist-info/'\n\
        wheel.writestr(about + 'METADATA', 'Metadata-Version: 2.1\\nName: tiny\\nVersion: 1.0\\n')\n\
        wheel.writestr(about + 'WHEEL', 'Wheel-Version: 1.0\\nGenerator: x\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n')\n\
        wheel.writestr(about + 'RECORD', '')\n\
        wheel.close()\n";
    run("/usr/bin/python3", &["-c", wheel], directory);
    let manifest = json!({"name": "tiny", "version": "1.0.0", "main": "index.js"});
    std::fs::write(directory.join("package/package.json"), manifest.to_string()).unwrap();
    std::fs::write(directory.join("package/index.js"), "module.exports = 'tiny';\n").unwrap();
    run("tar", &["-czf", "packages/tiny-1.0.0.tgz", "package"], directory);
}

/// A repository with one commit, to which can be pushed.
fn repository(directory: &Path) {
    let place = directory.join("repositories");
    std::fs::create_dir(&place).unwrap();
    let git = |arguments: &[&str]| run("git", arguments, &place);
    git(&["init", "-q", "--bare", "-b", "main", "tiny.git"]);
    git(&["-C", "tiny.git", "config", "http.receivepack", "true"]);
    git(&["init", "-q", "-b", "main", "work"]);
    std::fs::write(place.join("work/tiny.txt"), "tiny\n").unwrap();
    git(&["-C", "work", "add", "."]);
    let named = ["-c", "user.name=a", "-c", "user.email=a@a.test"];
    git(&[&["-C", "work"], &named[..], &["commit", "-q", "-m", "one"]].concat());
    git(&["-C", "work", "push", "-q", "../tiny.git", "main"]);
}

/// Runs a test as root, if all programs are there.
fn on_a_small_internet(name: &str, test: impl FnOnce(&Internet<'_>)) {
    on_a_small_internet_as(Identity::Root, name, test);
}

/// The same as a user of the machine. Only root can make its network.
fn on_a_small_internet_as(identity: Identity, name: &str, test: impl FnOnce(&Internet<'_>)) {
    let name = format!("small_internet::{name}");
    let is_there = |program: &&str| {
        let found = Command::new("sh").args(["-c", &format!("command -v {program}")]).output();
        found.is_ok_and(|found| found.status.success())
    };
    if let Some(missing) = PROGRAMS.iter().find(|program| !is_there(program)) {
        return skip(&name, &format!("{missing} is not installed"));
    }
    if !tests_run_as_root() {
        return skip(&name, "the tests do not run as root, who alone connects networks");
    }
    identity.runs(&name, |world| test(&Internet::start(world)));
}

#[test]
fn tunnelled_hosts_are_reached_and_others_are_not() {
    on_a_small_internet("tunnelled", |internet| {
        let allow = ["--allow", "web.test", "--allow", "grpc.test", "--allow", "private.test"];
        let outcome = internet.shell(
            &allow,
            "curl -s --http2 https://web.test/two; curl -s --http1.1 https://web.test/one; \
             curl -s http://web.test/plain; curl -s --proxy socks5h://127.0.0.1:1023 https://web.test/socks; \
             curl -s -m 20 https://other.test/; curl -s -m 20 https://private.test/; \
             node client.js grpc https://grpc.test/pkg.Echo/Chat; \
             node client.js grpc http://grpc.test:50051/pkg.Echo/Chat; \
             node client.js socket https://web.test/socket",
        );
        for expected in [
            r#""version":"2.0","method":"GET","url":"/two""#,
            r#""version":"1.1","method":"GET","url":"/one""#,
            r#""url":"/plain""#,
            r#""url":"/socks""#,
            "received hello",
        ] {
            assert!(outcome.stdout.contains(expected), "{expected}: {outcome}");
        }
        let both = outcome.stdout.matches("status 0, both messages: true").count();
        assert_eq!(both, 2, "with TLS and without: {outcome}");
        assert!(outcome.stderr.contains("other.test") && outcome.stderr.contains("not-allowed"));
        assert!(outcome.stderr.contains("internal-address"), "{outcome}");
        assert!(!internet.told().contains("other.test"), "{outcome}");
    });
}

#[test]
fn requests_are_checked_in_each_protocol() {
    on_a_small_internet("requests", |internet| {
        let policy = internet.policy(&json!({"allow": [
            {"host": "web.test", "paths": ["/open/*", "/socket"]},
            {"host": "grpc.test", "paths": ["/pkg.Echo/*"]},
        ]}));
        let outcome = internet.shell(
            &["--policy", &policy],
            "for version in --http2 --http1.1; do for path in /open/a /closed /open/../closed /open//a; do \
               curl -s --path-as-is $version -o /dev/null -w '%{http_version} %{http_code}\\n' https://web.test$path; \
             done; done; \
             node client.js grpc https://grpc.test/pkg.Echo/Chat; \
             node client.js grpc https://grpc.test/pkg.Other/Chat; \
             node client.js socket https://web.test/socket; \
             node client.js socket https://web.test/other",
        );
        let lines: Vec<_> = outcome.stdout.lines().collect();
        let expected = [
            "2 200",
            "2 403",
            "2 400",
            "2 400",
            "1.1 200",
            "1.1 403",
            "1.1 400",
            "1.1 400",
            "status 0, both messages: true",
            "status 7, both messages: false",
            "received hello",
            "failed: status 403",
        ];
        assert_eq!(lines, expected, "{outcome}");
        let told = internet.take();
        assert!(told.iter().all(|told| told["url"] != "/closed"), "{told:?}");
        assert_eq!(told.iter().filter(|told| told["url"] == "/open/a").count(), 2, "{told:?}");
    });
}

#[test]
fn an_ordinary_user_has_the_same_network() {
    on_a_small_internet_as(Identity::User, "an_ordinary_user", |internet| {
        let (first, second) = host::token();
        let value = format!("sk-{first}{second}");
        let options =
            ["--allow", "web.test", "--allow", "private.test", "--secret", "API_KEY@web.test"];
        let script = "id -u; for version in --http2 --http1.1; do \
             curl -s $version -H \"authorization: Bearer $API_KEY\" https://web.test/; echo; done; \
             curl -s http://web.test/plain; curl -s -m 20 https://other.test/; \
             curl -s -m 20 https://private.test/";
        let outcome = internet.call(&options, script).env("API_KEY", &value).finish();
        assert!(
            outcome.stdout.starts_with(&internet.world.identity.uid().to_string()),
            "{outcome}"
        );
        assert!(!outcome.stdout.contains(&value), "{outcome}");
        assert!(outcome.stderr.contains("not-allowed"), "{outcome}");
        assert!(outcome.stderr.contains("internal-address"), "{outcome}");
        let told = internet.take();
        let sent = format!("Bearer {value}");
        let with_secret = told.iter().filter(|told| told["authorization"] == sent.as_str());
        let versions: Vec<_> = with_secret.map(|told| told["version"].clone()).collect();
        assert_eq!(versions, ["2.0", "1.1"], "{told:?}");
        assert!(told.iter().any(|told| told["url"] == "/plain"), "{told:?}");
    });
}

#[test]
fn hosts_of_version_6_are_reached_and_what_leads_inside_is_not() {
    on_a_small_internet("version_6", |internet| {
        if !internet.machine.has_version_6() {
            return skip("small_internet::version_6", "this machine has no IPv6");
        }
        let literal = format!("[{NETWORK_6}:10]:80");
        let inside = ["private6.test", "mapped6.test", "translated6.test", "mixed.test"];
        let mut options = vec!["--allow", HOST_6, "--allow", "web.test", "--allow", &literal];
        options.extend(inside.iter().flat_map(|name| ["--allow", *name]));
        let lookups: Vec<_> =
            inside.iter().map(|name| format!("curl -s -m 20 https://{name}/")).collect();
        let script = format!(
            "curl -s --http2 https://{HOST_6}/two; curl -s --http1.1 https://{HOST_6}/one; \
             curl -4 -s http://{HOST_6}/four; curl -g -s http://{literal}/literal; \
             curl -6 -s --noproxy '*' https://{HOST_6}/six; curl -6 -s --noproxy '*' https://web.test/any; \
             curl -g -s http://[{NETWORK_6}:1]/other; {}; true",
            lookups.join("; ")
        );
        let outcome = internet.shell(&options, &script);
        for url in ["/two", "/one", "/four", "/literal", "/six", "/any"] {
            assert!(outcome.stdout.contains(&format!("\"url\":\"{url}\"")), "{url}: {outcome}");
        }
        let told = internet.take();
        assert_eq!(told.len(), 6, "{told:?}");
        for name in inside {
            let line = outcome.stderr.lines().find(|line| line.contains(name));
            assert!(
                line.is_some_and(|line| line.contains("internal-address")),
                "{name}: {outcome}"
            );
        }
    });
}

#[test]
fn a_secret_is_used_in_each_protocol() {
    on_a_small_internet("secret", |internet| {
        let (first, second) = host::token();
        let value = format!("sk-{first}{second}");
        let allow = ["--allow", "web.test", "--allow", "git.test", "--secret", "API_KEY@web.test"];
        let script = "for version in --http2 --http1.1; do \
             curl -s $version -H \"authorization: Bearer $API_KEY\" https://web.test/; echo; done";
        let outcome = internet.call(&allow, script).env("API_KEY", &value).finish();
        outcome.succeeds();
        assert!(!outcome.stdout.contains(&value), "{outcome}");
        let told = internet.take();
        let sent = format!("Bearer {value}");
        let versions: Vec<_> = told
            .iter()
            .filter(|told| told["authorization"] == sent.as_str())
            .map(|told| told["version"].clone())
            .collect();
        assert_eq!(versions, ["2.0", "1.1"], "{told:?}");
    });
}

#[test]
fn packages_are_installed_and_repositories_cloned() {
    on_a_small_internet("packages", |internet| {
        let policy = internet.policy(&json!({"allow": [
            {"host": "pypi.test", "methods": ["GET"]},
            {"host": "npm.test", "methods": ["GET"]},
            {"host": "git.test", "methods": ["GET"], "git_fetch": true},
        ]}));
        let script = "cd /tmp && export HOME=/tmp \
             && /usr/bin/python3 -m pip install -q --no-cache-dir --disable-pip-version-check --target=/tmp/pip \
                  --index-url https://pypi.test/simple tiny \
             && PYTHONPATH=/tmp/pip /usr/bin/python3 -c 'import tiny; print(\"pip\", tiny.said)'; \
             mkdir node && cd node && npm install --silent --no-audit --no-fund --no-update-notifier \
                  --registry https://npm.test tiny && node -e 'console.log(\"npm\", require(\"tiny\"))'; \
             cd /tmp && git clone -q https://git.test/tiny.git && echo git $(cat tiny/tiny.txt) && cd tiny \
             && git -c user.name=a -c user.email=a@a.test commit -q --allow-empty -m two \
             && git push -q origin main && echo pushed";
        let outcome = internet.shell(&["--policy", &policy], script);
        for expected in ["pip tiny", "npm tiny", "git tiny"] {
            let servers = internet.told();
            assert!(outcome.stdout.contains(expected), "{expected}: {outcome}{servers}");
        }
        assert!(!outcome.stdout.contains("pushed"), "{outcome}");
        assert!(outcome.stderr.contains("request-not-allowed"), "{outcome}");
        // The same without rules about requests.
        let allow = ["--allow", "pypi.test", "--allow", "npm.test", "--allow", "git.test"];
        let outcome = internet.shell(&allow, script);
        for expected in ["pip tiny", "npm tiny", "git tiny", "pushed"] {
            let servers = internet.told();
            assert!(outcome.stdout.contains(expected), "{expected}: {outcome}{servers}");
        }
    });
}

/// What `--net learn` writes is a policy under which the same command works again.
#[test]
fn a_policy_is_learned_from_each_protocol() {
    on_a_small_internet("learn", |internet| {
        let (first, second) = host::token();
        let value = format!("sk-{first}{second}");
        let file = internet.world.outside().join("learned.toml");
        let file = file.to_str().unwrap();
        let script = "curl -s --http2 https://other.test/; curl -s http://other.test/; \
             curl -s --http2 -H \"authorization: Bearer $API_KEY\" https://web.test/; \
             NODE_EXTRA_CA_CERTS=/etc/ssl/certs/ca-certificates.crt node client.js grpc https://grpc.test/pkg.Echo/Chat; \
             node client.js grpc http://grpc.test:50051/pkg.Echo/Chat";
        let secret = ["--secret", "API_KEY@web.test"];
        let learn = [&["--net", "learn", "--learn-file", file], &secret[..]].concat();
        let again = [&["--policy", file], &secret[..]].concat();
        for options in [&learn, &again] {
            let outcome = internet.call(options, script).env("API_KEY", &value).finish();
            let both = outcome.stdout.matches("status 0, both messages: true").count();
            assert_eq!(both, 2, "{options:?}: {outcome}");
            let told = internet.take();
            let sent = format!("Bearer {value}");
            assert!(told.iter().any(|told| told["authorization"] == sent.as_str()), "{told:?}");
            assert!(!outcome.stdout.contains(&value), "{outcome}");
        }
        let learned = std::fs::read_to_string(file).unwrap();
        // Where requests were read, the rules name them: without TLS, and of the host with a secret.
        for rule in [
            "host = \"grpc.test\"\nports = [443]\n\n",
            "host = \"grpc.test\"\nports = [50051]\nmethods = [\"POST\"]\npaths = [\"/pkg.Echo/Chat\"]\n",
            "host = \"other.test\"\nports = [443]\n\n",
            "host = \"other.test\"\nports = [80]\nmethods = [\"GET\"]\npaths = [\"/\"]\n",
            "host = \"web.test\"\nports = [443]\nmethods = [\"GET\"]\npaths = [\"/\"]\n",
        ] {
            assert!(learned.contains(rule), "{rule}: {learned}");
        }
        // Nothing else is allowed: another path, another method, another host.
        let script = "curl -s -o /dev/null -w '%{http_code} ' http://other.test/x; \
             curl -s -o /dev/null -w '%{http_code} ' -X DELETE http://other.test/; \
             curl -s -o /dev/null -w '%{http_code} ' https://web.test/x; \
             curl -s -o /dev/null -w '%{http_code} ' --http2 -X POST https://web.test/";
        let outcome = internet.call(&again, script).env("API_KEY", &value).finish();
        assert_eq!(outcome.stdout.trim(), "403 403 403 403", "{outcome}");
    });
}

/// A registry of the internet cannot make its client connect to this machine, its networks or a metadata
/// service: neither by a redirect, nor as its token service, nor by a name that leads there.
#[test]
fn a_registry_leads_nowhere_inside() {
    on_a_small_internet("registry", |internet| {
        for address in ["169.254.169.254", "10.0.0.5"] {
            internet.machine.ip(&format!("addr add {address}/32 dev lo"));
        }
        let log = internet.world.path("connections");
        let listen = "require('net').createServer((socket) => { console.log('connected'); socket.end(); }).listen(8000, \
             () => console.log('ready'))";
        let pid = internet.machine.pid();
        let mut listener = Command::new("nsenter")
            .args(["-t", &pid, "-n", "node", "-e", listen])
            .stdout(std::fs::File::create(&log).unwrap())
            .spawn()
            .unwrap();
        let heard = || std::fs::read_to_string(&log).unwrap();
        wait_until("the listener is ready", || heard().contains("ready"));
        let pull = |way: &str, url: &str| {
            let digits: String = url.bytes().map(|byte| format!("{byte:02x}")).collect();
            let image = format!("registry.test/{way}/{digits}:1");
            internet.stockade(&["image", "pull", &image]).finish()
        };
        for way in ["redirect", "token"] {
            for url in [
                "http://127.0.0.1:8000/",
                "http://localhost:8000/",
                "http://2130706433:8000/",
                "http://[::1]:8000/",
                "https://[::ffff:127.0.0.1]:8000/",
                "https://0.0.0.0:8000/",
                "https://loopback.test:8000/",
                "https://169.254.169.254:8000/latest/meta-data/",
                "https://10.0.0.5:8000/",
                "https://private.test:8000/",
            ] {
                let outcome = pull(way, url);
                outcome.ends_with(1);
                assert!(outcome.stderr.contains("a registry leads to"), "{way} {url}: {outcome}");
            }
        }
        assert_eq!(heard(), "ready\n", "nothing connected");
        let requests = internet.take();
        assert_eq!(requests.iter().filter(|request| request["way"] == "token").count(), 10);
        // The listener can be reached: by its address, which the user may name.
        internet.stockade(&["image", "pull", "127.0.0.1:8000/x:1"]).finish().ends_with(1);
        assert!(heard().contains("connected"));
        let _ = listener.kill();
        let _ = listener.wait();
    });
}

#[test]
fn traffic_has_limits() {
    on_a_small_internet("limits", |internet| {
        let limits = ["--allow", "web.test", "--max-traffic", "200K", "--json"];
        let script = "head -c 400000 /dev/zero | curl -s -m 30 --data-binary @- http://web.test/; \
             curl -s -m 30 -o /dev/null -w '%{http_code}\\n' http://web.test/";
        let outcome = internet.shell(&limits, script);
        let refused = outcome.json()["network"]["refused"].clone();
        let is_told = |refused: &Value| {
            refused["reason"] == "too-many" && refused["code"] == "QUOTA_EXCEEDED"
        };
        assert!(refused.as_array().unwrap().iter().any(is_told), "{refused}");
        let told = internet.take();
        assert!(told.is_empty(), "nothing was whole: {told:?}");
    });
}
