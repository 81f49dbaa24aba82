//! Queries and responses, valid and hostile.

use proptest::prelude::*;

use super::*;

fn name(text: &str) -> Name {
    Name::parse(text).unwrap()
}

/// A query with its name as labels.
fn query(labels: &[&[u8]], kind: u16, extended: bool) -> Vec<u8> {
    let mut bytes = header(7, RECURSION_DESIRED, [1, 0, 0, u16::from(extended)]);
    for label in labels {
        bytes.push(u8::try_from(label.len()).unwrap());
        bytes.extend_from_slice(label);
    }
    bytes.push(0);
    put16(&mut bytes, [kind, INTERNET]);
    if extended {
        extension(&mut bytes, &[]);
    }
    bytes
}

#[test]
fn a_question_is_answered_to_the_letter() {
    let bytes = query(&[b"Api", b"EXAMPLE"], TYPE_A, false);
    let query = Query::parse(&bytes).unwrap();
    assert_eq!(query.name().unwrap(), name("api.example"));
    assert_eq!(query.kind(), Kind::A);
    let answer = query.answer(&Reply::Address(Ipv4Addr::new(198, 18, 0, 1).into()));
    assert_eq!(answer[..12], [0, 7, 0x81, 0x80, 0, 1, 0, 1, 0, 0, 0, 0]);
    assert_eq!(answer[12..bytes.len()], bytes[12..], "the question, in its own case");
    assert_eq!(answer[bytes.len()..], [0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 198, 18, 0, 1]);
    // An ordinary client can parse it.
    let parsed = read(&answer, 7, &name("api.example"), Kind::A);
    let found = Resolution {
        addresses: vec![Ipv4Addr::new(198, 18, 0, 1).into()],
        valid: Duration::from_secs(60),
    };
    assert_eq!(parsed, Some(Answer::Complete(Ok(found))));
}

#[test]
fn a_denial_has_its_reason_for_who_can_read_it() {
    let reason = format!("not-allowed: {}", "ä".repeat(300));
    for extended in [false, true] {
        let bytes = query(&[b"evil", b"example"], TYPE_AAAA, extended);
        let answer = Query::parse(&bytes).unwrap().answer(&Reply::Denied(reason.clone()));
        assert_eq!(answer[3] & 0b1111, 3);
        assert!(answer.len() <= 512);
        let text = String::from_utf8_lossy(&answer).into_owned();
        assert_eq!(text.contains("not-allowed: ää"), extended);
        let parsed = read(&answer, 7, &name("evil.example"), Kind::Aaaa);
        assert_eq!(parsed, Some(Answer::Complete(Err(NotFound::NoSuchName))));
    }
    let bytes = query(&[b"a"], TYPE_A, true);
    let answer = Query::parse(&bytes).unwrap().answer(&Reply::Failed("x".into()));
    assert_eq!(answer[3] & 0b1111, 2);
    assert!(answer.ends_with(&[0, 7, 0, 15, 0, 3, 0, 23, b'x']), "{answer:?}");
}

#[test]
fn labels_that_no_host_has_are_no_names() {
    for labels in [&[&b"a.b"[..], b"example"][..], &[b"a\0b"], &[b"\xff"], &[b"a b"], &[b"1"], &[]]
    {
        let bytes = query(labels, TYPE_A, false);
        assert!(Query::parse(&bytes).unwrap().name().is_err(), "{labels:?}");
    }
    let long = [&[b'a'; 63][..]; 4];
    let bytes = query(&long, TYPE_A, false);
    assert!(Query::parse(&bytes).map_or(true, |query| query.name().is_err()));
}

#[test]
fn what_is_no_question_is_told_so_or_ignored() {
    let good = query(&[b"a", b"b"], TYPE_A, false);
    let changed = |at: usize, to: u8| {
        let mut bytes = good.clone();
        bytes[at] = to;
        bytes
    };
    for (bytes, expected) in [
        (vec![], Malformed::NotAQuestion),
        (vec![0, 7, 1], Malformed::NotAQuestion),
        (changed(2, 0x81), Malformed::NotAQuestion),
        (changed(2, 0x28), Malformed::Operation { id: 7 }),
        (changed(5, 2), Malformed::Format { id: 7 }),
        (changed(5, 0), Malformed::Format { id: 7 }),
        (changed(7, 1), Malformed::Format { id: 7 }),
        (changed(12, 0xc0), Malformed::Format { id: 7 }),
        (changed(12, 64), Malformed::Format { id: 7 }),
        (good[..good.len() - 1].to_vec(), Malformed::Format { id: 7 }),
        (good[..12].to_vec(), Malformed::Format { id: 7 }),
    ] {
        assert_eq!(Query::parse(&bytes), Err(expected), "{bytes:?}");
        let answered = expected.answer().map(|answer| (answer.len(), answer[3] & 0b1111));
        let code = match expected {
            Malformed::NotAQuestion => None,
            Malformed::Format { .. } => Some((12, 1)),
            Malformed::Operation { .. } => Some((12, 4)),
        };
        assert_eq!(answered, code);
    }
}

