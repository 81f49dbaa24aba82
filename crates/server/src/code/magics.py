"""What magics and commands in cells do: the object that `get_ipython()` gives to the code of a context. Part of the program
`driver.py`; `cells.py` makes the calls.
"""

import ast
import contextlib
import importlib
import inspect
import io
import math
import os
import re
import runpy
import shlex
import shutil
import site
import statistics
import subprocess
import sys
import time
import timeit

# Magics that are commands of the shell.
COMMANDS = {
    "ls": "ls", "ll": "ls -l", "cat": "cat", "mkdir": "mkdir", "rmdir": "rmdir", "cp": "cp", "mv": "mv", "rm": "rm",
}
# Magics whose text is shown in a form.
SHOWN = {
    "html": "text/html", "HTML": "text/html", "markdown": "text/markdown", "latex": "text/latex", "svg": "image/svg+xml",
    "SVG": "image/svg+xml", "javascript": "application/javascript", "js": "application/javascript",
}
FIGURE_FORMATS = ("png", "retina", "svg")
EXPRESSION = re.compile(r"(?<!\$)\{([^{}]+)\}|(?<![\\$])\$([A-Za-z_]\w*)")
TIMEIT_OPTION = re.compile(r"\s*(?:-([nr])\s*(\d+)|-([oq])(?=\s|$))")


class UsageError(Exception):
    """A magic that there is not, or that is used in another way than it can be."""


