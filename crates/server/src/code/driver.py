"""Runs code in contexts that keep their state, inside a sandbox, with its own interpreters.

Reads requests from the standard input and writes events to the standard output, each as a line of JSON. Each
context is a process of its own: one for Python is forked from this process, which has its imports done; the
others are an interpreter that this process starts and reads.
"""

import ast
import asyncio
import builtins
import ctypes
import inspect
import io
import json
import linecache
import math
import os
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
import types

# The longest line of a context, in bytes.
LINE_BYTES = 48 << 20
# The longest text of one event, in characters: a longer output is several events, a longer error is cut.
TEXT_LENGTH = 1 << 20
# How long a context may take to react to an interruption, in seconds.
GRACE = 5.0
# What the events of a context consist of, besides its run.
EVENTS = {
    "count": ("count",), "stdout": ("text",), "stderr": ("text",), "result": ("main", "forms"),
    "error": ("name", "value", "traceback"), "end": (),
}
PR_SET_DUMPABLE = 4


def plain(value):
    """What stands for a value that JSON does not have, such as a number of NumPy."""
    return value.item() if callable(getattr(value, "item", None)) else str(value)


def finite(value):
    """The value with null for numbers that JSON does not have."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    return [finite(item) for item in value] if isinstance(value, (list, tuple)) else value


def line_of(message):
    """A message as a line that every reader of JSON accepts."""
    try:
        text = json.dumps(message, default=plain, allow_nan=False, ensure_ascii=False)
    except ValueError:
        text = json.dumps(finite(json.loads(json.dumps(message, default=plain))), ensure_ascii=False)
    # Half a pair of surrogates, as in the name of a file that is no UTF-8, is no text.
    return text.encode("utf-8", "replace") + b"\n"


def send(channel, message):
    channel.sendall(line_of(message))


def set_readable(is_readable):
    """Whether other processes of the same user can open this one's descriptors and its memory."""
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_DUMPABLE, int(is_readable), 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")


def close_all_but(kept):
    """Closes every descriptor but the standard ones and one other."""
    for name in os.listdir("/proc/self/fd"):
        number = int(name)
        if number > 2 and number != kept:
            try:
                os.close(number)
            except OSError:
                pass


# --- a context for Python -------------------------------------------------------------------------------------

class Output(io.TextIOBase):
    """A stream of a context whose texts become events at once."""

    def __init__(self, context, name, number):
        self.context, self.stream, self.number = context, name, number

    encoding = "utf-8"
    errors = "replace"

    def writable(self):
        return True

    def isatty(self):
        return False

    def fileno(self):
        return self.number

    def write(self, text):
        if not isinstance(text, str):
            raise TypeError(f"write() argument must be str, not {type(text).__name__}")
        if text:
            self.context.text(self.stream, text)
        return len(text)

    def flush(self):
        if "context" in self.__dict__:
            self.context.flush_now()


class Buffer(Output):
    """The same for bytes."""

    def write(self, data):
        self.context.text(self.stream, bytes(data).decode("utf-8", "replace"))
        return len(data)


class Text(Output):
    @property
    def buffer(self):
        return Buffer(self.context, self.stream, self.number)


