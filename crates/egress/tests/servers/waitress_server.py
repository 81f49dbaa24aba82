"""Waitress, a server of WSGI: prints the host of each request."""
import logging
import os
import sys

import waitress


def application(environment, start):
    environment["wsgi.input"].read()
    os.write(1, f"HOST {environment.get('HTTP_HOST', '-')}\n".encode())
    start("200 OK", [("Content-Length", "7")])
    return [b"served\n"]


logging.disable(logging.CRITICAL)
waitress.serve(application, host="127.0.0.1", port=int(sys.argv[1]), _quiet=True)
