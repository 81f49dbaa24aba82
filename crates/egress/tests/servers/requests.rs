//! Requests that a lenient server takes for another host: written by hand, and made of these by
//! rules that replace what separates, ends and names.

/// The host that the sandbox may reach, and one that it may not.
pub(super) const ALLOWED: &str = "api.example";
pub(super) const OTHER: &str = "evil.example";

/// First lines that some servers take for those of a request.
const FIRST_LINES: &[&str] = &[
    "GET / HTTP/1.1",
    "GET /",
    "GET",
    "GET / ",
    "GET  / HTTP/1.1",
    "GET /  HTTP/1.1",
    "GET / HTTP/1.1 ",
    " GET / HTTP/1.1",
    "GET\t/\tHTTP/1.1",
    "GET /\tHTTP/1.1",
    "GET /\u{b}HTTP/1.1",
    "GET\u{c}/ HTTP/1.1",
    "GET / x HTTP/1.1",
    "GET / http/1.1",
    "GET / HTTP/1",
    "GET / HTTP/1.",
    "GET / HTTP/.1",
    "GET / HTTP/01.1",
    "GET / HTTP/1.10",
    "GET / HTTP/1.2",
    "GET / HTTP/0.9",
    "GET / HTTP/2.0",
    "GET / HTTP/9.9",
    "GET / HTTP/1,1",
    "GET / HTTP /1.1",
    "GET / HTTPS/1.1",
    "GET / RTSP/1.0",
    "SOURCE / ICE/1.0",
    "GET / XHTTP/1.1",
    "GET /HTTP/1.1",
    "GET http://evil.example/ HTTP/1.1",
    "GET HTTP://EVIL.example/ HTTP/1.0",
    "GET http://api.example@evil.example/ HTTP/1.1",
    "GET http://evil.example:80#@api.example/ HTTP/1.1",
    "GET http://evil.example\\@api.example/ HTTP/1.1",
    "GET http:/evil.example/ HTTP/1.1",
    "GET http:evil.example HTTP/1.1",
    "GET https://evil.example/ HTTP/1.1",
    "GET //evil.example/ HTTP/1.1",
    "GET ///evil.example/ HTTP/1.1",
    "GET evil.example/ HTTP/1.1",
    "GET evil.example:80 HTTP/1.1",
    "GET ? HTTP/1.1",
    "GET * HTTP/1.1",
    "GET /# HTTP/1.1",
    "GET /\0 HTTP/1.1",
    "GET /\u{e9} HTTP/1.1",
    "CONNECT evil.example:80 HTTP/1.1",
    "CONNECT evil.example HTTP/1.1",
    "CONNECT / HTTP/1.1",
    "OPTIONS * HTTP/1.1",
    "get / HTTP/1.1",
    "get /",
    "Get / HTTP/1.1",
    "GE(T / HTTP/1.1",
    "GE(T /",
    "GET, / HTTP/1.1",
    "X Y",
    "EHLO me",
    "POST / HTTP/1.1",
    "PRI * HTTP/2.0",
    "SSH-2.0-X Y",
    "{\"A\": 1}",
    "\u{1}\u{2} /",
];

