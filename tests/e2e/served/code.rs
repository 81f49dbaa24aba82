//! Code in contexts: one client that reads nothing stops no other context, code cannot write events of other contexts,
//! and cells may contain what notebooks have besides Python.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::machine::WHEEL;
use super::{PATIENCE, Response, Server, key};
use crate::harness::World;

/// A sandbox with its token for code.
struct Place<'s> {
    server: &'s Server,
    path: String,
    token: String,
}

impl<'s> Place<'s> {
    fn new(server: &'s Server, key: &str) -> Self {
        let id = server.create(key);
        let token = server.token(key, &id, 44772);
        Self { server, path: format!("/v1/sandboxes/{id}/proxy/44772"), token }
    }

    fn ask(&self, line: &str, body: &Value) -> Response {
        let (method, path) = line.split_once(' ').unwrap();
        self.server.json(&format!("{method} {}{path}", self.path), &[&self.token], body)
    }

    fn context(&self, language: &str) -> String {
        let created = self.ask("POST /code/context", &json!({ "language": language }));
        assert_eq!(created.status, 200, "{}", created.text());
        created.value()["id"].as_str().unwrap().to_owned()
    }

    fn run(&self, context: &str, code: &str) -> Vec<Value> {
        let request = json!({ "code": code, "context": { "id": context } });
        let ran = self.ask("POST /code", &request);
        assert_eq!(ran.status, 200, "{}", ran.text());
        ran.events()
    }

    fn sh(&self, script: &str) -> String {
        output(&self.ask("POST /command", &json!({ "command": script })).events())
    }

    /// Starts code, and reads nothing of its stream.
    fn start(&self, context: &str, code: &str) -> TcpStream {
        let body = json!({ "code": code, "context": { "id": context } }).to_string();
        let head = format!(
            "POST {}/code HTTP/1.1\r\nhost: {}\r\n{}\r\nconnection: close\r\n\
             content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            self.path,
            self.server.host(),
            self.token,
            body.len()
        );
        let mut stream = TcpStream::connect(("127.0.0.1", self.server.port)).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(head.as_bytes()).unwrap();
        stream
    }
}

fn output(events: &[Value]) -> String {
    let texts = events.iter().filter(|event| event["type"] == "stdout");
    texts.map(|event| event["text"].as_str().unwrap()).collect::<Vec<_>>().join("\n")
}

fn a_slow_client_stops_no_other_context(world: &World) {
    const PIECES: usize = 160;
    const PIECE: usize = 256 << 10;
    let server = Server::start(world, &[]);
    let (key, _) = key(world, &["--owner", "me"]);
    let place = Place::new(&server, &key);
    for language in ["bash", "python"] {
        let (slow, other) = (place.context(language), place.context(language));
        let code = match language {
            "bash" => format!(
                "for i in $(seq {PIECES}); do head -c {PIECE} /dev/zero | tr '\\0' x; echo $i > /tmp/{language}; done"
            ),
            _ => format!(
                "for i in range(1, {PIECES} + 1):\n    print('x' * {PIECE})\n    open('/tmp/{language}', 'w').write(str(i))"
            ),
        };
        let mut stream = place.start(&slow, &code);
        let progress = || place.sh(&format!("cat /tmp/{language} 2>/dev/null"));
        // Its client reads nothing, so the code stops; the time until then has no limit of its own.
        let mut before = String::new();
        loop {
            std::thread::sleep(Duration::from_millis(700));
            let now = progress();
            if !now.trim().is_empty() && now == before {
                break;
            }
            before = now;
        }
        let done: usize = before.trim().parse().unwrap();
        assert!(done < PIECES, "{language}: the code did not wait for its client");
        // The other context is not concerned.
        let code = if language == "bash" { "echo other" } else { "print('other')" };
        let events = place.run(&other, code);
        assert_eq!(output(&events).trim(), "other", "{events:?}");
        // Nothing of the output is lost.
        let mut all = Vec::new();
        stream.read_to_end(&mut all).unwrap();
        let events = Response::parse(&all).events();
        assert_eq!(events.last().unwrap()["type"], "execution_complete", "{language}");
        let written = output(&events).matches('x').count();
        assert_eq!(written, PIECES * PIECE, "{language}: output is lost");
        assert_eq!(progress().trim(), PIECES.to_string());
    }
}

