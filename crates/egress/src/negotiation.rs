//! Headers by which a client chooses how it is answered. In the response to a request that contains
//! a credential, the value must be found wherever the host repeats it: the request asks for the
//! whole body, in one piece and without an encoding.

use crate::first_bytes::http::Head;

/// Headers that are removed from such a request, each with its source.
const REMOVED: &[(&str, &str)] = &[
    ("range", "RFC 9110, section 14.2: a part of the body"),
    ("if-range", "RFC 9110, section 13.1.5"),
    ("request-range", "the name of Range before RFC 2068, which servers still read"),
    ("te", "RFC 9110, section 10.1.4: transfer encodings, and trailers"),
    ("accept-charset", "RFC 9110, section 12.5.2: another character encoding"),
    ("a-im", "RFC 3229, section 10.5.3: a difference to an earlier body"),
    ("available-dictionary", "RFC 9842, section 2.2: compression with a known text"),
    ("dictionary-id", "RFC 9842, section 2.3"),
    ("want-digest", "RFC 3230, section 4.3.1: a digest of a body that contains the value"),
    ("want-content-digest", "RFC 9530, section 4"),
    ("want-repr-digest", "RFC 9530, section 4"),
];

/// Changes a request to a host that has credentials. The response to it can be read: it is not
/// compressed, and its messages of WebSocket are not.
pub(crate) fn without_compression(head: &mut Head) {
    head.set("Accept-Encoding", b"identity");
    head.remove("sec-websocket-extensions");
}

/// Changes a request that contains a credential, as well: its response is whole.
pub(crate) fn as_a_whole(head: &mut Head) {
    for (name, _) in REMOVED {
        head.remove(name);
    }
    // HTTP/1.0 has no switch of protocols, and must not begin one as HTTP/1.1.
    if head.minor == 0 {
        head.remove("upgrade");
    }
    // In the response to HTTP/1.0 the end of the body is only that of the connection.
    head.minor = 1;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_alone_chooses_its_answer() {
        let request = "GET / HTTP/1.0\r\nHost: api.example\r\nrAnGe: bytes=1-2\r\nIf-Range: \"x\"\r\n\
                       Accept-Encoding: gzip, br;q=0.5\r\naccept-encoding: *\r\nTE: gzip\r\n\
                       Connection: TE, Upgrade\r\nUpgrade: websocket\r\nAccept: text/plain\r\nA-IM: vcdiff\r\n\
                       Want-Repr-Digest: sha-256=1\r\nAccept-Charset: utf-16\r\n\
                       Sec-WebSocket-Extensions: permessage-deflate\r\nX-Range: 5\r\n\r\n";
        let (mut head, _) = Head::parse(request.as_bytes()).unwrap().unwrap();
        without_compression(&mut head);
        let text = String::from_utf8(head.to_origin(None)).unwrap();
        assert!(text.contains("rAnGe: bytes=1-2") && !text.contains("permessage"), "{text}");
        as_a_whole(&mut head);
        assert_eq!(
            String::from_utf8(head.to_origin(None)).unwrap(),
            "GET / HTTP/1.1\r\nHost: api.example\r\nAccept: text/plain\r\nX-Range: 5\r\n\
             Accept-Encoding: identity\r\nConnection: close\r\n\r\n"
        );
    }
}
