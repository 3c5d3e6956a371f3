"""Which certificates are accepted, and why a connection over TLS was refused, in words."""

from __future__ import annotations

import os
import re
import ssl
import time

from observe.senders.endpoint import Endpoint
from traces import ConfigError

CA_VARIABLE = "SSL_CERT_FILE"
"""Where OpenSSL, curl and Python's clients look for the certificates of authorities."""

_REASON = re.compile(r"\[SSL: (\w+)\]")
_PLAIN = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE")


class TimedHandshake(ssl.SSLObject):
    """One connection's TLS. ``handshake_ns``: how long its handshake took, None until it is over."""

    handshake_ns: int | None = None
    _since_ns: int | None = None

    def do_handshake(self) -> None:
        """Go on with the handshake. Raises SSLWantReadError while the other side has to."""
        if self._since_ns is None:
            self._since_ns = time.monotonic_ns()
        super().do_handshake()
        if self.handshake_ns is None:
            self.handshake_ns = time.monotonic_ns() - self._since_ns


def verification(endpoint: Endpoint) -> ssl.SSLContext:
    """Return a context that times its handshakes.

    It accepts any certificate where none is to be verified, else those of the authorities that OpenSSL knows by
    default, with those of SSL_CERT_FILE in their place where it is set.
    Raises ConfigError for a file without certificates, which OpenSSL would ignore.
    """
    context = ssl.create_default_context()
    context.sslobject_class = TimedHandshake
    if not endpoint.verify_tls:
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        return context
    # From Python 3.13 on it refuses what curl takes: an authority as `openssl req -x509` makes one, without key usage.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if named := os.environ.get(CA_VARIABLE):
        try:
            context.load_verify_locations(cafile=named)
        except OSError as fault:
            why = "no certificate in it" if isinstance(fault, ssl.SSLError) else fault.strerror
            raise ConfigError(
                f"{CA_VARIABLE}: got {named!r} ({why}), expected a file of certificates in PEM"
            ) from fault
    return context


def tls_fault(fault: BaseException) -> str | None:
    """Return one line for a fault of TLS: what was refused and what would help. None for another fault."""
    inner = next((each for each in _causes(fault) if isinstance(each, ssl.SSLError)), None)
    if isinstance(inner, ssl.SSLCertVerificationError):
        why = inner.verify_message.rstrip(".")
        return (
            f"TLS: the server's certificate is refused: {why}; expected one that this machine's authorities signed "
            f"for this host ({CA_VARIABLE}=FILE.pem names other authorities, --insecure takes any certificate)"
        )
    found = _REASON.search(str(inner or fault))
    if inner is None and found is None:
        return None
    reason = found[1] if found else str(inner)
    if reason in _PLAIN:
        return "TLS: the port does not speak TLS, http:// instead of https:// may be meant"
    what = reason.replace("_", " ").lower()
    return f"TLS: {what}; expected a server that takes TLS 1.2 or newer, and no certificate of the client's"


def _causes(fault: BaseException) -> list[BaseException]:
    """Return a fault and what it wraps: by aiohttp in attributes, by Python as its cause."""
    inner = (getattr(fault, "certificate_error", None), getattr(fault, "os_error", None), fault.__cause__)
    return [each for each in (*inner, fault) if isinstance(each, BaseException)]