def duration(seconds):
    """A duration with three digits."""
    if seconds >= 60:
        return f"{int(seconds // 60)}min {seconds % 60:.0f}s"
    thousandths = 3 if seconds <= 0 else min(max(-(math.floor(math.log10(seconds)) // 3), 0), 3)
    return f"{seconds * 1000 ** thousandths:.3g} {('s', 'ms', 'µs', 'ns')[thousandths]}"


class Timing:
    """What `%timeit -o` gives."""

    def __init__(self, loops, runs):
        self.loops, self.repeat, self.all_runs = loops, len(runs), runs
        self.timings = [run / loops for run in runs]
        self.average, self.stdev = statistics.fmean(self.timings), statistics.pstdev(self.timings)
        self.best, self.worst = min(self.timings), max(self.timings)

    def __str__(self):
        plural = ["" if number == 1 else "s" for number in (self.repeat, self.loops)]
        return (f"{duration(self.average)} ± {duration(self.stdev)} per loop (mean ± std. dev. of {self.repeat} "
                f"run{plural[0]}, {self.loops:,} loop{plural[1]} each)")

    def __repr__(self):
        return f"<TimeitResult : {self}>"


class Captured:
    """What `%%capture` keeps."""

    def __init__(self, context, stdout, stderr, outputs):
        self.context, self.stdout, self.stderr, self.outputs = context, stdout, stderr, outputs

    def __str__(self):
        return self.stdout

    def show(self):
        sys.stdout.write(self.stdout)
        sys.stderr.write(self.stderr)
        for forms in self.outputs:
            self.context.show(False, forms)


class Reloader:
    """Loads modules again whose files have changed."""

    def __init__(self, names):
        self.names, self.times, self.is_on = names, {}, False

    def own_modules(self):
        """The modules whose files are of neither Python nor a package that is installed."""
        for module in list(sys.modules.values()):
            path = getattr(module, "__file__", None) or ""
            is_installed = path.startswith(os.path.dirname(os.__file__)) or "-packages" in path
            if path.endswith(".py") and not is_installed:
                with contextlib.suppress(OSError):
                    yield module, path, os.stat(path).st_mtime_ns

    def note(self):
        for _, path, changed in self.own_modules():
            self.times.setdefault(path, changed)

    def reload(self):
        for module, path, changed in self.own_modules():
            if self.times.setdefault(path, changed) == changed:
                continue
            self.times[path] = changed
            before = dict(vars(module))
            importlib.invalidate_caches()
            importlib.reload(module)
            # What the code has imported from it is replaced, too.
            for name, value in list(self.names.items()):
                if name in before and before[name] is value and hasattr(module, name):
                    self.names[name] = getattr(module, name)


class Shell:
    def __init__(self, context):
        self.context = context
        self.user_ns = context.names
        self.first_names = set(context.names)
        self.previous = os.getcwd()
        self.figure_formats = ["png"]
        self.reloader = Reloader(context.names)

    # --- what cells call ---

    def run_line_magic(self, name, line):
        if name in COMMANDS:
            return self.system(f"{COMMANDS[name]} {line}")
        return self.magic("line", name)(line)

    def run_cell_magic(self, name, line, cell):
        if name in SHOWN:
            return self.context.display({SHOWN[name]: cell}, raw=True)
        return self.magic("cell", name)(line.strip(), cell)

    def magic(self, kind, name):
        method = getattr(self, f"{kind}_{name}", None)
        if method is None:
            sign = "%" if kind == "line" else "%%"
            raise UsageError(f"{sign}{name} is not supported. Supported are {', '.join(self.magics(kind))}.")
        return method

    def misplaced(self, name):
        raise UsageError(f"%%{name} is for a whole cell: it must be its first line")

    def magics(self, kind):
        own = [name[len(kind) + 1:] for name in dir(self) if name.startswith(f"{kind}_")]
        sign, others = ("%", COMMANDS) if kind == "line" else ("%%", SHOWN)
        return [sign + name for name in sorted([*own, *others], key=str.lower)]

    def system(self, command):
        self.user_ns["_exit_code"] = self.run_program(self.shell_command(command))

    def getoutput(self, command):
        done = subprocess.run(self.shell_command(command), stdout=subprocess.PIPE, check=False)
        self.user_ns["_exit_code"] = done.returncode
        return done.stdout.decode("utf-8", "replace").splitlines()

    def find_installed(self):
        """Lets the code import what pip has put below the home since this program started."""
        path = site.getusersitepackages()
        if path in sys.path or not os.path.isdir(path):
            return
        installed = next((index for index, known in enumerate(sys.path) if "-packages" in known), len(sys.path))
        before = list(sys.path)
        sys.path_importer_cache.pop(path, None)
        site.addsitedir(path)
        added = [known for known in sys.path if known not in before]
        sys.path[:] = before[:installed] + added + before[installed:]

    # --- commands ---

    def shell_command(self, command):
        return [shutil.which("bash") or "/bin/sh", "-c", self.expanded(command)]

    def run_program(self, command, text=None):
        """Runs a program. Its output is that of the code, also where the code has replaced its streams."""
        given = {} if text is None else {"input": text.encode()}
        if isinstance(sys.stdout, Output) and isinstance(sys.stderr, Output):
            sys.stdout.flush()
            code = subprocess.run(command, check=False, **given).returncode
            self.context.drain()
            self.find_installed()
            return code
        done = subprocess.run(command, check=False, capture_output=True, **given)
        for stream, data in ((sys.stdout, done.stdout), (sys.stderr, done.stderr)):
            stream.write(data.decode("utf-8", "replace"))
        return done.returncode

    def expanded(self, text):
        """The text with the values of `{expression}` and `$name`. What has no value here is for the shell."""

        def value(found):
            expression, name = found.groups()
            if name is not None:
                return str(self.user_ns[name]) if name in self.user_ns else found[0]
            try:
                tree = ast.parse(f"f{found[0]!r}", mode="eval")
                if not any(isinstance(node, ast.Name) for node in ast.walk(tree)):
                    return found[0]
                return eval(compile(tree, "<command>", "eval"), self.user_ns)
            except Exception:
                return found[0]

        return EXPRESSION.sub(value, text)

    def line_pip(self, line):
        self.user_ns["_exit_code"] = self.run_program(
            [sys.executable, "-m", "pip", *shlex.split(self.expanded(line))])

    def line_cd(self, line):
        name = self.expanded(line).strip().strip("'\"") or "~"
        before = os.getcwd()
        os.chdir(self.previous if name == "-" else os.path.expanduser(name))
        self.previous = before
        print(os.getcwd())

    def line_pwd(self, line):
        return os.getcwd()

    def line_env(self, line):
        name, sign, value = line.strip().partition("=" if "=" in line else " ")
        name = name.strip()
        if not name:
            return dict(os.environ)
        if not sign:
            if name not in os.environ:
                raise UsageError(f"the environment has no variable {name}")
            return os.environ[name]
        os.environ[name] = self.expanded(value.strip())
        print(f"env: {name}={os.environ[name]}")

    line_set_env = line_env

    def cell_script(self, line, cell):
        command = shlex.split(self.expanded(line))
        if not command or command[0].startswith("-"):
            raise UsageError("%%script takes a program and its arguments: %%script bash -e")
        code = self.run_program(command, cell)
        if code != 0:
            raise subprocess.CalledProcessError(code, shlex.join(command))

    def cell_bash(self, line, cell):
        self.cell_script(f"bash {line}", cell)

    def cell_sh(self, line, cell):
        self.cell_script(f"sh {line}", cell)

    def cell_python3(self, line, cell):
        self.cell_script(f"{shlex.quote(sys.executable)} {line or '-'}", cell)

    cell_python = cell_python3

    # --- files ---

    def cell_writefile(self, line, cell):
        words = shlex.split(self.expanded(line))
        is_appended = bool(words) and words[0] in ("-a", "--append")
        words = words[1:] if is_appended else words
        if len(words) != 1 or words[0].startswith("-"):
            raise UsageError("%%writefile takes one path, after -a if the text is appended")
        path = os.path.expanduser(words[0])
        verb = "Appending to" if is_appended else "Overwriting" if os.path.exists(path) else "Writing"
        print(verb, words[0])
        with open(path, "a" if is_appended else "w", encoding="utf-8") as file:
            file.write(cell if cell.endswith("\n") or not cell else cell + "\n")

    cell_file = cell_writefile

    def line_run(self, line):
        words = shlex.split(self.expanded(line))
        if not words or words[0].startswith("-"):
            raise UsageError("%run takes a file of Python and its arguments")
        path = os.path.expanduser(words[0])
        path = path if os.path.exists(path) else f"{path}.py"
        before = sys.argv
        sys.argv = words
        try:
            names = runpy.run_path(path, run_name="__main__")
        finally:
            sys.argv = before
        self.user_ns.update({name: value for name, value in names.items() if not name.startswith("__")})

    # --- time ---

    def line_time(self, line):
        return self.cell_time("", line)

    def cell_time(self, line, cell):
        if line:
            raise UsageError("%%time takes nothing on its line")
        before, started = os.times(), time.perf_counter()
        try:
            return self.context.value_of(cell)
        finally:
            wall, after = time.perf_counter() - started, os.times()
            user, system = after.user - before.user, after.system - before.system
            print(f"CPU times: user {duration(user)}, sys: {duration(system)}, total: {duration(user + system)}")
            print(f"Wall time: {duration(wall)}")

    def line_timeit(self, line):
        return self.timed(line)

    def cell_timeit(self, line, cell):
        return self.timed(line, cell)

    def timed(self, line, cell=None):
        values, flags = {}, set()
        while option := TIMEIT_OPTION.match(line):
            line = line[option.end():]
            if option[3]:
                flags.add(option[3])
            else:
                values[option[1]] = int(option[2])
        statement, setup = (line.strip(), "pass") if cell is None else (cell, line.strip() or "pass")
        if not statement:
            raise UsageError("%timeit takes a statement")
        timer = timeit.Timer(outdented(statement), setup, globals=self.user_ns)
        loops = values.get("n") or next(
            loops for loops in (10 ** power for power in range(10)) if loops == 10 ** 9 or timer.timeit(loops) >= 0.2)
        timing = Timing(loops, timer.repeat(values.get("r") or 7, loops))
        if "q" not in flags:
            print(timing)
        return timing if "o" in flags else None

    # --- what is shown ---

    def cell_capture(self, line, cell):
        if line.startswith("-") or len(line.split()) > 1:
            raise UsageError("%%capture takes one name")
        stdout, stderr, context = io.StringIO(), io.StringIO(), self.context
        context.captured = outputs = []
        try:
            with contextlib.redirect_stdout(stdout), contextlib.redirect_stderr(stderr):
                value = context.value_of(cell)
                if value is not None and not is_figure_part(value):
                    outputs.append(bundle(value))
                context.figures()
        finally:
            context.captured = None
            if line:
                self.user_ns[line] = Captured(context, stdout.getvalue(), stderr.getvalue(), outputs)

    def line_matplotlib(self, line):
        if line.strip().lower() not in ("", "inline", "agg"):
            raise UsageError("%matplotlib takes inline: figures are results, and there is no window")

    def line_config(self, line):
        name, _, value = line.partition("=")
        formats = None
        if name.strip() in ("InlineBackend.figure_format", "InlineBackend.figure_formats"):
            with contextlib.suppress(ValueError, SyntaxError):
                formats = ast.literal_eval(value.strip())
        formats = [formats] if isinstance(formats, str) else list(formats or ())
        if not formats or not set(formats) <= set(FIGURE_FORMATS):
            raise UsageError(f"%config takes InlineBackend.figure_format = one of {', '.join(FIGURE_FORMATS)}")
        self.figure_formats = formats

    # --- names ---

    def own_names(self):
        return sorted(name for name in self.user_ns if not name.startswith("_") and name not in self.first_names)

    def line_who(self, line):
        print("\t".join(self.own_names()) or "There are no names.")

    def line_whos(self, line):
        for name in self.own_names():
            text = repr(self.user_ns[name]).replace("\n", " ")
            print(f"{name}\t{type(self.user_ns[name]).__name__}\t{text[:60]}")

    def line_reset(self, line):
        if line.strip() != "-f":
            raise UsageError("%reset removes all names and cannot ask: %reset -f")
        for name in set(self.user_ns) - self.first_names:
            del self.user_ns[name]

    def line_pinfo(self, line, is_long=False):
        try:
            value = eval(line, self.user_ns)
        except Exception:
            print(f"Object `{line}` not found.")
            return
        with contextlib.suppress(ValueError, TypeError):
            print(f"Signature: {line}{inspect.signature(value)}")
        print(f"Type: {type(value).__name__}")
        if is_long:
            with contextlib.suppress(OSError, TypeError):
                print(f"Source:\n{inspect.getsource(value)}")
                return
        print(f"Docstring: {inspect.getdoc(value) or '<no docstring>'}")

    def line_pinfo2(self, line):
        self.line_pinfo(line, is_long=True)

    def line_lsmagic(self, line):
        print("\n".join(" ".join(self.magics(kind)) for kind in ("line", "cell")))

    # --- extensions ---

    def line_load_ext(self, line):
        if line.strip() != "autoreload":
            raise UsageError(f"the extension {line.strip()} is for the kernel of IPython, which this is not: import its package")

    line_reload_ext = line_load_ext

    def line_autoreload(self, line):
        mode = line.strip().lower()
        if mode not in ("", "0", "off", "2", "all"):
            raise UsageError("%autoreload takes 0 or 2, or nothing to load changed modules again now")
        if mode:
            self.reloader.is_on = mode in ("2", "all")
        self.reloader.note() if mode else self.reloader.reload()
