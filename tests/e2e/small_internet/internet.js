// The servers of a small internet: names, HTTP/1.1, HTTP/2 and WebSockets over TLS, gRPC with and without
// TLS, and the services of pip, npm and git. Arguments: the address of the first host, the key, the
// certificate, the directory with packages, and that with repositories.
"use strict";
const { spawn } = require("node:child_process");
const crypto = require("node:crypto");
const dgram = require("node:dgram");
const fs = require("node:fs");
const http = require("node:http");
const http2 = require("node:http2");
const path = require("node:path");

const [network, key, certificate, packages, repositories] = process.argv.slice(2);
const HOSTS = ["web.test", "other.test", "grpc.test", "pypi.test", "npm.test", "git.test", "registry.test"];
// Names of the internet that lead inside.
const INSIDE = { "private.test": "10.0.0.5", "loopback.test": "127.0.0.1" };
// Names with an address of version 6, as hexadecimal digits: a host, and what leads inside. One of them
// also has a public address of version 4.
const SIX = {
  "six.test": "2a001098000700000000000000000010",
  "private6.test": "fd000000000000000000000000000005",
  "mapped6.test": "00000000000000000000ffff0a000005",
  "translated6.test": "0064ff9b00000000000000000a000005",
  "mixed.test": "00000000000000000000000000000001",
};

function addressOf(name) {
  if (name in INSIDE) return INSIDE[name];
  if (name === "mixed.test") return `${network}.10`;
  const at = HOSTS.indexOf(name);
  return at < 0 ? undefined : `${network}.${10 + at}`;
}

// DNS (RFC 1035, RFC 3596): addresses of both versions, and nothing else.
const names = dgram.createSocket("udp4");
names.on("message", (question, from) => {
  const labels = [];
  let at = 12;
  while (question[at] > 0) {
    labels.push(question.toString("latin1", at + 1, at + 1 + question[at]));
    at += 1 + question[at];
  }
  const end = at + 5;
  const type = question.readUInt16BE(at + 1);
  const name = labels.join(".").toLowerCase();
  const address = addressOf(name);
  const found =
    type === 1 && address ? Buffer.from(address.split(".").map(Number))
    : type === 28 && name in SIX ? Buffer.from(SIX[name], "hex")
    : undefined;
  const head = Buffer.from(question.subarray(0, 12));
  head.writeUInt16BE(address || name in SIX ? 0x8180 : 0x8183, 2);
  head.writeUInt16BE(found ? 1 : 0, 6);
  head.writeUInt32BE(0, 8);
  const parts = [head, question.subarray(12, end)];
  if (found) {
    parts.push(Buffer.from([0xc0, 12, 0, type, 0, 1, 0, 0, 0, 60, 0, found.length]), found);
  }
  names.send(Buffer.concat(parts), from.port, from.address);
});
names.bind(53, `${network}.1`);

function read(request) {
  return new Promise((resolve) => {
    const parts = [];
    request.on("data", (part) => parts.push(part));
    request.on("end", () => resolve(Buffer.concat(parts)));
  });
}

async function web(request, response) {
  const body = (await read(request)).toString();
  const { method, url, httpVersion: version, headers } = request;
  const told = { version, method, url, body, authorization: headers.authorization };
  console.log(JSON.stringify(told));
  response.setHeader("content-type", "application/json");
  response.end(JSON.stringify(told));
}

// Any method: the request comes back as the response, in as many messages.
function grpc(request, response) {
  console.log(JSON.stringify({ grpc: request.url, authorization: request.headers.authorization }));
  response.setHeader("content-type", "application/grpc");
  response.on("error", () => {});
  request.on("data", (part) => response.write(part));
  request.on("end", () => {
    response.addTrailers({ "grpc-status": "0", "grpc-message": "fine" });
    response.end();
  });
}

function file(response, name, kind) {
  const place = path.join(packages, path.basename(name));
  if (!fs.existsSync(place)) {
    response.statusCode = 404;
    return response.end();
  }
  response.setHeader("content-type", kind);
  response.end(fs.readFileSync(place));
}

function pypi(request, response) {
  if (request.url === "/simple/tiny/") {
    response.setHeader("content-type", "text/html");
    const wheel = "tiny-1.0-py3-none-any.whl";
    return response.end(`<html><body><a href="/files/${wheel}">${wheel}</a></body></html>`);
  }
  file(response, request.url, "application/octet-stream");
}

