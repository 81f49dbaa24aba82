"""Uses a server through the library opensandbox-code-interpreter of PyPI, and prints as JSON what it observed.

Called as: opensandbox_code_client.py HOST:PORT KEY
"""

import json
import sys
import threading

from code_interpreter import CodeInterpreterSync
from opensandbox import SandboxSync
from opensandbox.config import ConnectionConfigSync


def texts(messages):
    return [message.text for message in messages]


def main():
    domain, key = sys.argv[1:]
    report = {}
    config = ConnectionConfigSync(domain=domain, api_key=key, protocol="http")
    sandbox = SandboxSync.create("host", connection_config=config)
    # There is no Jupyter server to wait for.
    interpreter = CodeInterpreterSync.create(sandbox=sandbox, skip_health_check=True)
    codes = interpreter.codes
    ran = codes.run("x = 20\nprint('out')\nx + 1", language="python")
    report["first"] = [texts(ran.logs.stdout), texts(ran.result), ran.execution_count]
    report["state"] = texts(codes.run("x", language="python").result)
    failed = codes.run("1 / 0", language="python")
    report["error"] = [failed.error.name, failed.error.value]
    context = codes.create_context("bash")
    codes.run("A=5; cd /", context=context)
    report["bash"] = texts(codes.run("echo $A $PWD", context=context).logs.stdout)
    report["listed"] = [one.id == context.id for one in codes.list_contexts("bash")]
    report["found"] = codes.get_context(context.id).language
    codes.delete_context(context.id)
    report["deleted"] = len(codes.list_contexts("bash"))
    slow = codes.create_context("python")
    timer = threading.Timer(0.5, lambda: codes.interrupt(slow.id))
    timer.start()
    report["interrupted"] = codes.run("import time; time.sleep(60)", context=slow).error.name
    report["after"] = texts(codes.run("1 + 1", context=slow).result)
    timer.join()
    sandbox.kill()
    print(json.dumps(report))


if __name__ == "__main__":
    main()
