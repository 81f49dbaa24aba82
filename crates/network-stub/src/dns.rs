//! DNS queries (RFC 1035): as much of them as it takes to say that the name does not exist.

use stockade_core::network::{Host, Name, WantedHost};

const HEADER_BYTES: usize = 12;
const LABEL_BYTES: u8 = 63;
const IS_RESPONSE: u8 = 0x80;
const OPERATION: u8 = 0x78;
const RECURSION_DESIRED: u8 = 0x01;
const RECURSION_AVAILABLE: u8 = 0x80;
const FORMAT_ERROR: u8 = 1;
const NO_SUCH_NAME: u8 = 3;
const NOT_IMPLEMENTED: u8 = 4;

/// The response to a query, and the host that it asked for; `None` for bytes that are no query and
/// get no response.
pub(crate) fn answer(query: &[u8]) -> Option<(Vec<u8>, Option<WantedHost>)> {
    let header = query.get(..HEADER_BYTES)?;
    let [id_high, id_low, flags, _, counts @ ..] = header else { return None };
    if flags & IS_RESPONSE != 0 {
        return None;
    }
    let response = |code, question: &[u8]| {
        let flags = [IS_RESPONSE | (flags & RECURSION_DESIRED), RECURSION_AVAILABLE | code];
        let questions = u8::from(!question.is_empty());
        let head = [*id_high, *id_low, flags[0], flags[1], 0, questions, 0, 0, 0, 0, 0, 0];
        [&head, question].concat()
    };
    if flags & OPERATION != 0 {
        return Some((response(NOT_IMPLEMENTED, &[]), None));
    }
    let question = match counts {
        [0, 1, 0, 0, 0, 0, ..] => question(query.get(HEADER_BYTES..).unwrap_or_default()),
        _ => None,
    };
    let Some((text, question)) = question else {
        return Some((response(FORMAT_ERROR, &[]), None));
    };
    let name = text.and_then(|text| Name::parse(&text).ok());
    let wanted = name.and_then(|name| WantedHost::new(Host::Name(name), None));
    Some((response(NO_SUCH_NAME, question), wanted))
}

/// The name and the bytes of a question. The name is absent where it is no text.
fn question(bytes: &[u8]) -> Option<(Option<String>, &[u8])> {
    let mut labels: Vec<&[u8]> = Vec::new();
    let mut at = 0;
    loop {
        let length = *bytes.get(at)?;
        at += 1;
        match length {
            0 => break,
            1..=LABEL_BYTES => {
                let end = at + usize::from(length);
                labels.push(bytes.get(at..end)?);
                at = end;
            }
            // A pointer, which no query needs.
            _ => return None,
        }
    }
    // Type and class.
    let question = bytes.get(..at + 4)?;
    let is_plain = |label: &&[u8]| !label.contains(&b'.') && label.is_ascii();
    let text = labels.iter().all(is_plain).then(|| {
        let labels: Vec<_> = labels.iter().map(|label| String::from_utf8_lossy(label)).collect();
        labels.join(".")
    });
    Some((text, question))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn query(name: &str) -> Vec<u8> {
        let mut bytes = vec![0x12, 0x34, 1, 0, 0, 1, 0, 0, 0, 0, 0, 1];
        for label in name.split('.') {
            bytes.push(u8::try_from(label.len()).unwrap());
            bytes.extend_from_slice(label.as_bytes());
        }
        // The end of the name, A, IN, and an EDNS record, which is not repeated.
        bytes.extend_from_slice(&[0, 0, 1, 0, 1, 0, 0, 41, 4, 208, 0, 0, 0, 0, 0, 0]);
        bytes
    }

    #[test]
    fn no_name_exists_and_each_is_recorded() {
        let (response, wanted) = answer(&query("Packages.example.com")).unwrap();
        assert_eq!(response[..12], [0x12, 0x34, 0x81, 0x83, 0, 1, 0, 0, 0, 0, 0, 0]);
        assert_eq!(response.len(), 12 + "packages.example.com".len() + 2 + 4);
        assert_eq!(wanted.unwrap().allow().unwrap(), "--allow packages.example.com");
        for name in ["db", "a.local"] {
            let wanted = answer(&query(name)).unwrap().1.unwrap();
            assert_eq!((wanted.to_string(), wanted.allow()), (name.to_owned(), None));
        }
        for name in ["5.0.0.10.in-addr.arpa", "_http._tcp.example.com"] {
            let (response, wanted) = answer(&query(name)).unwrap();
            assert_eq!((response[3] & 15, wanted), (NO_SUCH_NAME, None), "{name}");
        }
    }

    #[test]
    fn what_is_no_query_gets_no_answer_or_an_error() {
        assert_eq!(answer(b""), None);
        assert_eq!(answer(&[0; 11]), None);
        let mut response = query("a.example.com");
        response[2] |= IS_RESPONSE;
        assert_eq!(answer(&response), None);
        let mut update = query("a.example.com");
        update[2] |= 5 << 3;
        assert_eq!(answer(&update).unwrap().0[3] & 15, NOT_IMPLEMENTED);
        let mut two = query("a.example.com");
        two[5] = 2;
        let short = &query("a.example.com")[..20];
        let pointer = [&query("a.example.com")[..12], &[0xc0, 12, 0, 1, 0, 1]].concat();
        for bytes in [&two[..], short, &pointer] {
            assert_eq!(answer(bytes).unwrap(), (answer(bytes).unwrap().0, None));
            assert_eq!(answer(bytes).unwrap().0[3] & 15, FORMAT_ERROR);
        }
        // A label with a dot or a control character is a name for no program.
        let mut dotted = query("a.example.com");
        dotted[13] = b'.';
        assert_eq!(answer(&dotted).unwrap().1, None);
        dotted[13] = 0x1b;
        assert_eq!(answer(&dotted).unwrap().1, None);
    }

    proptest! {
        #[test]
        fn any_bytes_are_answered_with_less_than_was_sent(
            bytes in proptest::collection::vec(any::<u8>(), 0..600),
        ) {
            if let Some((response, _)) = answer(&bytes) {
                prop_assert!(response.len() <= bytes.len().max(HEADER_BYTES));
            }
        }
    }
}