class PythonContext:
    def __init__(self, channel):
        self.channel = channel
        self.lock = threading.RLock()
        self.waiting = ("", "")
        self.is_torn = False
        self.run = None
        self.count = 0
        # The results, where the code keeps them.
        self.captured = None
        self.names = {"__name__": "__main__", "__builtins__": builtins, "__doc__": None}
        self.names.update(display=self.display, get_ipython=lambda: self.shell)
        self.loop = asyncio.new_event_loop()
        asyncio.set_event_loop(self.loop)

    def event(self, event):
        with self.lock:
            self.flush()
            self.send(event)

    def send(self, event):
        line = line_of({"run": self.run, **event})
        # An interruption may have left a part of a line, which must not spoil this one.
        line, self.is_torn = b"\n" + line if self.is_torn else line, True
        self.channel.sendall(line)
        self.is_torn = False

    def text(self, name, text):
        """Output of the code: its last line waits until it is complete, or something else follows."""
        with self.lock:
            if self.waiting[0] != name:
                self.flush()
            self.waiting = (name, self.waiting[1] + text)
            if text.endswith("\n") or len(self.waiting[1]) > 8192:
                self.flush()

    def flush(self):
        name, text = self.waiting
        self.waiting = ("", "")
        for start in range(0, len(text), TEXT_LENGTH):
            self.send({"type": name, "text": text[start:start + TEXT_LENGTH]})

    def flush_now(self):
        with self.lock:
            self.flush()

    def display(self, *values, raw=False, **_):
        """Shows values. With `raw`, each is its forms by their media type."""
        for value in values:
            self.show(False, {kind: encoded(form) for kind, form in value.items()} if raw else bundle(value))

    def show(self, is_main, forms):
        for kind in [kind for kind, form in forms.items() if size(form) > RESULT_BYTES]:
            del forms[kind]
            self.text("stderr", f"The form {kind} of a result is left out: it has more than {RESULT_BYTES >> 20} MiB.\n")
        if self.captured is not None:
            self.captured.append(forms)
        elif forms:
            self.event({"type": "result", "main": is_main, "forms": forms})

    def serve(self):
        os.environ.setdefault("MPLBACKEND", "Agg")
        os.environ.setdefault("PLOTLY_RENDERER", "plotly_mimetype")
        # As in login shells of a sandbox: nothing of the system can be changed, so pip need not protect it.
        os.environ.setdefault("PIP_BREAK_SYSTEM_PACKAGES", "1")
        os.environ["PATH"] = f"{os.environ.get('PATH', os.defpath)}:{os.path.expanduser('~/.local/bin')}"
        self.pipes()
        sys.stdout, sys.stderr = Text(self, "stdout", 1), Text(self, "stderr", 2)
        sys.stdin = open(os.devnull)
        main = type(sys)("__main__")
        main.__dict__.update(self.names)
        sys.meta_path[:0] = [DisplayFinder(self.display, self.names["get_ipython"]), ImagesFinder(self.display)]
        self.names = main.__dict__
        self.shell = Shell(self)
        sys.modules["__main__"] = main
        lines = self.channel.makefile("rb")
        # An interruption is only for code that runs.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        for line in lines:
            self.execute(json.loads(line))

    def pipes(self):
        """What programs write that the code starts becomes events, too."""
        self.marks = []
        for number, name in ((1, "stdout"), (2, "stderr")):
            reader, writer = os.pipe()
            os.dup2(writer, number)
            os.close(writer)
            mark = os.urandom(16)
            passed = threading.Event()
            self.marks.append((number, mark, passed))
            threading.Thread(target=self.read, args=(reader, name, mark, passed), daemon=True).start()

    def read(self, reader, name, mark, passed):
        pending = b""
        while True:
            data = os.read(reader, 65536)
            if not data:
                return
            pending += data
            while mark in pending:
                before, pending = pending.split(mark, 1)
                if before:
                    self.event({"type": name, "text": before.decode("utf-8", "replace")})
                passed.set()
            # The end may be the beginning of the mark.
            keep = next((n for n in range(min(len(mark) - 1, len(pending)), 0, -1)
                         if pending.endswith(mark[:n])), 0)
            text, pending = pending[:len(pending) - keep], pending[len(pending) - keep:]
            if text:
                self.event({"type": name, "text": text.decode("utf-8", "replace")})

    def drain(self):
        for number, mark, passed in self.marks:
            passed.clear()
            os.write(number, mark)
        for _, _, passed in self.marks:
            passed.wait(1.0)

    def execute(self, request):
        self.run = request["run"]
        self.count += 1
        # `exit()` closes it.
        if getattr(sys.stdin, "closed", False):
            sys.stdin = open(os.devnull)
        self.event({"type": "count", "count": self.count})
        before = dict(os.environ)
        os.environ.update(request.get("env") or {})
        try:
            signal.signal(signal.SIGINT, signal.default_int_handler)
            try:
                self.evaluate(request["code"])
            finally:
                signal.signal(signal.SIGINT, signal.SIG_IGN)
        except BaseException as error:
            # What programs have written comes before it.
            self.drain()
            self.failed(error)
        for name in request.get("env") or {}:
            if name in before:
                os.environ[name] = before[name]
            else:
                os.environ.pop(name, None)
        try:
            self.figures()
        except Exception as error:
            self.failed(error)
        self.drain()
        self.event({"type": "end"})

    def failed(self, error):
        name = type(error).__name__
        if isinstance(error, UsageError):
            text = f"{name}: {error}"
        elif isinstance(error, SyntaxError) and str(error.filename).startswith("<cell "):
            text = "".join(traceback.format_exception_only(type(error), error))
        else:
            trace = without_own_frames(error.__traceback__)
            text = "".join(traceback.format_exception(type(error), error, trace))
        try:
            value = str(error)[:TEXT_LENGTH]
        except Exception:
            value = f"<{name} without a text>"
        self.event({"type": "error", "name": name, "value": value, "traceback": text[-TEXT_LENGTH:]})

    def evaluate(self, code):
        self.shell.find_installed()
        if self.shell.reloader.is_on:
            self.shell.reloader.reload()
        try:
            value = self.value_of(code)
        finally:
            if self.shell.reloader.is_on:
                self.shell.reloader.note()
        if value is not None:
            self.names["_"] = value
            if not is_figure_part(value):
                self.show(True, bundle(value))

    def value_of(self, code):
        """Runs code. The value of its last expression, which does not end with a semicolon."""
        source = translated(code)
        name = f"<cell {self.count}>"
        linecache.cache[name] = (len(source), None, source.splitlines(True), name)
        tree = ast.parse(source, name)
        last = None
        if tree.body and isinstance(tree.body[-1], ast.Expr) and not ends_silently(source):
            last = ast.Expression(tree.body.pop().value)
        if tree.body:
            self.step(compile(tree, name, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT))
        if last is not None:
            return self.step(compile(last, name, "eval", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT))
        return None

    def step(self, code):
        value = eval(code, self.names)
        if code.co_flags & inspect.CO_COROUTINE:
            return self.loop.run_until_complete(value)
        return value

    def figures(self):
        """The figures of matplotlib that the code has left open."""
        pyplot = sys.modules.get("matplotlib.pyplot")
        if pyplot is None:
            return
        for number in pyplot.get_fignums():
            figure = pyplot.figure(number)
            forms = {"text/plain": repr(figure)}
            for form in self.shell.figure_formats:
                image = io.BytesIO()
                scale = 2 if form == "retina" else 1
                kind = "svg" if form == "svg" else "png"
                figure.savefig(image, format=kind, dpi=figure.dpi * scale, bbox_inches="tight")
                if kind == "svg":
                    forms["image/svg+xml"] = image.getvalue().decode()
                else:
                    forms["image/png"] = encoded(image.getvalue())
            try:
                from e2b_charts import chart_figure_to_dict
                forms["e2b/chart"] = chart_figure_to_dict(figure)
            except Exception:
                pass
            self.show(True, forms)
        pyplot.close("all")