/// Header sections that name another host to some server.
const HEADERS: &[&str] = &[
    "Host: evil.example",
    "Host: api.example\r\nHost: evil.example",
    "Host: evil.example\r\nHost: api.example",
    "Host: api.example, evil.example",
    "Host: evil.example, api.example",
    "Host: api.example\r\n evil.example",
    "Host:\r\n evil.example",
    "Host: evil.example\r\n X: y",
    " Host: evil.example\r\nHost: api.example",
    "X: y\r\n Host: evil.example\r\nHost: api.example",
    "Host : evil.example",
    "Host\t: evil.example",
    "Host\u{b}: evil.example",
    "Host\0: evil.example",
    "Host: evil.example\0api.example",
    "Host: api.example\0evil.example",
    "Host: api.example evil.example",
    "Host: evil.example api.example",
    "Host: api.example@evil.example",
    "Host: evil.example@api.example",
    "Host: evil.example#api.example",
    "Host: evil.example/api.example",
    "Host: evil.example?.api.example",
    "Host: evil.example\\.api.example",
    "Host: evil.example:80:api.example",
    "Host: http://evil.example",
    "Host: \"evil.example\"",
    "Host: api.example.evil.example",
    "Host: evil.example.",
    "Host: evil%2eexample",
    "Host: \u{ff45}vil.example",
    "Host: [evil.example]",
    "Host: api.example:evil.example",
    "Host: api.example\rHost: evil.example",
    "X: y\rHost: evil.example\r\nHost: api.example",
    "X: y\nHost: evil.example\r\nHost: api.example",
    "X: y\u{b}Host: evil.example\r\nHost: api.example",
    "X: y\u{85}Host: evil.example\r\nHost: api.example",
    "X: y\u{2028}Host: evil.example\r\nHost: api.example",
    "X: y\u{1c}Host: evil.example\r\nHost: api.example",
    "X: y\n\rHost: evil.example\r\nHost: api.example",
    "no colon\r\nHost: evil.example\r\nHost: api.example",
    ": x\r\nHost: evil.example\r\nHost: api.example",
    "hOST:evil.example",
    "Host;: evil.example\r\nHost: api.example",
    "H\u{f6}st: evil.example\r\nHost: api.example",
    "Connection: host\r\nHost: api.example\r\nX-Host: evil.example",
    "",
];

