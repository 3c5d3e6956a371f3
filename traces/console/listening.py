"""Where a server of vtwin listens."""

from __future__ import annotations

import os
import socket

from traces.errors import ConfigError


def bound_socket(host: str, port: int) -> socket.socket:
    """Return a socket that listens at ``host`` and ``port``. Raises ConfigError where it cannot."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family, backlog=1024)
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror
        raise ConfigError(
            f"--host, --port: got {host}:{port} ({reason}), expected an address to listen on"
        ) from error
