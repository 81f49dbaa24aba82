"""Uses a server through the client library e2b-code-interpreter of PyPI, and prints as JSON what it observed."""

import json
import threading
import time

from e2b_code_interpreter import Sandbox


def raised(call):
    """The name of the exception of a call."""
    try:
        call()
    except Exception as error:
        return type(error).__name__
    return None


def python(sandbox, report):
    ran = sandbox.run_code("x = 20\nprint('out')\nimport sys; print('err', file=sys.stderr)\nx + 1")
    report["first"] = [ran.text, ran.logs.stdout, ran.logs.stderr, ran.execution_count]
    report["state"] = sandbox.run_code("x").text
    failed = sandbox.run_code("def f():\n    return 1 / 0\nf()")
    report["error"] = [failed.error.name, failed.error.value, "in f" in failed.error.traceback]
    report["syntax"] = sandbox.run_code("1 +").error.name
    report["await"] = sandbox.run_code("import asyncio\nawait asyncio.sleep(0, 'slept')").text
    report["shell"] = sandbox.run_code("!echo shell").logs.stdout
    report["child"] = sandbox.run_code("import os\nos.system('echo child')").logs.stdout
    shown = sandbox.run_code("display('one')\n[1, 2]").results
    report["shown"] = [[one.text, one.is_main_result] for one in shown]
    report["json"] = shown[1].json
    code = "class Shown:\n  def _repr_html_(self): return '<b>x</b>'\n  def _repr_png_(self): return b'png'\nShown()"
    forms = sandbox.run_code(code).results[0]
    report["forms"] = [forms.html, forms.png]
    given = "import os; [os.environ.get('GIVEN'), os.environ.get('SHARED')]"
    report["variables"] = [
        sandbox.run_code(given, envs={"GIVEN": "1"}).text,
        sandbox.run_code(given).text,
    ]
    report["indented"] = sandbox.run_code("\n        z = 3\n        z\n        ").text
    code = "from IPython.display import HTML, display\ndisplay({'text/latex': 'x^2'}, raw=True)\nHTML('<i>y</i>')"
    latex, html = sandbox.run_code(code).results
    report["usual_display"] = [list(latex.formats()), latex.latex, html.html]
    report["exit"] = sandbox.run_code("raise SystemExit(3)").error.name
    report["after_exit"] = sandbox.run_code("x").text
    parts = []
    sandbox.run_code("print('a'); print('b')", on_stdout=lambda message: parts.append(message.line))
    report["streamed"] = parts
    report["timeout"] = raised(lambda: sandbox.run_code("while True: pass", timeout=1))
    time.sleep(1)
    report["after_timeout"] = sandbox.run_code("x").text
    large = sandbox.run_code("print('x' * 1_000_000)")
    report["large"] = sum(len(part) for part in large.logs.stdout)
    report["killed"] = sandbox.run_code("import os; os.kill(os.getpid(), 9)").error.name
    report["after_killed"] = sandbox.run_code("'x' in globals()").text


def contexts(sandbox, report):
    report["defaults"] = [context.language for context in sandbox.list_code_contexts()]
    made = sandbox.create_code_context(cwd="/home/user/made/here")
    newest = sandbox.list_code_contexts()[-1]
    report["made"] = [newest.id == made.id, sandbox.run_code("import os; os.getcwd()", context=made).text]
    one = sandbox.create_code_context(cwd="/tmp")
    report["context"] = [one.language, one.cwd]
    sandbox.run_code("y = 1", context=one)
    report["own"] = [
        sandbox.run_code("import os; [y, os.getcwd()]", context=one).text,
        sandbox.run_code("y").error.name,
    ]
    report["listed"] = one.id in [context.id for context in sandbox.list_code_contexts()]
    sandbox.restart_code_context(one)
    report["restarted"] = sandbox.run_code("y", context=one).error.name
    sandbox.remove_code_context(one)
    report["removed"] = raised(lambda: sandbox.run_code("1", context=one))
    started = time.monotonic()
    sandbox.create_code_context()
    report["milliseconds"] = round((time.monotonic() - started) * 1000)


def languages(sandbox, report):
    bash = sandbox.run_code("A=5; cd /; echo $A $PWD", language="bash")
    report["bash"] = bash.logs.stdout
    report["bash_state"] = sandbox.run_code("echo $A $PWD; exit 3 | false", language="bash").logs.stdout
    sandbox.run_code("const a = 20; console.log('js')", language="javascript")
    report["javascript"] = sandbox.run_code("a + 1", language="js").text
    report["promise"] = sandbox.run_code("const b = await Promise.resolve(7)\nb * 2", language="js").text
    report["thrown"] = sandbox.run_code("throw new TypeError('no')", language="js").error.name
    report["refused"] = [
        raised(lambda: sandbox.run_code("1", language="r")),
        raised(lambda: sandbox.run_code("1", language="cobol")),
    ]


def ended(report):
    """What code raises whose sandbox is killed."""
    sandbox = Sandbox.create(timeout=600)
    sandbox.run_code("1")
    timer = threading.Timer(0.5, sandbox.kill)
    timer.start()
    report["sandbox_killed"] = raised(lambda: sandbox.run_code("import time; time.sleep(60)"))
    timer.join()


def main():
    report = {}
    ended(report)
    with Sandbox.create(envs={"SHARED": "shared"}, timeout=600) as sandbox:
        python(sandbox, report)
        contexts(sandbox, report)
        languages(sandbox, report)
        report["user"] = sandbox.run_code("import getpass; getpass.getuser()").text
        report["commands"] = sandbox.commands.run("echo also").stdout
    print(json.dumps(report))


if __name__ == "__main__":
    main()