/// Writes what looks like messages of the driver to everything that it can open, and says what that was.
const ATTACK: &str = r#"
import gc, json, os, sys
victim = VICTIM
own = [it for it in gc.get_objects() if type(it).__name__ == "PythonContext"][0].run
parent = os.getppid()
lines = [json.dumps(message) for message in (
    {"context": victim, "lost": True}, {"context": victim, "failed": "x"}, {"ready": True},
    {"context": victim, "run": own, "type": "stdout", "text": "forged by run"},
    {"run": own, "type": "stdout", "text": "FORGED", "context": victim, "lost": True, "created": True},
    {"run": own, "type": "novelty"}, {"run": [own], "type": "end"}, {"run": "r", "type": "end"},
)] + ["garbage", "[1]", "null", "{", '{"type": []}', '{"type": "end"}', "[" * 100000]
data = ("\n".join(lines) + "\n").encode()
try:
    of_parent = os.listdir(f"/proc/{parent}/fd")
except OSError:
    of_parent = []
opened = []
# The driver, and every process above it. (Those of other contexts are programs of the same user, which
# only the walls of a sandbox keep apart.)
above, process = [], parent
while process > 0:
    above.append(process)
    try:
        process = int(open(f"/proc/{process}/stat").read().rsplit(")", 1)[1].split()[1])
    except OSError:
        break
for path in [f"/proc/{process}/fd/{number}" for process in above for number in range(64)]:
    for mode in (os.O_WRONLY, os.O_RDONLY):
        try:
            number = os.open(path, mode | os.O_NONBLOCK)
        except OSError:
            continue
        opened.append(path)
        try:
            if mode == os.O_WRONLY:
                os.write(number, data)
        except OSError:
            pass
        os.close(number)
try:
    memory = os.open(f"/proc/{parent}/mem", os.O_RDWR)
except OSError:
    memory = None
# The descriptors that it has itself: one is the channel of this context.
mine = [int(name) for name in os.listdir("/proc/self/fd")]
for number in mine:
    if number > 2:
        try:
            os.write(number, data)
        except OSError:
            pass
print(data.decode())
sys.stdout.flush()
print("RESULT", json.dumps([of_parent, opened, memory]))
"#;

fn code_cannot_forge_events(world: &World) {
    let server = Server::start(world, &[]);
    let (key, _) = key(world, &["--owner", "me"]);
    let place = Place::new(&server, &key);
    let (victim, attacker) = (place.context("python"), place.context("python"));
    place.run(&victim, "secret = 41");
    let mut stream = place.start(&victim, "import time; time.sleep(4); print('real', secret + 1)");
    std::thread::sleep(Duration::from_millis(300));
    let attack = ATTACK.replace("VICTIM", &format!("{victim:?}"));
    let events = place.run(&attacker, &attack);
    let text = output(&events);
    // The attack has run, and could open nothing of the driver.
    let result = text.lines().find_map(|line| line.strip_prefix("RESULT "));
    let result = result.unwrap_or_else(|| panic!("{events:?}"));
    assert_eq!(result, "[[], [], null]", "the code reaches the driver");
    assert_eq!(events.last().unwrap()["type"], "execution_complete", "{events:?}");
    // What it printed is output, and nothing else.
    assert!(text.contains("\"lost\": true"), "{text}");
    let mut all = Vec::new();
    stream.read_to_end(&mut all).unwrap();
    let seen = String::from_utf8_lossy(&all);
    assert!(seen.contains("real 42") && seen.contains("execution_complete"), "{seen}");
    assert!(!seen.contains("forged") && !seen.contains("FORGED"), "{seen}");
    // Both contexts go on, with their state.
    let listed = place.ask("GET /code/contexts", &Value::Null).text();
    assert!(listed.contains(&victim) && listed.contains(&attacker), "{listed}");
    assert_eq!(output(&place.run(&victim, "print(secret)")).trim(), "41");
    assert_eq!(output(&place.run(&attacker, "print(victim[:0] + 'on')")).trim(), "on");
    // Those of other languages have the channel as descriptor 3.
    let bash = place.context("bash");
    let code = format!(
        "printf '%s\\n' '{{\"context\":\"{victim}\",\"lost\":true}}' 'x' > /proc/$$/fd/3; echo on"
    );
    assert!(output(&place.run(&bash, &code)).contains("on"));
    assert_eq!(output(&place.run(&victim, "print(secret)")).trim(), "41");
}