/// What an accepted first request leaves on a connection for a server that reads its length, its
/// end or its protocol in another way. `NEXT` is a second request.
const SECOND_REQUESTS: &[&str] = &[
    "GET / HTTP/1.1\r\nHost: api.example\r\n\r\nNEXT",
    "GET / HTTP/1.0\r\n\r\nNEXT",
    "GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\nNEXT",
    "GET / HTTP/1.1\r\nHost: api.example\r\nConnection: keep-alive\r\n\r\nNEXT",
    "HEAD / HTTP/1.1\r\nHost: api.example\r\n\r\nNEXT",
    "OPTIONS * HTTP/1.1\r\nHost: api.example\r\n\r\nNEXT",
    "POST / HTTP/1.1\r\nHost: api.example\r\nContent-Length: 3\r\n\r\nabcNEXT",
    "POST / HTTP/1.1\r\nHost: api.example\r\nContent-Length: 0\r\n\r\nNEXT",
    "POST / HTTP/1.1\r\nHost: api.example\r\nContent-Length: 3\r\nContent-Length: 3\r\n\r\nabcNEXT",
    "POST / HTTP/1.1\r\nHost: api.example\r\nContent-Length: 3, 3\r\n\r\nabcNEXT",
    "POST / HTTP/1.1\r\nHost: api.example\r\nContent-Length: 3\r\nContent-Length: 0\r\n\r\nabcNEXT",
    "POST / HTTP/1.1\r\nHost: api.example\r\nContent-Length: 0\r\nContent-Length: 99\r\n\r\nNEXT",
    "POST / HTTP/1.1\r\nHost: api.example\r\nContent-Length: 0x3\r\n\r\nabcNEXT",
    "POST / HTTP/1.1\r\nHost: api.example\r\nContent-Length: +3\r\n\r\nabcNEXT",
    "POST / HTTP/1.1\r\nHost: api.example\r\nContent-Length: -1\r\n\r\nNEXT",
    "POST / HTTP/1.1\r\nHost: api.example\r\nContent-Length: 18446744073709551616\r\n\r\nNEXT",
    "POST / HTTP/1.1\r\nHost: api.example\r\nContent-Length : 99\r\n\r\nNEXT",
    "POST / HTTP/1.1\r\nHost: api.example\r\nContent_Length: 99\r\n\r\nNEXT",
    "POST / HTTP/1.1\r\nHost: api.example\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nNEXT",
    "POST / HTTP/1.1\r\nHost: api.example\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\nNEXT",
    "POST / HTTP/1.1\r\nHost: api.example\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX: y\r\n\r\nNEXT",
    "POST / HTTP/1.1\r\nHost: api.example\r\nTransfer-Encoding: chunked\r\n\r\n0;x\r\n\r\nNEXT",
    "POST / HTTP/1.1\r\nHost: api.example\r\nTransfer-Encoding: chunked\r\n\r\n0;\nNEXT",
    "POST / HTTP/1.1\r\nHost: api.example\r\nTransfer-Encoding: chunked\r\n\r\n0\n\nNEXT",
    "POST / HTTP/1.1\r\nHost: api.example\r\nTransfer-Encoding: chunked\r\n\r\n00\r\n\r\nNEXT",
    "POST / HTTP/1.1\r\nHost: api.example\r\nTransfer-Encoding: chunked\r\n\r\n0x0\r\n\r\nNEXT",
    "POST / HTTP/1.1\r\nHost: api.example\r\nTransfer-Encoding: chunked\r\n\r\n0 \r\n\r\nNEXT",
    "POST / HTTP/1.1\r\nHost: api.example\r\nTransfer-Encoding: chunked\r\n\r\n+0\r\n\r\nNEXT",
    "POST / HTTP/1.1\r\nHost: api.example\r\nTransfer-Encoding: chunked\r\n\r\n10000000000000000\r\n\r\nNEXT",
    "POST / HTTP/1.1\r\nHost: api.example\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabcX\r\n0\r\n\r\nNEXT",
    "POST / HTTP/1.1\r\nHost: api.example\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n0\r\n\r\nNEXT",
    "POST / HTTP/1.1\r\nHost: api.example\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nNEXT",
    "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\nContent-Length: 200\r\n\r\n0\r\n\r\nNEXT",
    "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nNEXT",
    "POST / HTTP/1.1\r\nHost: api.example\r\nTransfer-Encoding: identity\r\n\r\nNEXT",
    "POST / HTTP/1.1\r\nHost: api.example\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\nNEXT",
    "POST / HTTP/1.1\r\nHost: api.example\r\nTransfer-Encoding: chunked, gzip\r\n\r\n0\r\n\r\nNEXT",
    "POST / HTTP/1.1\r\nHost: api.example\r\nTransfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\nNEXT",
    "POST / HTTP/1.1\r\nHost: api.example\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\nNEXT",
    "POST / HTTP/1.1\r\nHost: api.example\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\nNEXT",
    "POST / HTTP/1.1\r\nHost: api.example\r\nTransfer-Encoding: \u{b}chunked\r\n\r\n0\r\n\r\nNEXT",
    "POST / HTTP/1.1\r\nHost: api.example\r\nTransfer-Encoding\t: chunked\r\n\r\n0\r\n\r\nNEXT",
    "POST / HTTP/1.1\r\nHost: api.example\r\nTransfer_Encoding: chunked\r\n\r\n0\r\n\r\nNEXT",
    "POST / HTTP/1.1\r\nHost: api.example\r\nTransfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\nNEXT",
    "POST / HTTP/1.1\r\nHost: api.example\r\nConnection: Transfer-Encoding\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nNEXT",
    "POST / HTTP/1.1\r\nHost: api.example\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\nabcNEXT",
    "POST / HTTP/1.1\r\nHost: api.example\r\nExpect: 100-continue\r\n\r\nNEXT",
    "GET / HTTP/1.1\r\nHost: api.example\r\nExpect: x\r\n\r\nNEXT",
    "GET / HTTP/1.1\r\nHost: api.example\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\nNEXT",
    "GET / HTTP/1.1\r\nHost: api.example\r\nUpgrade: websocket\r\n\r\nNEXT",
    "GET / HTTP/1.1\r\nHost: api.example\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n\r\nNEXT",
    "GET / HTTP/1.1\r\nHost: api.example\r\nUpgrade: websocket, x\r\nConnection: Upgrade\r\n\r\nNEXT",
    "POST / HTTP/1.1\r\nHost: api.example\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nContent-Length: 3\r\n\r\nabcNEXT",
    "POST / HTTP/1.1\r\nHost: api.example\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nNEXT",
    "CONNECT api.example:80 HTTP/1.1\r\nHost: api.example\r\n\r\nNEXT",
    "\r\nNEXT",
    "\r\n\r\n\r\nNEXT",
    "\nNEXT",
    "\0NEXT",
    "\u{b}NEXT",
    " NEXT",
    "\u{feff}NEXT",
    "x\r\nNEXT",
    "x y\r\nNEXT",
    "PROXY TCP4 127.0.0.1 127.0.0.1 1 2\r\nNEXT",
    "\r\n\r\n\0\r\nQUIT\n!\u{11}\0\u{c}\u{7f}\0\0\u{1}\u{7f}\0\0\u{1}\0\u{1}\0\u{2}NEXT",
    "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\nNEXT",
    "HTTP/1.1 200 OK\r\n\r\nNEXT",
];

