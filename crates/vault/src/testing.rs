//! Secrets for tests.

use std::collections::BTreeMap;

use stockade_core::OwnerId;
use zeroize::Zeroizing;

use crate::batch::Label;
use crate::fields::Fields;
use crate::kind::Kind;

pub(crate) fn label(secret: &str, owner: &str) -> Label {
    let owner = OwnerId::new(owner).unwrap();
    Label {
        secret: secret.to_owned(),
        version: 1,
        owner,
        name: "name".to_owned(),
        kind: Kind::Text,
    }
}

pub(crate) fn fields(value: &str) -> Fields {
    let values = BTreeMap::from([("value".to_owned(), Zeroizing::new(value.to_owned()))]);
    Fields::new(Kind::Text, values).unwrap()
}
