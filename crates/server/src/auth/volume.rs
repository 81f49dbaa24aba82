//! The tokens for the content of volumes. Each is for one volume of one owner; it names the API key for which it was made, and
//! ends with the key and with the volume.

use stockade_api::{Problem, Sandboxes, VolumeByName, VolumeRecord};
use stockade_core::{Code, VolumeName};

use super::principal::{HttpAuth, Principal, TcpPeer};
use super::token::LOCAL;

/// Different from the scope of every access token for a port.
const SCOPE: &[u8] = b"e2b volume";

impl HttpAuth {
    /// The token of a principal for the content of its volume.
    pub(crate) fn volume_token(&self, principal: &Principal, volume: &VolumeRecord) -> String {
        let key = principal.key.as_deref().unwrap_or(LOCAL);
        format!("{key}.{}", self.volume_code(key, principal, volume).to_hex())
    }

    /// The principal of a token, if it opens the volume with that name. The response for a volume of another
    /// owner and for one that does not exist is the same.
    pub(crate) async fn check_volume_token(
        &self,
        sandboxes: &dyn Sandboxes,
        peer: &TcpPeer,
        (token, name): (&str, &VolumeName),
    ) -> Result<Principal, Problem> {
        let (key, code) = token.split_once('.').ok_or_else(invalid_volume_token)?;
        let sent = blake3::Hash::from_hex(code).map_err(|_| invalid_volume_token())?;
        let principal = self.principal_of_token(peer, key).await;
        let principal = principal.map_err(|problem| match problem.code {
            Code::Unauthenticated => invalid_volume_token(),
            _ => problem,
        })?;
        let request = VolumeByName { name: name.clone() };
        let volume = sandboxes.find_volume(&principal.caller, request).await;
        let volume = volume.map_err(|problem| match problem.code {
            Code::NotFound => invalid_volume_token(),
            _ => problem,
        })?;
        // Hashes are compared in constant time.
        if sent != self.volume_code(key, &principal, &volume) {
            return Err(invalid_volume_token());
        }
        Ok(principal)
    }

    fn volume_code(&self, key: &str, principal: &Principal, volume: &VolumeRecord) -> blake3::Hash {
        self.code_of([
            key.as_bytes(),
            principal.caller.owner.as_str().as_bytes(),
            volume.name.as_str().as_bytes(),
            // A later volume may have the same name.
            &volume.created_at.as_ms().to_be_bytes(),
            SCOPE,
        ])
    }
}

/// The problem of a request to the content of a volume without a valid token.
pub(crate) fn invalid_volume_token() -> Problem {
    Problem::new(Code::Unauthenticated, "the token of the volume is missing or invalid")
        .because("each request to the content of a volume needs its token as a bearer token")
        .remedied_by("get the volume again, and send its token")
}
