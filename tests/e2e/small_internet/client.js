// A program inside: `grpc URL`, which sends two messages and prints what comes back, or `socket URL`, which
// opens a WebSocket.
"use strict";
const http2 = require("node:http2");
const https = require("node:https");

const [what, address] = process.argv.slice(2);
const url = new URL(address);

function message(text) {
  const content = Buffer.from(text);
  const prefix = Buffer.alloc(5);
  prefix.writeUInt32BE(content.length, 1);
  return Buffer.concat([prefix, content]);
}

function failed(error) {
  console.log(`failed: ${error.code ?? error.message}`);
  process.exit(1);
}

function grpc() {
  const session = http2.connect(url.origin);
  session.on("error", failed);
  const stream = session.request({
    ":method": "POST",
    ":path": url.pathname,
    "content-type": "application/grpc",
    te: "trailers",
  });
  const parts = [];
  let status;
  stream.on("error", failed);
  stream.on("response", (headers) => (status = headers["grpc-status"]));
  stream.on("trailers", (headers) => (status = headers["grpc-status"]));
  stream.on("data", (part) => {
    parts.push(part);
    // The second message is sent when the first one has come back.
    if (Buffer.concat(parts).length === message("one").length) stream.end(message("two"));
  });
  stream.on("close", () => {
    const same = Buffer.concat([message("one"), message("two")]).equals(Buffer.concat(parts));
    console.log(`status ${status}, both messages: ${same}`);
    session.close();
  });
  stream.write(message("one"));
}

function socket() {
  const headers = {
    connection: "Upgrade",
    upgrade: "websocket",
    "sec-websocket-version": "13",
    "sec-websocket-key": Buffer.from("0123456789abcdef").toString("base64"),
  };
  const request = https.request(url, { headers });
  request.on("error", failed);
  request.on("response", (response) => failed(new Error(`status ${response.statusCode}`)));
  request.on("upgrade", (_, stream) => {
    stream.on("data", (frame) => {
      console.log(`received ${frame.subarray(2)}`);
      stream.destroy();
    });
    // A text of five bytes, with a mask of zeros.
    stream.write(Buffer.concat([Buffer.from([0x81, 0x85, 0, 0, 0, 0]), Buffer.from("hello")]));
  });
  request.end();
}

({ grpc, socket })[what]();