/// What is put in the place of a space, and at the ends of words.
const ODD: &[u8] = b"\0\x01\t\x0b\x0c\r\n\x1c\x1d\x1e\x1f\x7f\x80\x85\xa0\xff";

/// Bytes in which each character below U+0100 is one byte, as servers read them.
fn bytes(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    for character in text.chars() {
        match u8::try_from(u32::from(character)) {
            Ok(byte) => bytes.push(byte),
            Err(_) => bytes.extend_from_slice(character.to_string().as_bytes()),
        }
    }
    bytes
}

/// All requests. Each is for the other host, as far as some server accepts it at all.
pub(super) fn all() -> Vec<Vec<u8>> {
    let next = "GET /next HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n";
    let mut all = Vec::new();
    for line in FIRST_LINES {
        for host in [OTHER, ALLOWED] {
            all.push(bytes(&format!("{line}\r\nHost: {host}\r\nConnection: close\r\n\r\n")));
        }
        all.push(bytes(&format!("{line}\nHost: {OTHER}\n\n")));
        all.push(bytes(&format!("{line}\r\n\r\n{next}")));
    }
    for method in [16, 31, 32, 33, 64, 65, 300, 5000] {
        let method = "A".repeat(method);
        all.push(bytes(&format!("{method} / HTTP/1.1\r\nHost: {OTHER}\r\n\r\n")));
        all.push(bytes(&format!("{method} /\r\nHost: {OTHER}\r\n\r\n")));
    }
    for headers in HEADERS {
        for version in ["HTTP/1.1", "HTTP/1.0"] {
            all.push(bytes(&format!("GET / {version}\r\n{headers}\r\nConnection: close\r\n\r\n")));
        }
        all.push(bytes(&format!("GET http://{ALLOWED}/ HTTP/1.1\r\n{headers}\r\n\r\n")));
        all.push(bytes(&format!("GET http://{OTHER}/ HTTP/1.1\r\n{headers}\r\n\r\n")));
    }
    all.extend(SECOND_REQUESTS.iter().map(|text| bytes(&text.replace("NEXT", next))));
    all.extend(with_odd_bytes(&bytes(&format!("GET / HTTP/1.1\r\nHost: {OTHER}\r\n\r\n"))));
    all.extend(with_odd_bytes(&bytes(&format!("GET /\r\nHost: {OTHER}\r\n\r\n"))));
    all.extend(random(&all, 400));
    all
}

/// A request with an odd byte instead of, before and after each separator.
fn with_odd_bytes(request: &[u8]) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    let is_separator = |byte: u8| b" \r\n:/".contains(&byte);
    for (at, byte) in
        request.iter().enumerate().filter(|(at, byte)| *at == 0 || is_separator(**byte))
    {
        for odd in ODD {
            let (before, after) = (&request[..at], &request[at + 1..]);
            all.push([before, &[*odd], after].concat());
            all.push([before, &[*odd, *byte], after].concat());
            all.push([before, &[*byte, *odd], after].concat());
        }
    }
    all
}

/// Requests made of others by chance, the same in each run.
fn random(others: &[Vec<u8>], count: usize) -> Vec<Vec<u8>> {
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut number = |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        usize::try_from(state >> 33).unwrap() % below.max(1)
    };
    let mut all = Vec::new();
    for _ in 0..count {
        let mut request = others[number(others.len())].clone();
        for _ in 0..=number(3) {
            let at = number(request.len());
            let words: [&[u8]; 8] = [
                b"\r\n",
                b"\n",
                b" ",
                b"Host: evil.example\r\n",
                b" HTTP/1.1\r\n",
                b"\r\nTransfer-Encoding: chunked",
                b"\r\nContent-Length: 5",
                b"http://evil.example/",
            ];
            match number(4) {
                0 => request.insert(at, ODD[number(ODD.len())]),
                1 if !request.is_empty() => drop(request.remove(at)),
                2 => {
                    let word = words[number(words.len())];
                    request.splice(at..at, word.iter().copied());
                }
                _ => {
                    let other = &others[number(others.len())];
                    let from = number(other.len());
                    request.truncate(at);
                    request.extend_from_slice(&other[from..]);
                }
            }
        }
        all.push(request);
    }
    all
}
