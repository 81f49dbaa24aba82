//! `stockade secrets`: the secrets in the vault of the server. A value comes from standard input or a
//! file, never from an argument or a variable, and is printed by no command.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::Path;

use stockade_api::{
    CreateSecret, Empty, ImportSecret, RemoveSecret, RotateSecret, SecretValue, StoredSecret,
    WriteSecretFile,
};
use stockade_core::{Code, Problem};

use super::login::prompt;
use super::print::{notify, print, print_text};
use super::sandbox::find;
use crate::args::secrets::{self, Secrets, SecretsCommand};
use crate::problem::{Failure, caused};
use crate::remote;
use crate::stored_secrets;
use crate::table::Table;
use crate::terminal;

/// The longest input, in bytes.
const MAX_BYTES: u64 = 256 << 10;
/// The type with one field for any text.
const TEXT: &str = "string";

/// Stores, lists, replaces or removes secrets.
pub(super) fn run(arguments: Secrets) -> Result<u8, Failure> {
    match arguments.what {
        SecretsCommand::Set(arguments) => set(arguments),
        SecretsCommand::List(arguments) => list(&arguments),
        SecretsCommand::Rotate(arguments) => rotate(arguments),
        SecretsCommand::Remove(arguments) => remove(arguments),
        SecretsCommand::Write(arguments) => write(arguments),
    }
}

fn set(arguments: secrets::SetSecret) -> Result<u8, Failure> {
    let secrets::SetSecret { name, kind, envelope, recipient_key, common } = arguments;
    let stored = if let (Some(envelope), Some(key)) = (&envelope, &recipient_key) {
        let request = ImportSecret {
            name,
            kind,
            envelope: from_file(envelope)?,
            recipient_key: from_file(key)?,
        };
        remote::with(common.server_mode, async |remote| {
            Ok(remote.sandboxes.import_secret(&remote.idempotent(), request).await?)
        })?
    } else {
        let values = values(&name, &kind)?;
        let request = CreateSecret { name, kind, values };
        remote::with(common.server_mode, async |remote| {
            Ok(remote.sandboxes.create_secret(&remote.idempotent(), request).await?)
        })?
    };
    report(&stored, common.json, "stored")
}

fn list(arguments: &secrets::ListSecrets) -> Result<u8, Failure> {
    let found = remote::with(arguments.common.server_mode, async |remote| {
        Ok(remote.sandboxes.secrets(remote.caller(), Empty {}).await?)
    })?;
    if arguments.common.json {
        print(&found)?;
        return Ok(0);
    }
    if found.secrets.is_empty() {
        notify("no secrets; store one: stockade secrets set NAME");
        return Ok(0);
    }
    let mut table = Table::new(["NAME", "TYPE", "FIELDS", "VERSION", "UPDATED", "ID"]);
    for secret in &found.secrets {
        table.row([
            secret.name.clone(),
            secret.kind.clone(),
            secret.fields.join(","),
            secret.version.to_string(),
            format!("{:.0}", secret.updated_at),
            secret.id.clone(),
        ]);
    }
    print_text(&table.text())?;
    Ok(0)
}

fn rotate(arguments: secrets::RotateSecret) -> Result<u8, Failure> {
    let secrets::RotateSecret { name, common } = arguments;
    let input = read_value(false, &name)?;
    let rotated = remote::with(common.server_mode, async |remote| {
        let all = remote.sandboxes.secrets(remote.caller(), Empty {}).await?;
        let known = all.secrets.iter().find(|secret| secret.id == name || secret.name == name);
        let kind = known.map_or(TEXT, |secret| secret.kind.as_str());
        let request = RotateSecret { id: name, values: as_fields(kind, input)? };
        Ok(remote.sandboxes.rotate_secret(&remote.idempotent(), request).await?)
    })?;
    report(&rotated, common.json, "rotated")
}

fn remove(arguments: secrets::RemoveSecret) -> Result<u8, Failure> {
    let secrets::RemoveSecret { name, common } = arguments;
    let request = RemoveSecret { id: name.clone() };
    let removed = remote::with(common.server_mode, async |remote| {
        Ok(remote.sandboxes.remove_secret(&remote.idempotent(), request).await?)
    })?;
    if common.json {
        print(&removed)?;
    } else {
        notify(&format!("removed {name}"));
    }
    Ok(0)
}