def without_own_frames(trace):
    """The traceback without the frames of this program, which are not those of the code."""
    kept, frames = None, []
    while trace is not None:
        frames.append(trace)
        trace = trace.tb_next
    for frame in reversed(frames):
        if frame.tb_frame.f_globals is not globals():
            kept = types.TracebackType(kept, frame.tb_frame, frame.tb_lasti, frame.tb_lineno)
    return kept


def is_figure_part(value):
    """Whether a value belongs to a figure that is shown anyway."""
    items = value if isinstance(value, (list, tuple)) and value else [value]
    modules = sys.modules.get("matplotlib.pyplot") and [type(item).__module__ or "" for item in items]
    return bool(modules) and all(module.startswith("matplotlib") for module in modules)


# --- contexts of other languages ------------------------------------------------------------------------------

# In a block, so that code can use the same names.
JAVASCRIPT = r"""{
const vm = require('node:vm'), util = require('node:util'), readline = require('node:readline')
const fs = require('node:fs'), path = require('node:path'), { createRequire } = require('node:module')
const out = (event) => fs.writeSync(3, JSON.stringify(event) + '\n')
let run = null, count = 0
const event = (value) => out({ run, ...value })
for (const [name, stream] of [['stdout', process.stdout], ['stderr', process.stderr]]) {
  stream.write = (text, encoding, done) => {
    const all = typeof text === 'string' ? text : Buffer.from(text).toString()
    for (let start = 0; start < all.length; start += 1 << 20) {
      event({ type: name, text: all.slice(start, start + (1 << 20)) })
    }
    if (typeof encoding === 'function') encoding(); else if (done) done()
    return true
  }
}
const forms = (value) => {
  const found = { 'text/plain': typeof value === 'string' ? value : util.inspect(value) }
  if (value && typeof value === 'object') {
    try { found['application/json'] = JSON.parse(JSON.stringify(value)) } catch {}
  }
  return found
}
globalThis.display = (value) => event({ type: 'result', main: false, forms: forms(value) })
globalThis.require = createRequire(path.join(process.cwd(), 'cell.js'))
// Both are part of every Node, and not documented: how its own prompt reads `await` outside of functions.
const { processTopLevelAwait } = require('internal/repl/await')
const acorn = require('internal/deps/acorn/acorn/dist/acorn')
const parsing = { ecmaVersion: 'latest', sourceType: 'module', allowAwaitOutsideFunction: true }
const loading = ({ specifiers, source }) => {
  const loaded = `await import(${source.raw})`
  if (specifiers.length === 0) return `void (${loaded})`
  const whole = specifiers.find((it) => it.type === 'ImportNamespaceSpecifier')
  const members = specifiers.filter((it) => it !== whole).map((it) => {
    const name = it.type === 'ImportDefaultSpecifier' ? 'default' : it.imported.raw ?? it.imported.name
    return `${name}: ${it.local.name}`
  })
  if (!whole) return `const { ${members.join(', ')} } = ${loaded}`
  const more = members.length ? `, { ${members.join(', ')} } = ${whole.local.name}` : ''
  return `const ${whole.local.name} = ${loaded}${more}`
}
// Imports become declarations with `await`.
const withoutImports = (code) => {
  if (!/\bimport\b/.test(code)) return code
  let nodes
  try { nodes = acorn.parse(code, parsing).body } catch { return code }
  for (const node of nodes.filter((it) => it.type === 'ImportDeclaration').reverse()) {
    code = `${code.slice(0, node.start)};${loading(node)};${code.slice(node.end)}`
  }
  return code
}
const evaluate = async (code) => {
  const options = {
    filename: `cell ${count}`,
    importModuleDynamically: vm.constants?.USE_MAIN_CONTEXT_DEFAULT_LOADER ?? ((name) => import(name)),
  }
  const text = withoutImports(code)
  const awaiting = /\bawait\b/.test(text) ? processTopLevelAwait(text) : null
  if (awaiting === null) return await vm.runInThisContext(text, options)
  // The names are declared so that the code can run again.
  const result = await vm.runInThisContext(awaiting.replace(/^let (?=[^;]*; \(async)/, 'var '), options)
  return result?.value
}
const withoutTypes = (code) => {
  const { stripTypeScriptTypes } = require('node:module')
  try { return stripTypeScriptTypes(code) } catch (error) {
    // Such as an enumeration, which is more than a type.
    if (error.code !== 'ERR_UNSUPPORTED_TYPESCRIPT_SYNTAX') throw error
    return stripTypeScriptTypes(code, { mode: 'transform' })
  }
}
process.on('uncaughtException', (error) => event({
  type: 'error', name: error.name || 'Error', value: String(error.message), traceback: String(error.stack) }))
process.on('SIGINT', () => {})
readline.createInterface({ input: process.stdin }).on('line', async (line) => {
  const request = JSON.parse(line)
  run = request.run
  event({ type: 'count', count: ++count })
  const before = { ...process.env }
  Object.assign(process.env, request.env || {})
  try {
    const isTyped = process.argv.includes('typescript')
    const value = await evaluate(isTyped ? withoutTypes(request.code) : request.code)
    if (value !== undefined) event({ type: 'result', main: true, forms: forms(value) })
  } catch (error) {
    const known = error && error.name
    event({ type: 'error', name: known ? error.name : 'Error', value: String(known ? error.message : error),
      traceback: String(known ? error.stack : error) })
  }
  for (const name of Object.keys(request.env || {})) {
    if (name in before) process.env[name] = before[name]; else delete process.env[name]
  }
  event({ type: 'end' })
})
}"""