/// Cells as people write them in notebooks, each with a part of what they give, or of their error.
const CELLS: [(&str, &str); 40] = [
    ("!echo hi && [[ 1 == 1 ]] && echo there", "there"),
    ("found = !printf 'a\\nb\\n'\nfound", "['a', 'b']"),
    ("name = 'w'\n!echo {name} $name '{\"name\": 1}' {1..3}", "w w {\"name\": 1} 1 2 3"),
    ("%time 6 * 7", "Wall time"),
    ("%%time\nkept = 6 * 7\nkept", "42"),
    ("%timeit -n 1 -r 1 kept", "1 run, 1 loop each"),
    ("%cd /tmp\n%pwd", "/tmp"),
    ("%env COLOR=red\n!echo $COLOR", "red"),
    ("%%bash\nfor i in 1 2; do echo bash-$i; done\nexit 3", "bash-2"),
    ("%%bash\nexit 3", "CalledProcessError"),
    ("%%writefile part.py\ndef value():\n    return 'first'\n", "Writing part.py"),
    ("%load_ext autoreload\n%autoreload 2\nfrom part import value\nvalue()", "first"),
    ("%%writefile part.py\ndef value():\n    return 'changed'\n", "Overwriting part.py"),
    ("value()", "changed"),
    ("%%capture out\nprint('hidden')", ""),
    ("out.stdout", "hidden"),
    ("%%html\n<b>bold</b>", "<b>bold</b>"),
    ("len?", "number of items"),
    (
        "from IPython.display import clear_output\nclear_output()\nget_ipython().system('echo called')",
        "called",
    ),
    ("%matplotlib inline\n1", "1"),
    ("%pip --version", "pip"),
    ("text = '''\n%time\n!ls\n'''\nif text:\n    !echo inside\ntext", "%time"),
    ("%matplotlib qt", "UsageError: %matplotlib takes inline"),
    ("%load_ext sql", "UsageError: the extension sql"),
    ("%absent", "UsageError: %absent is not supported. Supported are %autoreload"),
    ("a = 1\n%%bash\nls", "UsageError: %%bash is for a whole cell"),
    ("!mkdir PIL && touch PIL/__init__.py", ""),
    (
        "%%writefile PIL/Image.py\nclass Image:\n    def save(self, fp):\n        open(fp, 'w').close()\n\n    def _repr_html_(self):\n        return '<img>'",
        "Writing PIL/Image.py",
    ),
    ("from PIL import Image\nImage.Image().show()", "<img>"),
    ("Image.Image().save('/tmp/image')", "<img>"),
    (
        "class Number:\n    def item(self):\n        return 31337\ndisplay({'application/json': [Number()]}, raw=True)",
        "31337",
    ),
    // What JSON does not have: no result, output or error gets lost.
    ("{'number': float('nan')}", "{'number': nan}"),
    ("print('\\ud800 printed')", "? printed"),
    ("raise ValueError('\\ud800 raised')", "? raised"),
    ("'x' * (9 << 20)", "The form text/plain of a result is left out"),
    ("raise ValueError('y' * 60_000_000)", "ValueError"),
    (
        "class Mute(Exception):\n    def __str__(self):\n        return None\nraise Mute",
        "<Mute without a text>",
    ),
    ("exit()", "SystemExit"),
    ("help(len)", "number of items"),
    ("%reset -f\nkept", "NameError"),
];