fn write(arguments: secrets::WriteSecret) -> Result<u8, Failure> {
    let secrets::WriteSecret { secret, id, path, user, common } = arguments;
    let secret = stored_secrets::reference(&secret)?;
    let written = remote::with(common.server_mode, async |remote| {
        let request = WriteSecretFile {
            sandbox_id: find(&remote, &id).await?,
            path: path.into_bytes().into(),
            secret,
            mode: None,
            uid: user.map(|user| user.user),
            gid: user.map(|user| user.group),
        };
        Ok(remote.sandboxes.write_secret_file(&remote.idempotent(), request).await?)
    })?;
    if common.json {
        print(&written)?;
    }
    Ok(0)
}

fn report(secret: &StoredSecret, json: bool, what: &str) -> Result<u8, Failure> {
    if json {
        print(secret)?;
    } else {
        let StoredSecret { name, version, .. } = secret;
        notify(&format!("{what} the secret {name}, version {version}"));
    }
    Ok(0)
}

/// The fields of a new secret.
fn values(name: &str, kind: &str) -> Result<BTreeMap<String, SecretValue>, Problem> {
    as_fields(kind, read_value(true, name)?)
}

/// The fields in an input: a JSON object of them or, for a type with one field, its value.
fn as_fields(kind: &str, input: SecretValue) -> Result<BTreeMap<String, SecretValue>, Problem> {
    if kind != TEXT && input.0.trim_start().starts_with('{') {
        // The error of the parser could contain what it has read.
        let fields = serde_json::from_str::<BTreeMap<String, SecretValue>>(&input.0);
        return fields.map_err(|_| {
            Problem::new(Code::InvalidInput, "the input is no JSON object with texts")
        });
    }
    let field = match kind {
        TEXT => "value",
        "0g" | "ssh" => "privateKey",
        _ => "apiKey",
    };
    Ok([(field.to_owned(), input)].into())
}

/// The value from standard input, without the end of its last line. `is_new` is not set for the next
/// version of a secret.
fn read_value(is_new: bool, name: &str) -> Result<SecretValue, Problem> {
    let mut text = SecretValue::new(String::with_capacity(4096));
    let read = if terminal::is_on_input() {
        prompt(&format!("value of {name}: "), &mut text)
    } else {
        std::io::stdin().lock().take(MAX_BYTES + 1).read_to_string(&mut text.0).map(drop)
    };
    read.map_err(|error| caused(Code::InvalidInput, &error))?;
    checked(text, "standard input").map_err(|problem| match problem.remediation {
        Some(_) => problem,
        None if is_new => problem.remedied_by(format!("stockade secrets set {name} < FILE")),
        None => problem.remedied_by(format!("stockade secrets rotate {name} < FILE")),
    })
}

fn from_file(path: &Path) -> Result<SecretValue, Problem> {
    let mut text = SecretValue::new(String::with_capacity(4096));
    let opened = std::fs::File::open(path);
    let read = opened.and_then(|file| file.take(MAX_BYTES + 1).read_to_string(&mut text.0));
    let place = path.display().to_string();
    read.map_err(|error| {
        let message = format!("cannot read {place}");
        Problem::new(Code::InvalidInput, message).because(error.to_string())
    })?;
    checked(text, &place)
}

fn checked(text: SecretValue, place: &str) -> Result<SecretValue, Problem> {
    if text.0.len() as u64 > MAX_BYTES {
        let message = format!("the value from {place} is longer than {MAX_BYTES} bytes");
        return Err(Problem::new(Code::InvalidInput, message));
    }
    let value = text.0.strip_suffix('\n').unwrap_or(&text.0);
    let value = value.strip_suffix('\r').unwrap_or(value);
    if value.is_empty() {
        return Err(Problem::new(Code::InvalidInput, format!("there is no value in {place}")));
    }
    Ok(SecretValue::new(value))
}
