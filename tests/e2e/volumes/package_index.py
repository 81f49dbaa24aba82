# A package index with one source package, whose build needs no other package.
import http.server
import io
import tarfile

BACKEND = b"""
import os, zipfile
def build_wheel(directory, config_settings=None, metadata_directory=None):
    name = 'dep-1.0-py3-none-any.whl'
    info = 'dep-1.0.dist-info/'
    with zipfile.ZipFile(os.path.join(directory, name), 'w') as wheel:
        wheel.writestr('dep.py', 'x = 1')
        wheel.writestr(info + 'METADATA', 'Metadata-Version: 2.1\\nName: dep\\nVersion: 1.0\\n')
        wheel.writestr(info + 'WHEEL', 'Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n')
        wheel.writestr(info + 'RECORD', 'dep.py,,\\n')
    return name
"""
PROJECT = b"""
[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]
"""

archive = io.BytesIO()
with tarfile.open(fileobj=archive, mode="w:gz") as tar:
    for name, content in [("pyproject.toml", PROJECT), ("backend.py", BACKEND)]:
        info = tarfile.TarInfo("dep-1.0/" + name)
        info.size = len(content)
        tar.addfile(info, io.BytesIO(content))


class Index(http.server.BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def do_GET(self):
        is_archive = self.path.endswith(".tar.gz")
        page = b'<a href="/dep-1.0.tar.gz">dep-1.0.tar.gz</a>'
        body = archive.getvalue() if is_archive else page
        self.send_response(200)
        self.send_header("Content-Type", "application/gzip" if is_archive else "text/html")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


server = http.server.HTTPServer(("127.0.0.1", 8099), Index)
open("/tmp/ready", "w").close()
server.serve_forever()
