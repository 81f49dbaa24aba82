"""Python's http.server: prints the host of each request, and says which path it takes for a denied one."""
import http.server
import os
import posixpath
import sys
import urllib.parse


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def answer(self):
        os.write(1, f"HOST {self.headers.get('Host', '-')}\n".encode())
        # As `SimpleHTTPRequestHandler` does.
        path = urllib.parse.unquote(self.path.split("?")[0].split("#")[0], errors="replace")
        is_denied = (posixpath.normpath("/" + path.lstrip("/")) + "/").startswith("/denied/")
        body = b"denied\n" if is_denied else b"served\n"
        if "chunked" not in self.headers.get("Transfer-Encoding", "").lower():
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def __getattr__(self, name):
        if name.startswith("do_"):
            return self.answer
        raise AttributeError(name)

    def log_message(self, *arguments):
        pass


http.server.ThreadingHTTPServer.request_queue_size = 128
http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
