//! Who may use the content of a volume: each request has the token that the owner of the volume received for it.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, header};
use axum::middleware::Next;
use axum::response::Response;
use stockade_api::{Caller, Problem};
use stockade_core::VolumeName;

use super::super::App;
use super::super::failure::refuse;
use crate::admission::{Terms, admit};
use crate::auth::{Principal, TcpPeer, invalid_volume_token};

/// The volume of a request for content, and on whose behalf the request is executed.
#[derive(Debug, Clone)]
pub(super) struct Admitted {
    pub(super) caller: Caller,
    pub(super) volume: VolumeName,
}

/// The middleware of the routes for content.
pub(in super::super) async fn enter(
    State(app): State<App>,
    request: Request,
    next: Next,
) -> Response {
    let checked = match Claim::of(&request) {
        Some(claim) => claim.check(&app).await,
        None => Err(invalid_volume_token()),
    };
    let (principal, volume) = match checked {
        Ok(checked) => checked,
        Err(problem) => return refuse(problem),
    };
    let serve = |principal: Principal, mut request: Request| async move {
        request.extensions_mut().insert(Admitted { caller: principal.caller, volume });
        next.run(request).await
    };
    let terms = Terms { refuse, ..Terms::OWN };
    admit(&app.watch, principal, request, terms, serve).await
}

/// What a request says that decides about its access.
struct Claim {
    peer: Arc<TcpPeer>,
    token: String,
    volume: VolumeName,
}

impl Claim {
    fn of(request: &Request) -> Option<Self> {
        // Names need no coding in a path.
        let volume = VolumeName::new(request.uri().path().split('/').nth(2)?).ok()?;
        let token = bearer(request.headers())?.to_owned();
        let peer = Arc::clone(request.extensions().get::<Arc<TcpPeer>>()?);
        Some(Self { peer, token, volume })
    }

    async fn check(self, app: &App) -> Result<(Principal, VolumeName), Problem> {
        let Self { peer, token, volume } = self;
        let sandboxes = &*app.sandboxes;
        let principal = app.auth.check_volume_token(sandboxes, &peer, (&token, &volume)).await?;
        Ok((principal, volume))
    }
}

/// The bearer token of a request that has one.
fn bearer(headers: &HeaderMap) -> Option<&str> {
    let mut values = headers.get_all(header::AUTHORIZATION).iter();
    let (scheme, token) = values.next()?.to_str().ok()?.split_once(' ')?;
    let is_only = values.next().is_none();
    (is_only && scheme.eq_ignore_ascii_case("bearer")).then_some(token)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_has_one_bearer_token() {
        let token = |values: &[&str]| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(header::AUTHORIZATION, value.parse().unwrap());
            }
            bearer(&headers).map(str::to_owned)
        };
        assert_eq!(token(&["Bearer a.b"]).as_deref(), Some("a.b"));
        assert_eq!(token(&["bearer a.b"]).as_deref(), Some("a.b"));
        for refused in [&[][..], &["a.b"], &["Basic a.b"], &["Bearer a.b", "Bearer a.b"]] {
            assert_eq!(token(refused), None, "{refused:?}");
        }
    }
}
