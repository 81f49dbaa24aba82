// Node's http server: prints the host of each request, and says which path it takes for a denied one.
const http = require("node:http");
const path = require("node:path");
const isDenied = (request) => {
  try {
    const { pathname } = new URL(request.url, "http://any");
    return `${path.posix.normalize(decodeURIComponent(pathname))}/`.startsWith("/denied/");
  } catch {
    return false;
  }
};
const print = (request) => process.stdout.write(`HOST ${request.headers.host ?? "-"}\n`);
const server = http.createServer((request, response) => {
  print(request);
  response.end(isDenied(request) ? "denied\n" : "served\n");
});
server.on("upgrade", (request, socket) => {
  print(request);
  socket.end("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
});
server.on("connect", (request, socket) => {
  print(request);
  socket.end("HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n");
});
server.listen(Number(process.argv[2]), "127.0.0.1");
