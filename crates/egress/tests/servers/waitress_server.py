"""Waitress, a server of WSGI: prints the host of each request, and says which path it takes for a denied one."""
import logging
import os
import posixpath
import sys

import waitress


def application(environment, start):
    environment["wsgi.input"].read()
    os.write(1, f"HOST {environment.get('HTTP_HOST', '-')}\n".encode())
    start("200 OK", [("Content-Length", "7")])
    path = posixpath.normpath("/" + environment["PATH_INFO"].lstrip("/"))
    return [b"denied\n" if (path + "/").startswith("/denied/") else b"served\n"]


logging.disable(logging.CRITICAL)
waitress.serve(application, host="127.0.0.1", port=int(sys.argv[1]), _quiet=True)
