"""Tokens for SASL OAUTHBEARER (KIP-255): from the user's function, or from a token endpoint (KIP-768).

A token is shared by all connections until 80 % of its lifetime is used; re-authentication (KIP-368) comes later than
that and finds a new one. Fetching blocks, so it runs outside the client's loop. If it fails, the old token is used
while it is valid.
"""

from __future__ import annotations

import base64
import json
import logging
import ssl
import time
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from kafka.net.sasl.oauth import AbstractTokenProvider

from sparkrelay.client.transport.off_loop import off_loop
from sparkrelay.errors import AuthenticationException, DisconnectException

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sparkrelay.client.config import ClientConfig

_log = logging.getLogger(__name__)

_LIFE_USED: Final = 0.8
_LARGEST_ANSWER_BYTES: Final = 1 << 20
_REFUSED: Final = range(400, 500)


@dataclass(frozen=True, slots=True)
class _Token:
    text: str = field(repr=False)
    expires: float  # seconds since 1970, like ``renew``
    renew: float
    extensions: Mapping[str, str]


class TokenSource(AbstractTokenProvider):  # type: ignore[misc]
    """The token of one client's connections. Belongs to the thread that polls the client, whose loop is ``net``."""

    def __init__(self, net: Any, config: ClientConfig) -> None:
        super().__init__()
        self._net = net
        self._config = config
        self._token: _Token | None = None
        self._asking: Any = None

    def token(self) -> str:
        """Return the token, for kafka-python; ``refresh`` has been awaited."""
        assert self._token is not None, "refresh() comes first"
        return self._token.text

    def extensions(self) -> dict[str, str]:
        """Return the SASL extensions, for kafka-python."""
        return dict(self._token.extensions) if self._token is not None else {}

    async def refresh(self) -> None:
        """Ensure that there is a valid token.

        Raises:
            AuthenticationException: the function or the endpoint gives none.
            DisconnectException: the token endpoint is unreachable.
        """
        if self._token is not None and time.time() < self._token.renew:
            return
        if self._asking is None or self._asking.is_done:
            self._asking = off_loop(self._net, self._ask, name=f"oauth-token-{self._config.client_id}")
        try:
            self._token = await self._asking
        except (AuthenticationException, DisconnectException) as error:
            if self._token is None or time.time() >= self._token.expires:
                raise
            _log.warning("no new token; the old one is valid for %.0f s: %s", self._token.expires - time.time(), error)

    def _ask(self) -> _Token:
        now = time.time()
        callback = self._config.oauth_cb
        if callback is None:
            text, expires, extensions = fetch_token(self._config)
        else:
            try:
                answer = callback(self._config.sasl_oauthbearer_config or "")
            except Exception as error:
                raise AuthenticationException(f"oauth_cb raised {error!r}: there is no token to log in with") from error
            text, expires, extensions = _checked(answer)
        if expires <= now:
            raise AuthenticationException(
                f"oauth_cb or the token endpoint gave a token that expired {now - expires:.0f} s ago; the expiry is in "
                "seconds since 1970"
            )
        return _Token(text, expires, now + (expires - now) * _LIFE_USED, extensions)


def _checked(answer: object) -> tuple[str, float, Mapping[str, str]]:
    match answer:
        case (str() as text, int() | float() as expires):
            return text, float(expires), {}
        case (str() as text, int() | float() as expires, str() | None):
            return text, float(expires), {}
        case (str() as text, int() | float() as expires, str() | None, dict() | None as extensions):
            return text, float(expires), {str(name): str(value) for name, value in (extensions or {}).items()}
    shape = [type(part).__name__ for part in answer] if isinstance(answer, tuple) else type(answer).__name__
    raise AuthenticationException(
        f"oauth_cb must return (token, expiry in seconds since 1970[, principal[, extensions]]), not {shape}"
    )


def fetch_token(config: ClientConfig) -> tuple[str, float, Mapping[str, str]]:
    """Request a token from the endpoint (RFC 6749, section 4.4); return it with its expiry and extensions. Blocks.

    Raises:
        AuthenticationException: it refuses us, or its answer has no token.
        DisconnectException: it is unreachable or fails.
    """
    url = config.sasl_oauthbearer_token_endpoint_url or ""
    what = f"sasl.oauthbearer.token.endpoint.url={url.partition('?')[0]}"
    form = {"grant_type": "client_credentials"}
    if config.sasl_oauthbearer_scope:
        form["scope"] = config.sasl_oauthbearer_scope
    secret = config.sasl_oauthbearer_client_secret or ""
    who = f"{config.sasl_oauthbearer_client_id}:{secret}"
    request = urllib.request.Request(  # noqa: S310 - the settings allow http and https only
        url,
        data=urllib.parse.urlencode(form).encode(),
        headers={
            "Authorization": "Basic " + base64.b64encode(who.encode()).decode(),
            "Accept": "application/json",
            "Content-Type": "application/x-www-form-urlencoded",
        },
    )
    timeout = config.socket_connection_setup_timeout_ms / 1000
    asked = time.time()
    try:
        context = ssl.create_default_context(cafile=config.https_ca_location) if url.startswith("https") else None
        with urllib.request.urlopen(request, timeout=timeout, context=context) as answer:  # noqa: S310 - as above
            said = json.loads(answer.read(_LARGEST_ANSWER_BYTES))
        text, seconds = said["access_token"], float(said.get("expires_in", 300))
    except urllib.error.HTTPError as error:
        body = error.read(500).decode(errors="replace").strip()
        if secret:
            body = body.replace(secret, "(hidden)")
        message = f"{what} answers {error.code} {error.reason}: {body}"
        if error.code in _REFUSED:
            raise AuthenticationException(
                f"{message}; are sasl.oauthbearer.client.id={config.sasl_oauthbearer_client_id} and its secret right?"
            ) from error
        raise DisconnectException(message) from error
    except OSError as error:  # including URLError and timeouts
        raise DisconnectException(f"{what} cannot be reached: {error}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise AuthenticationException(f"{what} did not answer with JSON with access_token: {error!r}") from error
    pairs = (pair.partition("=") for pair in (config.sasl_oauthbearer_extensions or "").split(",") if pair.strip())
    return str(text), asked + seconds, {name.strip(): value.strip() for name, _, value in pairs}