fn cells_have_commands_and_magics(world: &World) {
    let server = Server::start(world, &[]);
    let (key, _) = key(world, &["--owner", "me"]);
    let place = Place::new(&server, &key);
    let context = place.context("python");
    for (code, expected) in CELLS {
        let events = place.run(&context, code);
        let text = serde_json::to_string(&events).unwrap();
        let quoted = serde_json::to_string(expected).unwrap();
        assert!(text.contains(quoted.trim_matches('"')), "{code}\n{expected}\n{text}");
        assert!(!text.contains("SyntaxError"), "{code}: {text}");
    }
    // An interruption ends the programs that the code runs, too.
    let stream = place.start(&context, "!sleep 1234 | cat");
    let until = |is_there: bool| {
        let deadline = Instant::now() + PATIENCE;
        while place.sh("ps -e -o args").contains("sleep 1234") != is_there {
            assert!(Instant::now() < deadline, "the program runs: {}", !is_there);
            std::thread::sleep(Duration::from_millis(50));
        }
    };
    until(true);
    drop(stream);
    until(false);
}

/// Whatever a program of JavaScript has at its top.
fn javascript_awaits_and_imports_outside_of_functions(world: &World) {
    let server = Server::start(world, &[]);
    let (key, _) = key(world, &["--owner", "me"]);
    let place = Place::new(&server, &key);
    let context = place.context("javascript");
    for (code, expected) in [
        ("const one = await (async () => 1)(); one", "1"),
        ("one + 1", "2"),
        // A cell can run again.
        ("const one = await (async () => 1)(); one", "1"),
        ("await Promise.resolve('a; b' + `; c`)", "a; b; c"),
        ("const { a, b: [c] } = await { a: 1, b: [2] }; a + c", "3"),
        ("import fs, { readFileSync as read } from 'node:fs'\nread === fs.readFileSync", "true"),
        ("import * as path from 'node:path'; path.sep", "/"),
        ("for (let i = 0; i < 2; i++) { await null }\n5", "5"),
        ("read === fs.readFileSync && path.sep", "/"),
        // Names that the driver has itself.
        (
            "const vm = require('vm'), util = require('util'); let count = 1, run = 2, event = 3; event",
            "3",
        ),
    ] {
        let events = place.run(&context, code);
        let result = events.iter().find(|event| event["type"] == "result");
        let text = result.map(|event| event["results"]["text/plain"].clone());
        assert_eq!(text, Some(json!(expected)), "{code} {events:?}");
    }
    let events = place.run(&context, "await Promise.reject(new RangeError('far'))");
    assert!(events.iter().any(|event| event["error"]["ename"] == "RangeError"), "{events:?}");
}

/// Also in the context that has installed it, where its directory did not exist before.
fn what_pip_installs_can_be_imported(world: &World) {
    let server = Server::start(world, &[]);
    let (key, _) = key(world, &["--owner", "me"]);
    let place = Place::new(&server, &key);
    let context = place.context("python");
    let found = serde_json::to_string(&place.run(&context, "%pip --version")).unwrap();
    if found.contains("No module named pip") {
        stockade_test_support::skip(
            "served::code::what_pip_installs_can_be_imported",
            "the machine's Python has no pip: apt-get install python3-pip",
        );
        return;
    }
    let cell = format!(
        "{WHEEL}\n%pip install --no-index ./greeter-1.0-py3-none-any.whl\nimport greeter\n!greet"
    );
    let events = place.run(&context, &cell);
    assert!(output(&events).contains("greeted"), "{events:?}");
}

as_root_and_as_user!(
    what_pip_installs_can_be_imported,
    a_slow_client_stops_no_other_context,
    code_cannot_forge_events,
    cells_have_commands_and_magics,
    javascript_awaits_and_imports_outside_of_functions
);
