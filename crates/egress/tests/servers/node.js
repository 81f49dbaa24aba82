// Node's http server: prints the host of each request.
const http = require("node:http");
const print = (request) => process.stdout.write(`HOST ${request.headers.host ?? "-"}\n`);
const server = http.createServer((request, response) => {
  print(request);
  response.end("served\n");
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
