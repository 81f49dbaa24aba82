//! Signed links: each is for one port of one sandbox until a time, and takes the place of the port in
//! its path: `PORT~EXPIRES~KEY~SIGNER~SIGNATURE`. The signature is an HMAC with SHA-256 of all that it
//! is for. A link names the API key for which it was made, so that it ends with the key.

use std::time::{SystemTime, UNIX_EPOCH};

use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;
use stockade_api::{LINK_SECONDS, LinkKey, PortAccess, Problem, Sandbox, Sandboxes};
use stockade_core::{Code, SandboxId};

use super::principal::{HttpAuth, Principal, TcpPeer};
use super::token::{LOCAL, refuse_terminated};

/// Separates the parts of a link.
const SEPARATOR: char = '~';
/// What is signed with the same key for another purpose begins otherwise.
const PURPOSE: &[u8] = b"stockade link to a port 1";

/// Whether a part of a path is meant to be a link.
pub(crate) fn is_link(part: &str) -> bool {
    part.contains(SEPARATOR)
}

/// What a link claims.
#[derive(Debug, PartialEq, Eq)]
struct Claims<'a> {
    port: u16,
    /// In seconds since 1970.
    expires: u64,
    key: &'a str,
    signer: &'a str,
    signature: [u8; 32],
}

impl<'a> Claims<'a> {
    fn parse(part: &'a str) -> Option<Self> {
        let mut parts = part.split(SEPARATOR);
        let mut next = || parts.next();
        let (port, expires) = (next()?, next()?);
        let claims = Self {
            port: port.parse().ok().filter(|it: &u16| it.to_string() == port)?,
            expires: expires.parse().ok().filter(|it: &u64| it.to_string() == expires)?,
            key: next()?,
            signer: next()?,
            signature: unhex(next()?)?,
        };
        next().is_none().then_some(claims)
    }
}

fn unhex(text: &str) -> Option<[u8; 32]> {
    // Upper-case digits would be another text for the same signature.
    blake3::Hash::from_hex(text).ok().filter(|hash| *hash.to_hex() == *text).map(Into::into)
}

impl HttpAuth {
    /// The part of a path that opens a port of the principal's sandbox until a time, in seconds since
    /// 1970.
    pub(crate) async fn sign_link(
        &self,
        ports: &dyn PortAccess,
        principal: &Principal,
        sandbox: &Sandbox,
        (port, expires): (u16, u64),
    ) -> Result<String, Problem> {
        let now = now_seconds();
        if expires <= now || expires > now.saturating_add_signed(LINK_SECONDS) {
            let days = LINK_SECONDS / 86_400;
            let message = format!("a link expires in the next {days} days, in seconds since 1970");
            return Err(Problem::new(Code::InvalidInput, message));
        }
        let key = principal.key.as_deref().unwrap_or(LOCAL);
        let signer = ports.newest_link_key().await?;
        let signature = blake3::Hash::from(sign(&signer, key, sandbox, (port, expires))?);
        Ok(format!("{port}~{expires}~{key}~{}~{}", signer.id, signature.to_hex()))
    }

    /// The principal, the sandbox and the port of a link, if it is valid now.
    pub(crate) async fn check_link(
        &self,
        sandboxes: &dyn Sandboxes,
        ports: &dyn PortAccess,
        peer: &TcpPeer,
        (id, part): (&SandboxId, &str),
    ) -> Result<(Principal, Sandbox, u16), Problem> {
        let claims = Claims::parse(part).ok_or_else(invalid_link)?;
        if claims.expires <= now_seconds() {
            return Err(invalid_link());
        }
        let found = self.find_target(sandboxes, peer, claims.key, id).await;
        let (principal, sandbox) = found.map_err(|problem| match problem.code {
            Code::Unauthenticated => invalid_link(),
            _ => problem,
        })?;
        let signer = ports.find_link_key(claims.signer).await?.ok_or_else(invalid_link)?;
        let mac = mac(&signer, claims.key, &sandbox, (claims.port, claims.expires))?;
        // The comparison takes the same time for each signature.
        mac.verify_slice(&claims.signature).map_err(|_| invalid_link())?;
        refuse_terminated(&sandbox)?;
        Ok((principal, sandbox, claims.port))
    }
}

fn sign(
    signer: &LinkKey,
    key: &str,
    sandbox: &Sandbox,
    target: (u16, u64),
) -> Result<[u8; 32], Problem> {
    Ok(mac(signer, key, sandbox, target)?.finalize().into_bytes().into())
}

fn mac(
    signer: &LinkKey,
    key: &str,
    sandbox: &Sandbox,
    (port, expires): (u16, u64),
) -> Result<Hmac<Sha256>, Problem> {
    let mac = Hmac::<Sha256>::new_from_slice(&signer.secret);
    let mut mac = mac.map_err(|error| Problem::caused(Code::Io, &error))?;
    let created_at = sandbox.created_at.as_ms().to_be_bytes();
    let fields: [&[u8]; 7] = [
        PURPOSE,
        key.as_bytes(),
        sandbox.owner_id.as_str().as_bytes(),
        sandbox.id.as_str().as_bytes(),
        // A later sandbox may have the same id.
        &created_at,
        &port.to_be_bytes(),
        &expires.to_be_bytes(),
    ];
    for field in fields {
        mac.update(&(field.len() as u64).to_be_bytes());
        mac.update(field);
    }
    Ok(mac)
}

fn now_seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

fn invalid_link() -> Problem {
    Problem::new(Code::Unauthenticated, "the link is invalid or has expired")
        .because("a link is for one port of one sandbox, until a time")
        .remedied_by("request the endpoint of the port again, with `expires`")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_has_one_form() {
        let signature = "0".repeat(64);
        let link = format!("8000~99~key-1~ab~{signature}");
        let claims = Claims::parse(&link).unwrap();
        assert_eq!((claims.port, claims.expires, claims.key), (8000, 99, "key-1"));
        for bad in [
            "",
            "8000",
            "8000~99~key-1~ab",
            &format!("08000~99~key-1~ab~{signature}"),
            &format!("+8000~99~key-1~ab~{signature}"),
            &format!("8000~099~key-1~ab~{signature}"),
            &format!("70000~99~key-1~ab~{signature}"),
            &format!("8000~99~key-1~ab~{}", "A".repeat(64)),
            &format!("8000~99~key-1~ab~{}", "0".repeat(63)),
            &format!("8000~99~key-1~ab~{signature}~"),
        ] {
            assert_eq!(Claims::parse(bad), None, "{bad}");
        }
    }
}
