// Node's servers of HTTP/1.1 and HTTP/2: write what an application takes each request for. Arguments: the port, the
// key and the certificate.
"use strict";
const fs = require("node:fs");
const http2 = require("node:http2");
const [port, key, certificate] = process.argv.slice(2);
const pathOf = (url) => {
  if (url === "*") return url;
  try {
    return decodeURIComponent(new URL(url, "https://any").pathname);
  } catch {
    return `unreadable ${url}`;
  }
};
const tell = (request, response) => {
  const { method, headers } = request;
  const host = request.authority ?? headers.host ?? "";
  const seen = {
    number: headers["x-head"] ?? "", method, host, path: pathOf(request.url),
    authorization: headers.authorization ?? "",
  };
  fs.writeSync(1, `${JSON.stringify(seen)}\n`);
  if (response) request.on("end", () => response.end("served\n")).on("error", () => {}).resume();
};
const options = { key: fs.readFileSync(key), cert: fs.readFileSync(certificate), allowHTTP1: true };
const server = http2.createSecureServer(options, tell);
server.on("connect", (request, socket) => {
  if (socket?.end) {
    tell(request);
    socket.end("HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n");
  }
});
server.on("sessionError", () => {});
server.listen(Number(port), "127.0.0.1");