function npm(request, response) {
  if (request.url !== "/tiny") return file(response, request.url, "application/octet-stream");
  const tarball = fs.readFileSync(path.join(packages, "tiny-1.0.0.tgz"));
  const integrity = `sha512-${crypto.createHash("sha512").update(tarball).digest("base64")}`;
  const dist = { tarball: "https://npm.test/tiny/-/tiny-1.0.0.tgz", integrity };
  const version = { name: "tiny", version: "1.0.0", dist };
  const all = { name: "tiny", "dist-tags": { latest: "1.0.0" }, versions: { "1.0.0": version } };
  response.setHeader("content-type", "application/json");
  response.end(JSON.stringify(all));
}

async function git(request, response) {
  const [place, query] = request.url.split("?");
  const body = await read(request);
  console.log(JSON.stringify({ git: place, method: request.method, authorization: request.headers.authorization }));
  const encoded = request.headers["content-encoding"];
  const backend = spawn("git", ["http-backend"], {
    env: {
      PATH: process.env.PATH,
      GIT_PROJECT_ROOT: repositories,
      GIT_HTTP_EXPORT_ALL: "1",
      REQUEST_METHOD: request.method,
      PATH_INFO: place,
      QUERY_STRING: query ?? "",
      CONTENT_TYPE: request.headers["content-type"] ?? "",
      CONTENT_LENGTH: String(body.length),
      REMOTE_USER: request.headers.authorization ? "someone" : "",
      ...(encoded ? { HTTP_CONTENT_ENCODING: encoded } : {}),
      ...(request.headers["git-protocol"] ? { GIT_PROTOCOL: request.headers["git-protocol"] } : {}),
    },
  });
  // It may end before it has read everything.
  backend.stdin.on("error", () => {});
  backend.stdin.end(body);
  backend.stderr.pipe(process.stderr);
  const all = await read(backend.stdout);
  const end = all.indexOf("\r\n\r\n");
  for (const line of all.toString("latin1", 0, end).split("\r\n")) {
    const [name, value] = line.split(": ");
    if (name === "Status") response.statusCode = parseInt(value, 10);
    else response.setHeader(name, value);
  }
  response.end(all.subarray(end + 4));
}

// A registry that leads its clients to the URL that the name of an image contains, as hexadecimal digits.
function registry(request, response) {
  const [, , way, digits] = request.url.split("/");
  const url = Buffer.from(digits ?? "", "hex").toString();
  console.log(JSON.stringify({ way, url }));
  if (way === "token") {
    response.statusCode = 401;
    response.setHeader("www-authenticate", `Bearer realm="${url}",service="registry.test"`);
  } else {
    response.statusCode = 307;
    response.setHeader("location", url);
  }
  response.end();
}

const handlers = { "pypi.test": pypi, "npm.test": npm, "git.test": git, "grpc.test": grpc, "registry.test": registry };

function handle(request, response) {
  const host = (request.authority ?? request.headers.host ?? "").split(":")[0];
  (handlers[host] ?? web)(request, response);
}

// RFC 6455: each short message comes back.
function upgrade(request, socket) {
  const magic = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
  const accept = crypto.createHash("sha1").update(request.headers["sec-websocket-key"] + magic);
  socket.write("HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n");
  socket.write(`Sec-WebSocket-Accept: ${accept.digest("base64")}\r\n\r\n`);
  console.log(JSON.stringify({ socket: request.url }));
  socket.on("error", () => {});
  socket.on("data", (frame) => {
    const length = frame[1] & 0x7f;
    const mask = frame.subarray(2, 6);
    const content = Buffer.from(frame.subarray(6, 6 + length).map((byte, at) => byte ^ mask[at % 4]));
    socket.write(Buffer.concat([Buffer.from([frame[0], length]), content]));
  });
}

const secure = { key: fs.readFileSync(key), cert: fs.readFileSync(certificate), allowHTTP1: true };
const server = http2.createSecureServer(secure, handle);
server.on("upgrade", upgrade);
server.on("sessionError", () => {});
const plain = http.createServer(handle);
const bare = http2.createServer(grpc);
server.listen(443, () => plain.listen(80, () => bare.listen(50051, () => console.log("ready"))));
