//! Headers by which a client chooses how it is answered. In the response to a request that contains
//! a credential, the value must be found wherever the host repeats it: the request asks for the
//! whole body, in one piece and without an encoding.

use crate::first_bytes::http::Head;

/// Headers that are removed from such a request, each with its source; also with underscores, which
/// gateways and frameworks take for hyphens.
const REMOVED: &[(&str, &str)] = &[
    ("range", "RFC 9110, section 14.2: a part of the body"),
    ("if-range", "RFC 9110, section 13.1.5"),
    ("request-range", "the name of Range before RFC 2068, which servers still read"),
    ("te", "RFC 9110, section 10.1.4: transfer encodings, and trailers"),
    (GRPC_ACCEPT_ENCODING, "gRPC over HTTP/2: compression of each message"),
    ("connect-accept-encoding", "the protocol Connect: compression of each message"),
    ("accept-charset", "RFC 9110, section 12.5.2: another character encoding"),
    ("a-im", "RFC 3229, section 10.5.3: a difference to an earlier body"),
    ("available-dictionary", "RFC 9842, section 2.2: compression with a known text"),
    ("dictionary-id", "RFC 9842, section 2.3"),
    ("want-digest", "RFC 3230, section 4.3.1: a digest of a body that contains the value"),
    ("want-content-digest", "RFC 9530, section 4"),
    ("want-repr-digest", "RFC 9530, section 4"),
];

const GRPC_ACCEPT_ENCODING: &str = "grpc-accept-encoding";

/// Changes a request to a host that has credentials. The response to it can be read: it is not
/// compressed, and its messages of WebSocket are not.
pub(crate) fn without_compression(head: &mut Head) {
    head.set("Accept-Encoding", b"identity");
    head.remove("sec-websocket-extensions");
}

/// Changes a request that contains a credential, as well: its response is whole.
pub(crate) fn as_a_whole(head: &mut Head) {
    let is_grpc = |kind: &[u8]| kind.to_ascii_lowercase().starts_with(b"application/grpc");
    let has_grpc = head.value(GRPC_ACCEPT_ENCODING).is_some();
    for (name, _) in REMOVED {
        head.remove(name);
    }
    // Messages of gRPC are compressed each by itself, also those of gRPC-Web over HTTP/1.
    if has_grpc || head.value("content-type").is_some_and(is_grpc) {
        head.set(GRPC_ACCEPT_ENCODING, b"identity");
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

    #[test]
    fn a_disguised_header_chooses_nothing_either() {
        let request = "POST / HTTP/1.1\r\nHost: api.example\r\nAccept_Encoding: gzip\r\nACCEPT_CHARSET: utf-16\r\n\
                       If_Range: x\r\nA_IM: vcdiff\r\nSec_WebSocket_Extensions: permessage-deflate\r\n\
                       Content-Type: application/grpc-web+proto\r\ngrpc_accept_encoding: gzip\r\n\
                       Grpc-Accept-Encoding: gzip\r\nConnect-Accept-Encoding: gzip\r\nX_Other: 1\r\n\r\n";
        let (mut head, _) = Head::parse(request.as_bytes()).unwrap().unwrap();
        without_compression(&mut head);
        as_a_whole(&mut head);
        assert_eq!(
            String::from_utf8(head.to_origin(None)).unwrap(),
            "POST / HTTP/1.1\r\nHost: api.example\r\nContent-Type: application/grpc-web+proto\r\n\
             X_Other: 1\r\nAccept-Encoding: identity\r\ngrpc-accept-encoding: identity\r\n\
             Connection: close\r\n\r\n"
        );
    }
}
