//! Access tokens: each is for one port of one sandbox, or for an interface of it, and is derived from the secret of the server.
//! It names the API key for which it was made, so that it ends with the key.

use stockade_api::{GetSandbox, ListSandboxes, Problem, Sandbox, SandboxList, Sandboxes};
use stockade_core::{Code, SandboxId, State};

use super::principal::{HttpAuth, Principal, TcpPeer};
use super::public::PUBLIC;

/// The headers in which clients send an access token, for each kind of port.
pub(crate) const TOKEN_HEADERS: [&str; 3] =
    ["x-execd-access-token", "opensandbox-egress-auth", "opensandbox-secure-access"];

/// The headers of the same kind that clients of E2B send.
pub(crate) const E2B_TOKEN_HEADERS: [&str; 2] = ["x-access-token", "e2b-traffic-access-token"];

/// Stands for the user of the server, who has no key.
pub(super) const LOCAL: &str = "local";

/// What a token opens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scope {
    /// One port.
    Port(u16),
    /// The interface for commands and files of E2B, but no program that listens on its port.
    Envd,
    /// Every port on which a program of the sandbox can listen, and the interface for code of E2B.
    EveryPort,
}

impl Scope {
    /// Different for different scopes.
    fn name(self) -> Vec<u8> {
        match self {
            Self::Port(port) => port.to_be_bytes().to_vec(),
            Self::Envd => b"e2b envd".to_vec(),
            Self::EveryPort => b"e2b ports".to_vec(),
        }
    }
}

impl HttpAuth {
    /// The access token of a principal for its sandbox.
    pub(crate) fn token(&self, principal: &Principal, sandbox: &Sandbox, scope: Scope) -> String {
        let key = principal.key.as_deref().unwrap_or(LOCAL);
        format!("{key}.{}", self.code(key, sandbox, scope).to_hex())
    }

    /// The principal and the sandbox of an access token, if it opens that of that sandbox. The
    /// response for a sandbox of another owner and for one that does not exist is the same.
    pub(crate) async fn check_token(
        &self,
        sandboxes: &dyn Sandboxes,
        peer: &TcpPeer,
        token: &str,
        (id, scope): (&SandboxId, Scope),
    ) -> Result<(Principal, Sandbox), Problem> {
        let (key, code) = token.split_once('.').ok_or_else(invalid_token)?;
        let (principal, sandbox) = self.find_target(sandboxes, peer, key, id).await?;
        let sent = blake3::Hash::from_hex(code).map_err(|_| invalid_token())?;
        // Hashes are compared in constant time.
        if sent != self.code(key, &sandbox, scope) {
            return Err(invalid_token());
        }
        refuse_terminated(&sandbox)?;
        Ok((principal, sandbox))
    }

    /// The principal of a token or link that names this API key, and its sandbox.
    pub(super) async fn find_target(
        &self,
        sandboxes: &dyn Sandboxes,
        peer: &TcpPeer,
        key: &str,
        id: &SandboxId,
    ) -> Result<(Principal, Sandbox), Problem> {
        let principal = self.principal_of_token(peer, key).await;
        let principal = principal.map_err(|problem| match problem.code {
            Code::Unauthenticated => invalid_token(),
            _ => problem,
        })?;
        let request = GetSandbox { id: id.clone(), metrics: false };
        let sandbox = sandboxes.get_status(&principal.caller, request).await;
        let sandbox = sandbox.map_err(|problem| match problem.code {
            Code::NotFound => invalid_token(),
            _ => problem,
        })?;
        Ok((principal, sandbox))
    }

    /// The principal of a token that names this API key, or the user of the server.
    pub(super) async fn principal_of_token(
        &self,
        peer: &TcpPeer,
        key: &str,
    ) -> Result<Principal, Problem> {
        match key {
            LOCAL => self.user(peer).await,
            key => self.principal_of_key(key, peer).await,
        }
    }

    /// Remembers a sandbox, if its ports are public.
    pub(crate) fn note_public(&self, principal: &Principal, sandbox: &Sandbox) {
        if sandbox.metadata.contains_key(PUBLIC) {
            self.public.add(&sandbox.id, self.token(principal, sandbox, Scope::EveryPort));
        }
    }

    /// The token for the ports of a sandbox, if they are public. It must be checked like one that was sent.
    pub(crate) async fn public_token(
        &self,
        sandboxes: &dyn Sandboxes,
        id: &SandboxId,
    ) -> Result<Option<String>, Problem> {
        self.public.loaded.get_or_try_init(|| self.load_public(sandboxes)).await?;
        Ok(self.public.token(id))
    }

    async fn load_public(&self, sandboxes: &dyn Sandboxes) -> Result<(), Problem> {
        for principal in self.principals(sandboxes).await? {
            let mut request = ListSandboxes::default();
            loop {
                let SandboxList { sandboxes: found, more } =
                    sandboxes.list(&principal.caller, request.clone()).await?;
                request.after = found.last().map(|sandbox| sandbox.id.clone());
                found.iter().for_each(|sandbox| self.note_public(&principal, sandbox));
                if !more || request.after.is_none() {
                    break;
                }
            }
        }
        Ok(())
    }

    fn code(&self, key: &str, sandbox: &Sandbox, scope: Scope) -> blake3::Hash {
        // A later sandbox may have the same id.
        let created_at = sandbox.created_at.as_ms().to_be_bytes();
        let scope = scope.name();
        self.code_of([
            key.as_bytes(),
            sandbox.owner_id.as_str().as_bytes(),
            sandbox.id.as_str().as_bytes(),
            &created_at,
            &scope,
        ])
    }

    /// The part of a token that only this server can make: the key, the owner, what it opens, when that was created,
    /// and in which way it opens it.
    pub(super) fn code_of(&self, fields: [&[u8]; 5]) -> blake3::Hash {
        let mut hasher = blake3::Hasher::new_keyed(&self.token_secret);
        for field in fields {
            hasher.update(&(field.len() as u64).to_be_bytes()).update(field);
        }
        hasher.finalize()
    }
}

pub(super) fn refuse_terminated(sandbox: &Sandbox) -> Result<(), Problem> {
    if sandbox.state != State::Terminated {
        return Ok(());
    }
    let message = format!("the sandbox {} is terminated", sandbox.id);
    Err(Problem::new(Code::SandboxTerminated, message))
}

/// The problem of a request to a port of a sandbox without a valid token.
pub(crate) fn invalid_token() -> Problem {
    Problem::new(Code::Unauthenticated, "the access token is missing or invalid")
        .because("each request to a port of a sandbox needs the headers of its endpoint")
        .remedied_by("request the endpoint of the port again, and send its headers")
}