/// A response to a query for `a.example` with records of (owner, kind, seconds, data).
fn answer(records: &[(&[u8], u16, u32, &[u8])]) -> Vec<u8> {
    let count = u16::try_from(records.len()).unwrap();
    let mut bytes = header(9, IS_RESPONSE, [1, count, 0, 0]);
    bytes.extend_from_slice(b"\x01a\x07example\0");
    put16(&mut bytes, [TYPE_A, INTERNET]);
    for (owner, kind, seconds, data) in records {
        bytes.extend_from_slice(owner);
        put16(&mut bytes, [*kind, INTERNET]);
        bytes.extend_from_slice(&seconds.to_be_bytes());
        put16(&mut bytes, [u16::try_from(data.len()).unwrap()]);
        bytes.extend_from_slice(data);
    }
    bytes
}

const OWN: &[u8] = &[0xc0, 12];
const ALIAS: &[u8] = b"\x03cdn\xc0\x0e";

#[test]
fn addresses_are_found_through_aliases_only() {
    let read = |bytes: &[u8]| read(bytes, 9, &name("a.example"), Kind::A);
    let found = |addresses: &[&str], seconds| {
        let addresses = addresses.iter().map(|text| text.parse().unwrap()).collect();
        Some(Answer::Complete(Ok(Resolution { addresses, valid: Duration::from_secs(seconds) })))
    };
    let one: &[u8] = &[192, 0, 2, 1];
    let two: &[u8] = &[192, 0, 2, 2];
    assert_eq!(
        read(&answer(&[(OWN, TYPE_A, 30, one), (OWN, TYPE_A, 20, two)])),
        found(&["192.0.2.1", "192.0.2.2"], 20)
    );
    assert_eq!(
        read(&answer(&[(ALIAS, TYPE_A, 30, one), (OWN, TYPE_CNAME, 5, ALIAS)])),
        found(&["192.0.2.1"], 5)
    );
    let none = Some(Answer::Complete(Err(NotFound::NoAddress)));
    assert_eq!(read(&answer(&[(ALIAS, TYPE_A, 30, one)])), none, "somebody else's address");
    assert_eq!(read(&answer(&[(OWN, TYPE_CNAME, 5, OWN)])), none, "an alias of itself");
    assert_eq!(read(&answer(&[])), none);
    for bytes in [
        answer(&[(OWN, TYPE_AAAA, 1, one)]),
        answer(&[(OWN, TYPE_CNAME, 1, b"\xc0\xff")]),
        answer(&[(b"\xc0\x1b", TYPE_A, 1, one)]),
    ] {
        assert_eq!(read(&bytes), None, "{bytes:?}");
    }
}

#[test]
fn only_the_answer_to_the_question_counts() {
    let good = answer(&[(OWN, TYPE_A, 30, &[192, 0, 2, 1])]);
    let read = |bytes: &[u8], id, text, kind| read(bytes, id, &name(text), kind);
    assert!(read(&good, 9, "a.example", Kind::A).is_some());
    assert_eq!(read(&good, 8, "a.example", Kind::A), None);
    assert_eq!(read(&good, 9, "b.example", Kind::A), None);
    assert_eq!(read(&good, 9, "a.example", Kind::Aaaa), None);
    assert_eq!(read(&question(9, &name("a.example"), Kind::A), 9, "a.example", Kind::A), None);
    let mut truncated = good.clone();
    truncated[2] |= 2;
    assert_eq!(read(&truncated, 9, "a.example", Kind::A), Some(Answer::Truncated));
    let mut failed = good;
    failed[3] = 2;
    let Some(Answer::Complete(Err(NotFound::Failed(_)))) = read(&failed, 9, "a.example", Kind::A)
    else {
        panic!()
    };
}

proptest! {
    #[test]
    fn nothing_that_arrives_panics(
        bytes in prop::collection::vec(any::<u8>(), 0..200), keep in 0_usize..60,
    ) {
        let good = answer(&[(OWN, TYPE_CNAME, 5, ALIAS), (ALIAS, TYPE_A, 30, &[1, 2, 3, 4])]);
        let mutated = [good.get(..keep).unwrap_or(&good), &bytes].concat();
        let _ = read(&mutated, 9, &name("a.example"), Kind::A);
        for bytes in [mutated, bytes] {
            match Query::parse(&bytes) {
                Ok(query) => {
                    let _ = query.name();
                    prop_assert!(query.answer(&Reply::Denied("x".repeat(500))).len() <= 1232);
                }
                Err(malformed) => prop_assert!(malformed.answer().is_none_or(|answer| answer.len() == 12)),
            }
        }
    }

    #[test]
    fn an_asked_question_is_read_as_it_was_meant(text in "[a-z]{1,9}(\\.[a-z0-9]{1,9}){0,4}\\.x", id: u16) {
        let bytes = question(id, &name(&text), Kind::Aaaa);
        let query = Query::parse(&bytes).unwrap();
        prop_assert_eq!(query.name().unwrap(), name(&text));
        prop_assert_eq!((query.id, query.kind(), query.is_extended), (id, Kind::Aaaa, true));
    }
}
