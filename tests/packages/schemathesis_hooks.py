"""The check of the OpenAPI document's test: a request may be refused in any way, but never fails."""

import os

import schemathesis

# A request without one of them, or about another sandbox, is one of the variants, and is refused.
CREDENTIALS = {"open-sandbox-api-key", "x-execd-access-token", "opensandbox-egress-auth"}
SANDBOX = os.environ["STOCKADE_TEST_SANDBOX"]


@schemathesis.check
def is_answered(ctx, response, case):
    # 501 names what is not available; 502 and 503 are about programs on a port of the sandbox.
    if response.status_code >= 500 and response.status_code not in (501, 502, 503):
        raise AssertionError(f"{response.status_code}: {response.text[:300]}")
    sent = {name.lower() for name in response.request.headers}
    is_named = SANDBOX in case.path_parameters.values() or "{id}" not in case.path
    # Those of other protocols have credentials of their own.
    is_own = is_named and case.path.startswith("/v1/")
    if response.status_code == 401 and CREDENTIALS <= sent and is_own:
        raise AssertionError("the request was not authenticated")