class ProgramContext:
    """An interpreter of its own, which speaks the same protocol on the descriptors 0 and 3."""

    def __init__(self, command, cwd):
        ours, theirs = socket.socketpair()
        self.socket = ours

        def prepare():
            os.setsid()
            os.dup2(theirs.fileno(), 3)

        self.process = subprocess.Popen(
            command, cwd=cwd, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, preexec_fn=prepare, close_fds=False,
        )
        theirs.close()
        self.pid = self.process.pid

    def request(self, message):
        self.process.stdin.write(json.dumps(message).encode() + b"\n")
        self.process.stdin.flush()


def strips_types():
    """Whether the interpreter can leave out the types of TypeScript."""
    test = "process.exit(typeof require('node:module').stripTypeScriptTypes === 'function' ? 0 : 1)"
    return subprocess.run(["node", "-e", test], stdin=subprocess.DEVNULL, check=False).returncode == 0


class BashContext:
    """A shell. It reads each piece of code from a pipe, and keeps its variables and its directory."""

    LOOP = r"""
while IFS= read -r -d '' code <&0; do
  eval "$code" </dev/null 3>&-
  printf '%s\0' "$?" >&3
done
"""

    def __init__(self, cwd):
        ours, theirs = socket.socketpair()
        self.socket = ours
        ended_reader, ended_writer = os.pipe()

        def prepare():
            os.setsid()
            os.dup2(ended_writer, 3)

        self.process = subprocess.Popen(
            ["bash", "--noprofile", "--norc", "-c", self.LOOP], cwd=cwd, stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, preexec_fn=prepare, close_fds=False,
        )
        os.close(ended_writer)
        self.pid, self.channel = self.process.pid, theirs
        self.lock, self.run, self.count = threading.Lock(), None, 0
        for name in ("stdout", "stderr"):
            pipe = getattr(self.process, name).fileno()
            threading.Thread(target=self.read, args=(pipe, name), daemon=True).start()
        threading.Thread(target=self.ends, args=(ended_reader,), daemon=True).start()

    def event(self, event):
        with self.lock:
            try:
                send(self.channel, {"run": self.run, **event})
            except OSError:
                pass

    def read(self, pipe, name):
        while data := os.read(pipe, 65536):
            self.event({"type": name, "text": data.decode("utf-8", "replace")})

    def ends(self, reader):
        pending = b""
        while data := os.read(reader, 4096):
            pending += data
            while b"\0" in pending:
                code, pending = pending.split(b"\0", 1)
                # What was written before is read by the other threads.
                time.sleep(0.02)
                if code not in (b"0", b""):
                    text = f"exit status {code.decode()}"
                    self.event({"type": "error", "name": "ExitStatus", "value": code.decode(),
                                "traceback": text})
                self.event({"type": "end"})
        self.channel.close()

    def request(self, message):
        self.run, self.count = message["run"], self.count + 1
        self.event({"type": "count", "count": self.count})
        code = message["code"].replace("\0", "")
        names = message.get("env") or {}
        if names:
            quoted = " ".join(f"{name}='{value}'" for name, value in
                              ((n, v.replace("'", "'\\''")) for n, v in names.items()))
            kept = "; ".join(f"local -x {word}" for word in [quoted])
            code = f"__stockade_cell() {{ {kept}\n{code}\n}}; __stockade_cell"
        self.process.stdin.write(code.encode() + b"\0")
        self.process.stdin.flush()


