"""TLS: the context of a client's connections, and the meaning of failed handshakes in terms of settings.

The context is created once for a client, before any connection: a missing or broken certificate file is an error in the
settings, so a retry is pointless. Refused: kafka-python's own (created for each connection, 10 ms of CPU with the
system's authorities; a missing file looks like a broker that is away).
"""

from __future__ import annotations

import contextlib
import os
import ssl
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from sparkrelay.errors import ConfigException

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sparkrelay.client.config import ClientConfig

#: OpenSSL's verification results.
_EXPIRED: Final = frozenset({9, 10, 11, 12})
_NAME: Final = frozenset({62, 63, 64})
_UNTRUSTED: Final = frozenset({2, 18, 19, 20, 21, 27})
_REVOKED: Final = frozenset({3, 23})


def make_context(config: ClientConfig) -> ssl.SSLContext | None:
    """Return the context for TLS connections, None without TLS.

    Raises:
        ConfigException: a file is missing or malformed; the message names the setting.
    """
    if config.security_protocol not in {"SSL", "SASL_SSL"}:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = config.ssl_endpoint_identification_algorithm == "https"
    if not config.enable_ssl_certificate_verification:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    _load_authorities(context, config)
    _load_certificate(context, config)
    if config.ssl_crl_location:
        with _naming("ssl.crl.location", config.ssl_crl_location):
            context.load_verify_locations(config.ssl_crl_location)
        context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF
    return context


def _load_authorities(context: ssl.SSLContext, config: ClientConfig) -> None:
    if config.ssl_ca_location:
        with _naming("ssl.ca.location", config.ssl_ca_location):
            if Path(config.ssl_ca_location).is_dir():
                context.load_verify_locations(capath=config.ssl_ca_location)
            else:
                context.load_verify_locations(cafile=config.ssl_ca_location)
    elif config.ssl_ca_pem:
        with _naming("ssl.ca.pem", "(text)"):
            context.load_verify_locations(cadata=config.ssl_ca_pem)
    else:
        context.load_default_certs()


def _load_certificate(context: ssl.SSLContext, config: ClientConfig) -> None:
    if not (config.ssl_certificate_location or config.ssl_certificate_pem):
        return
    with contextlib.ExitStack() as files:
        certificate = config.ssl_certificate_location or files.enter_context(_file(config.ssl_certificate_pem or ""))
        key = config.ssl_key_location
        if not key and config.ssl_key_pem:
            key = files.enter_context(_file(config.ssl_key_pem))
        where = f"{config.ssl_certificate_location or '(text)'}, ssl.key.location={config.ssl_key_location or '(text)'}"
        # Without a password OpenSSL would ask for one at the terminal.
        with _naming("ssl.certificate.location", where, hint="; is ssl.key.password right, and are they a pair?"):
            context.load_cert_chain(certificate, key, password=config.ssl_key_password or "")


@contextlib.contextmanager
def _file(text: str) -> Iterator[str]:
    """Write PEM text to a temporary file: Python loads client certificates from files only."""
    descriptor, path = tempfile.mkstemp(suffix=".pem")  # readable by us only
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(text)
        yield path
    finally:
        Path(path).unlink()


@contextlib.contextmanager
def _naming(key: str, value: str, *, hint: str = "") -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        if isinstance(error, FileNotFoundError | PermissionError | IsADirectoryError):
            raise ConfigException(f"{key}={value}: {error.strerror}") from error
        raise ConfigException(f"{key}={value} cannot be used, give a PEM file: {error}{hint}") from error


def explain(error: ssl.SSLError, config: ClientConfig, host: str) -> str | None:
    """Return the meaning of a TLS error and the setting to check; None if a retry may help."""
    if isinstance(error, ssl.SSLEOFError | ssl.SSLZeroReturnError):
        return None
    if isinstance(error, ssl.SSLCertVerificationError):
        return _explain_certificate(error, config, host)
    reason = (error.reason or "").upper()
    if "WRONG_VERSION_NUMBER" in reason or "RECORD_LAYER" in reason or "UNKNOWN_PROTOCOL" in reason:
        return (
            f"the port does not speak TLS, or only other versions; security.protocol={config.security_protocol} is "
            f"for a TLS port ({error})"
        )
    if "ALERT" in reason:
        if config.ssl_certificate_location or config.ssl_certificate_pem:
            return (
                f"the broker refuses our certificate, ssl.certificate.location="
                f"{config.ssl_certificate_location or '(text)'}: is it signed by an authority that the broker trusts, "
                f"and not expired? ({error})"
            )
        return (
            "the broker refuses us, perhaps because it wants a client certificate: give ssl.certificate.location and "
            f"ssl.key.location ({error})"
        )
    return f"TLS failed: {error}"


def _explain_certificate(error: ssl.SSLCertVerificationError, config: ClientConfig, host: str) -> str:
    said = f"({error.verify_message}: {error})"
    authorities = config.ssl_ca_location or ("(text)" if config.ssl_ca_pem else "the system's")
    if error.verify_code in _NAME:
        return (
            f"the broker's certificate is not for {host}: connect by a name in it, or, if you trust the network, "
            f"set ssl.endpoint.identification.algorithm=none {said}"
        )
    if error.verify_code in _EXPIRED:
        return f"the broker's certificate, or that of an authority, is expired or not valid yet: renew it {said}"
    if error.verify_code in _REVOKED:
        return (
            "the broker's certificate is revoked, or the revocation list is from another authority: "
            f"ssl.crl.location={config.ssl_crl_location} {said}"
        )
    if error.verify_code in _UNTRUSTED:
        return (
            f"no authority of ssl.ca.location={authorities} signed the broker's certificate: give the "
            f"file of the authority that signed it {said}"
        )
    return f"the broker's certificate is refused {said}"
