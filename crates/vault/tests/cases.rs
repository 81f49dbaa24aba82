//! The cases of sealed messages: the predecessor's form, and what an envelope is bound to.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests fail by panicking, as tests do"
)]

#[path = "../../../tests/cases/support.rs"]
mod support;

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use stockade_core::{Code, OwnerId, Problem};
use stockade_vault::{
    Batch, Context, Envelope, Fields, Kind, Label, PredecessorEnvelope, PredecessorKey,
};
use support::{Case, drive, no_driver, same};
use zeroize::Zeroizing;

const TEST: &str = "crates/vault/tests/cases.rs::sealed_messages";

#[test]
fn sealed_messages() {
    drive(TEST, "secrets.json", |case| match case.name.as_str() {
        "wire compatibility with the FireFlow predecessor" => {
            let fields = opened(&wire(case), case).map_err(|problem| problem.message)?;
            let expected: BTreeMap<String, String> =
                serde_json::from_str(text(&case.given["vector"]["plaintext_json"])).unwrap();
            for (name, value) in expected {
                same(&value, &**fields.get(Some(&name)).unwrap())?;
            }
            Ok(())
        }
        "flip last byte of encrypted" => flipped(case),
        "compressed point 33 bytes" => compressed(),
        "nonce not 32 bytes, encrypted shorter than 28 bytes, bad base64, extra keys" => {
            malformed()
        }
        "envelope bound to its context" => bound(),
        _ => no_driver(),
    });
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap()
}

fn wire(case: &Case) -> Value {
    case.given["vector"]["wire"].clone()
}

/// The envelope of the vector, for the cases that change it.
fn vector() -> Value {
    let cases = std::fs::read_to_string(
        std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/cases/secrets.json"),
    );
    let cases: Vec<Value> = serde_json::from_str(&cases.unwrap()).unwrap();
    cases[0]["given"]["vector"].clone()
}

fn opened(wire: &Value, case: &Case) -> Result<Fields, Problem> {
    opened_by(wire, &case.given["vector"])
}

fn opened_by(wire: &Value, vector: &Value) -> Result<Fields, Problem> {
    let envelope = PredecessorEnvelope::parse(wire.to_string().as_bytes())?;
    let key = PredecessorKey::parse(text(&vector["recipient_private_scalar_b64url"]))?;
    let kind: Kind = text(&vector["secretType"]).parse()?;
    Ok(envelope.open(&key, kind)?)
}

fn flipped(case: &Case) -> Result<(), String> {
    let length = STANDARD.decode(text(&wire(case)["encrypted"])).unwrap().len();
    // Each byte counts, the last one as the case says.
    for at in 0..length {
        let mut changed = wire(case);
        let mut bytes = STANDARD.decode(text(&changed["encrypted"])).unwrap();
        bytes[at] ^= 1;
        changed["encrypted"] = json!(STANDARD.encode(bytes));
        let refused = opened(&changed, case).err().map(|problem| problem.code);
        same(Some(Code::DecryptFailed), refused)?;
    }
    Ok(())
}

fn compressed() -> Result<(), String> {
    let vector = vector();
    let mut changed = vector["wire"].clone();
    let point = STANDARD.decode(text(&changed["publicKey"])).unwrap();
    let sign = 2 + (point[64] & 1);
    let compressed = [&[sign], &point[1..33]].concat();
    let mut off_the_curve = point;
    off_the_curve[64] ^= 1;
    for bad in [compressed, off_the_curve, vec![4; 65], vec![0], Vec::new()] {
        changed["publicKey"] = json!(STANDARD.encode(bad));
        let refused = opened_by(&changed, &vector).err().map(|problem| problem.code);
        same(Some(Code::InvalidKey), refused)?;
    }
    for key in ["", "AA", "not base64", text(&vector["recipient_public_raw_b64"])] {
        let refused = PredecessorKey::parse(key).err().map(|error| Problem::from(error).code);
        same(Some(Code::InvalidKey), refused)?;
    }
    Ok(())
}

fn malformed() -> Result<(), String> {
    let vector = vector();
    let of = |length: usize| json!(STANDARD.encode(vec![7_u8; length]));
    for (member, value, named) in [
        ("hkdfNonce", of(31), "hkdfNonce"),
        ("hkdfNonce", of(33), "hkdfNonce"),
        ("encrypted", of(27), "encrypted"),
        ("encrypted", json!("canary*7f3a"), "encrypted"),
        ("hkdfNonce", json!("canary*7f3a"), "hkdfNonce"),
        ("publicKey", json!("canary*7f3a"), "publicKey"),
        ("canary-7f3a", json!("x"), "members"),
        ("encrypted", json!(["canary-7f3a"]), "members"),
    ] {
        let mut changed = vector["wire"].clone();
        changed[member] = value;
        let problem = opened_by(&changed, &vector).err().unwrap();
        same(Code::InvalidEnvelope, problem.code)?;
        let told = format!("{problem:?}");
        same((true, false), (told.contains(named), told.contains("canary")))?;
    }
    Ok(())
}

fn bound() -> Result<(), String> {
    let context = |sandbox: &str, operation: &str, batch: &str| Context {
        sandbox: sandbox.to_owned(),
        operation: operation.to_owned(),
        batch: batch.to_owned(),
    };
    let label = |secret: &str, owner: &str, version| Label {
        secret: secret.to_owned(),
        version,
        owner: OwnerId::new(owner).unwrap(),
        name: "name".to_owned(),
        kind: Kind::Text,
    };
    let value = Zeroizing::new("canary-7f3a".to_owned());
    let values = BTreeMap::from([("value".to_owned(), value)]);
    let fields = Fields::new(Kind::Text, values).unwrap();
    let batch = Batch::new(context("s1", "o1", "b1"));
    let own = label("A", "u1", 1);
    let seal = |to: &Batch, context: &Context, label: &Label| {
        Envelope::seal(&to.key(), context, label, &fields).unwrap()
    };
    let sealed = seal(&batch, batch.context(), &own);
    same("canary-7f3a", batch.open(&own, &sealed).unwrap().get(None).unwrap())?;
    let refused = |opened: Result<Fields, stockade_vault::Error>| {
        same(Some(Code::DecryptFailed), opened.err().map(|error| Problem::from(error).code))
    };
    for other in [label("B", "u1", 1), label("A", "u2", 1), label("A", "u1", 2)] {
        refused(batch.open(&other, &sealed))?;
    }
    for other in [context("s2", "o1", "b1"), context("s1", "o2", "b1"), context("s1", "o1", "b2")] {
        refused(batch.open(&own, &seal(&batch, &other, &own)))?;
    }
    // Another key pair, also for the same use.
    refused(Batch::new(context("s1", "o1", "b1")).open(&own, &sealed))?;
    // Two parts cannot be cut elsewhere.
    refused(batch.open(&own, &seal(&batch, &context("s1o", "1", "b1"), &own)))
}
