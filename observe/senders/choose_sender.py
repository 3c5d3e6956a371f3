"""Which sender goes with which endpoint."""

from __future__ import annotations

from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from observe.senders.endpoint import Endpoint
from observe.senders.exchange import Sender


def open_sender(endpoint: Endpoint, path: str) -> Sender:
    """Return the fastest sender that reaches ``endpoint``: bare sockets for plain HTTP, else aiohttp.

    Needs a running loop.
    """
    if is_direct_http(endpoint):
        from observe.senders.socket_sender import SocketSender

        return SocketSender(endpoint, path)
    from observe.senders.aiohttp_sender import AiohttpSender

    return AiohttpSender(endpoint, path)


def is_direct_http(endpoint: Endpoint) -> bool:
    """Say whether the way there is plain HTTP: no TLS, no proxy of the environment, no login in the URL."""
    parts = urlsplit(endpoint.base)
    if parts.scheme != "http" or parts.username is not None:
        return False
    if endpoint.is_loopback or "http" not in getproxies():
        return True
    return bool(proxy_bypass(parts.hostname or ""))
