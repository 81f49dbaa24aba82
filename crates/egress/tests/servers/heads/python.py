"""Hypercorn, which reads HTTP/2 with h2 and HTTP/1.1 with h11: writes what an application takes each request for.
Arguments: the port, the key and the certificate."""
import asyncio
import json
import os
import sys

from hypercorn.asyncio import serve
from hypercorn.config import Config


async def application(scope, receive, send):
    if scope["type"] != "http":
        return
    headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
    seen = {
        "number": headers.get("x-head", ""),
        "method": scope["method"],
        "host": headers.get("host", ""),
        "path": scope["path"],
        "authorization": headers.get("authorization", ""),
    }
    os.write(1, f"{json.dumps(seen)}\n".encode())
    while (await receive()).get("more_body"):
        pass
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"7")]})
    await send({"type": "http.response.body", "body": b"served\n"})


config = Config()
config.bind = [f"127.0.0.1:{sys.argv[1]}"]
config.keyfile, config.certfile = sys.argv[2:4]
asyncio.run(serve(application, config))