# --- the process that has the contexts ------------------------------------------------------------------------


class PythonProcess:
    def __init__(self, cwd):
        ours, theirs = socket.socketpair()
        self.pid = os.fork()
        if self.pid == 0:
            try:
                os.setsid()
                # The code must not read the requests and events of other contexts.
                set_readable(True)
                close_all_but(theirs.fileno())
                os.chdir(cwd)
                signal.signal(signal.SIGTERM, signal.SIG_DFL)
                PythonContext(theirs).serve()
            finally:
                os._exit(0)
        theirs.close()
        self.socket = ours

    def request(self, message):
        send(self.socket, message)


class Driver:
    def __init__(self):
        # The code in contexts must not write events of its own.
        self.out = os.fdopen(os.dup(1), "wb", buffering=0)
        self.input = os.dup(0)
        for number in (0, 1):
            null = os.open(os.devnull, os.O_RDWR)
            os.dup2(null, number)
            os.close(null)
        for descriptor in (self.out.fileno(), self.input):
            os.set_inheritable(descriptor, False)
        # The code in contexts must not open them in another way.
        set_readable(False)
        self.selector = selectors.DefaultSelector()
        self.contexts, self.runs, self.pending = {}, {}, {}
        self.paused = set()

    def emit(self, message):
        data = line_of(message)
        while data:
            data = data[os.write(self.out.fileno(), data):]

    def serve(self):
        self.selector.register(self.input, selectors.EVENT_READ, None)
        rest = b""
        self.emit({"ready": True})
        while True:
            for key, _ in self.selector.select():
                if key.data is None:
                    data = os.read(self.input, 65536)
                    if not data:
                        return self.stop()
                    rest += data
                    *lines, rest = rest.split(b"\n")
                    for line in lines:
                        self.handle(json.loads(line))
                else:
                    self.receive(key.data)

    def handle(self, request):
        name, operation = request["id"], request["op"]
        if operation == "create":
            try:
                self.create(name, request["language"], request["cwd"])
            except Exception as error:
                self.emit({"context": name, "failed": f"{type(error).__name__}: {error}"})
            else:
                self.emit({"context": name, "created": True})
        elif operation == "run" and name in self.contexts:
            self.runs.setdefault(name, []).append(request["run"])
            try:
                self.contexts[name].request(request)
            except OSError:
                self.lost(name)
        elif operation == "run":
            self.ended(name, request["run"], "the context has ended")
        elif operation == "interrupt" and name in self.contexts:
            self.interrupt(name)
        elif operation == "delete":
            self.remove(name)
        elif operation == "pause" and name in self.contexts and name not in self.paused:
            # Its client reads too slowly: the code waits until its events are read.
            self.paused.add(name)
            self.selector.unregister(self.contexts[name].socket)
        elif operation == "continue" and name in self.paused:
            self.paused.remove(name)
            self.selector.register(self.contexts[name].socket, selectors.EVENT_READ, name)

    def create(self, name, language, cwd):
        os.makedirs(cwd, exist_ok=True)
        # The process of the context would end at once.
        if not os.access(cwd, os.X_OK):
            raise PermissionError(f"the user may not enter {cwd}")
        if language == "python":
            context = PythonProcess(cwd)
        elif language == "bash":
            if not shutil.which("bash"):
                raise FileNotFoundError("the sandbox has no bash")
            context = BashContext(cwd)
        else:
            if not shutil.which("node"):
                raise FileNotFoundError("the sandbox has no node")
            if language == "typescript" and not strips_types():
                raise NotImplementedError("TypeScript needs node 22.13 or later in the sandbox")
            # The last one is for `import` in versions before 20.12.
            flags = ["--no-warnings", "--expose-internals", "--experimental-vm-modules"]
            context = ProgramContext(["node", *flags, "-e", JAVASCRIPT, language], cwd)
        self.contexts[name] = context
        self.pending[name] = b""
        self.selector.register(context.socket, selectors.EVENT_READ, name)

    def receive(self, name):
        try:
            data = self.contexts[name].socket.recv(1 << 16)
        except OSError:
            data = b""
        if not data:
            return self.lost(name)
        *lines, self.pending[name] = (self.pending[name] + data).split(b"\n")
        if len(self.pending[name]) > LINE_BYTES:
            return self.lost(name)
        for line in lines:
            self.relay(name, line)

    def relay(self, name, line):
        """Passes on an event of a context. The code may have written it: it is about a run of this context, and has
        no member of another kind of message."""
        try:
            event = json.loads(line)
            kind, run = event["type"], event["run"]
            members = {member: event[member] for member in EVENTS[kind]}
        except Exception:
            return
        if run not in self.runs.get(name, []):
            return
        if kind == "end":
            self.runs[name].remove(run)
        self.emit({"context": name, "run": run, "type": kind, **members})

    def lost(self, name):
        runs = self.runs.pop(name, [])
        self.remove(name)
        self.emit({"context": name, "lost": True})
        for run in runs:
            self.ended(name, run, "the process of the context has ended")

    def ended(self, name, run, text):
        about = {"context": name, "run": run}
        self.emit({**about, "type": "error", "name": "ContextEnded", "value": text, "traceback": text})
        self.emit({**about, "type": "end"})

    def interrupt(self, name):
        context = self.contexts[name]
        if not self.runs.get(name):
            return
        try:
            if isinstance(context, PythonProcess):
                # As from a terminal, it is for the programs that the code runs, too.
                os.killpg(context.pid, signal.SIGINT)
            else:
                # These cannot continue after an interruption.
                os.killpg(context.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        run = self.runs[name][0]

        def end():
            if run in self.runs.get(name, []) and self.contexts.get(name) is context:
                try:
                    os.killpg(context.pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass

        timer = threading.Timer(GRACE, end)
        timer.daemon = True
        timer.start()

    def remove(self, name):
        context = self.contexts.pop(name, None)
        if context is None:
            return
        if name in self.paused:
            self.paused.remove(name)
        else:
            self.selector.unregister(context.socket)
        context.socket.close()
        try:
            os.killpg(context.pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            pass
        try:
            os.waitpid(context.pid, 0)
        except ChildProcessError:
            pass

    def stop(self):
        for name in list(self.contexts):
            self.remove(name)


if __name__ == "__main__":
    Driver().serve()
