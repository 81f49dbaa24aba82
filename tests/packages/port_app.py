"""An application for tests of ports: it reports each request that it receives, and repeats the messages of
WebSockets. It listens on the ports that its arguments name."""

import base64
import hashlib
import http.server
import json
import socket
import socketserver
import struct
import sys
import threading
import time

RECEIVED = []
HTML = b"""<html><head><style>p { color: red }</style><script>alert(1)</script></head>
<body><h1>Title</h1><p>Text with a <a href="/more">link</a>.</p></body></html>"""


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def read_body(self):
        if self.headers.get("transfer-encoding", "").lower() == "chunked":
            body = b""
            while True:
                size = int(self.rfile.readline().split(b";")[0], 16)
                body += self.rfile.read(size)
                self.rfile.readline()
                if size == 0:
                    return body
        return self.rfile.read(int(self.headers.get("content-length") or 0))

    def respond(self, body, headers=(), status=200, kind="application/json"):
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        for name, value in headers:
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def answer(self):
        port = self.server.server_address[1]
        RECEIVED.append((port, self.command, self.path))
        path = self.path.split("?")[0]
        if self.headers.get("upgrade", "").lower() == "websocket":
            return self.web_socket()
        body = self.read_body()
        if path == "/received":
            self.respond(json.dumps(RECEIVED).encode())
        elif path == "/set":
            self.respond(b"{}", [
                ("Set-Cookie", "app=1; Path=/"),
                ("Set-Cookie", "wide=1; Domain=localhost; Path=/"),
                ("Set-Cookie", "__Host-stockade-session=stolen; Path=/; Secure"),
                ("Via", "1.1 10.0.0.7"),
            ])
        elif path == "/redirect":
            location = "http://127.0.0.1:%d/next?a=b" % port
            self.respond(b"", [("Location", location), ("Via", "1.1 10.0.0.7")], 302)
        elif path == "/away":
            self.respond(b"", [("Location", "http://evil.example/")], 302)
        elif path == "/html":
            self.respond(HTML, kind="text/html")
        elif path == "/page":
            self.respond(PAGE, kind="text/html")
        elif path == "/drip":
            self.send_response(200)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            while True:
                self.wfile.write(b"4\r\ndrop\r\n")
                time.sleep(0.02)
        else:
            headers = [[name.lower(), value] for name, value in self.headers.items()]
            received = {
                "method": self.command, "path": self.path, "headers": headers,
                "body": body.decode("latin-1"), "port": port, "names": list(self.headers),
            }
            self.respond(json.dumps(received).encode())

    do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = do_OPTIONS = do_PROPFIND = answer

    def web_socket(self):
        key = self.headers["sec-websocket-key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
        accept = base64.b64encode(hashlib.sha1(key.encode()).digest()).decode()
        self.send_response(101)
        for name, value in (("Connection", "Upgrade"), ("Upgrade", "websocket"),
                            ("Sec-WebSocket-Accept", accept)):
            self.send_header(name, value)
        self.end_headers()
        self.wfile.flush()
        self.close_connection = True
        if self.path == "/silent":
            # It reads nothing, so that what is sent waits.
            time.sleep(600)
        while True:
            head = self.rfile.read(2)
            if len(head) < 2:
                return
            size = head[1] & 127
            if size == 126:
                size = struct.unpack(">H", self.rfile.read(2))[0]
            elif size == 127:
                size = struct.unpack(">Q", self.rfile.read(8))[0]
            mask = self.rfile.read(4)
            data = bytearray(self.rfile.read(size))
            for place in range(4):
                data[place::4] = bytes(byte ^ mask[place] for byte in data[place::4])
            opcode = {9: 10}.get(head[0] & 15, head[0] & 15)
            length = bytes([size]) if size < 126 else (
                struct.pack(">BH", 126, size) if size < 65536 else struct.pack(">BQ", 127, size))
            self.wfile.write(bytes([0x80 | opcode]) + length + bytes(data))
            self.wfile.flush()
            if opcode == 8:
                return


PAGE = b"""<!doctype html><title>inside</title><h1 id="name">inside</h1>
<script>
  document.cookie = 'page=1; path=/';
  document.cookie = 'wide=1; path=/; domain=localhost';
  const socket = new WebSocket(location.origin.replace('http', 'ws') + '/socket');
  socket.onopen = () => socket.send('hello');
  socket.onmessage = (event) => { document.getElementById('name').textContent = event.data; };
</script>"""


class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads = True
    request_queue_size = 64


servers = [Server(("127.0.0.1", int(port)), Handler) for port in sys.argv[1:]]
for server in servers[1:]:
    threading.Thread(target=server.serve_forever, daemon=True).start()
servers[0].serve_forever()
