//! The keys that sign links to ports of all servers of a cluster: in the database, one for each week, so that
//! a link that one server has signed is valid on each of them.

use stockade_api::{LinkKey, Result};
use stockade_core::{Code, Problem};
use stockade_durable::Store;

use crate::clock::now_ms;
use crate::link_keys::{LINK_MS, SIGNS_MS};
use crate::random::{hex, random};
use crate::store::keys;

/// The prefix of the name of a key in the table of secrets.
const PREFIX: &str = "link-key-";

/// The key for new links.
pub(crate) async fn newest(store: &dyn Store) -> Result<LinkKey> {
    key_of(store, now_ms().div_euclid(SIGNS_MS)).await
}

/// The key with this id, as long as a link of it may be valid.
pub(crate) async fn find(store: &dyn Store, id: &str) -> Result<Option<LinkKey>> {
    let Some(week) = week_of(id) else { return Ok(None) };
    let now = now_ms();
    let oldest = (now - LINK_MS).div_euclid(SIGNS_MS) - 1;
    // The clock of the server that signs may be ahead.
    if !(oldest..=now.div_euclid(SIGNS_MS) + 1).contains(&week) {
        return Ok(None);
    }
    key_of(store, week).await.map(Some)
}

/// The key of a week, which the first server that needs it creates.
async fn key_of(store: &dyn Store, week: i64) -> Result<LinkKey> {
    let id = format!("{week:08x}");
    let new = hex(&random::<32>()?);
    let secret = keys::secret(store, &format!("{PREFIX}{id}"), &new).await?;
    let hash = blake3::Hash::from_hex(&secret).map_err(|error| {
        Problem::new(Code::DatabaseInvalid, "the key of links cannot be read")
            .because(error.to_string())
    })?;
    Ok(LinkKey { id, secret: *hash.as_bytes() })
}

fn week_of(id: &str) -> Option<i64> {
    let is_written =
        id.len() == 8 && id.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    is_written.then(|| i64::from_str_radix(id, 16).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_text_of_a_week_names_one() {
        assert_eq!(week_of("00000b9a"), Some(0xb9a));
        for other in ["", "b9a", "0000 b9a", "+0000b9a", "00000B9A", "000000b9a"] {
            assert_eq!(week_of(other), None, "{other:?}");
        }
    }
}
