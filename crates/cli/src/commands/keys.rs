//! `stockade keys`: the API keys of the server.

use stockade_api::{ApiKey, CreateKey, ListKeys, RevokeKey};
use stockade_core::{Code, OwnerId};

use super::print::{notify, print, print_text};
use crate::args::serve::{self, Keys, KeysCommand};
use crate::problem::{Failure, caused};
use crate::remote;
use crate::table::Table;

/// Creates, lists or revokes keys.
pub(super) fn run(arguments: Keys) -> Result<u8, Failure> {
    match arguments.what {
        KeysCommand::Create(arguments) => create(arguments),
        KeysCommand::List(arguments) => list(&arguments),
        KeysCommand::Revoke(arguments) => revoke(arguments),
    }
}

fn create(arguments: serve::CreateKey) -> Result<u8, Failure> {
    let owner = arguments.owner.map(OwnerId::new).transpose();
    let request = CreateKey {
        name: arguments.name,
        owner_id: owner.map_err(|error| caused(Code::InvalidInput, &error))?,
        admin: arguments.admin,
        expires_in_seconds: arguments.expires.map(|expires| expires.as_secs_f64()),
    };
    let created = remote::with(arguments.common.server_mode, async |remote| {
        Ok(remote.sandboxes.create_key(&remote.idempotent(), request).await?)
    })?;
    if arguments.common.json {
        print(&created)?;
    } else {
        print_text(&format!("{}\n", created.key))?;
        let ApiKey { id, owner_id, .. } = &created.properties;
        notify(&format!("this is the key {id} of {owner_id}; it is not shown again"));
    }
    Ok(0)
}

fn list(arguments: &serve::ListKeys) -> Result<u8, Failure> {
    let request = ListKeys { all: arguments.all };
    let found = remote::with(arguments.common.server_mode, async |remote| {
        Ok(remote.sandboxes.keys(remote.caller(), request).await?)
    })?;
    if arguments.common.json {
        print(&found)?;
        return Ok(0);
    }
    if found.keys.is_empty() {
        notify("no keys; create one: stockade keys create");
        return Ok(0);
    }
    let mut table = Table::new(["ID", "NAME", "OWNER", "SCOPE", "CREATED", "EXPIRES", "REVOKED"]);
    let time = |time: Option<stockade_core::Time>| {
        time.map_or_else(|| "-".to_owned(), |time| format!("{time:.0}"))
    };
    for key in &found.keys {
        table.row([
            key.id.clone(),
            key.name.clone().unwrap_or_else(|| "-".to_owned()),
            key.owner_id.to_string(),
            if key.admin { "admin" } else { "-" }.to_owned(),
            format!("{:.0}", key.created_at),
            time(key.expires_at),
            time(key.revoked_at),
        ]);
    }
    print_text(&table.text())?;
    Ok(0)
}

fn revoke(arguments: serve::RevokeKey) -> Result<u8, Failure> {
    let request = RevokeKey { id: arguments.id };
    let revoked = remote::with(arguments.common.server_mode, async |remote| {
        Ok(remote.sandboxes.revoke_key(&remote.idempotent(), request).await?)
    })?;
    if arguments.common.json {
        print(&revoked)?;
    } else {
        notify(&format!("revoked {}", revoked.id));
    }
    Ok(0)
}
