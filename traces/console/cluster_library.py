"""Finding Dask or Ray, and refusing a cluster that is not there: for every command that runs on many machines."""

from __future__ import annotations

import socket
from importlib import import_module
from typing import Any, Final, Literal
from urllib.parse import urlsplit

from traces.errors import ConfigError, cut, quoted

ClusterName = Literal["dask", "ray"]
_MODULES: Final = {"dask": "distributed", "ray": "ray"}
PATIENCE_S: Final = 5
"""With a scheduler that does not answer."""


def cluster_library(name: ClusterName, *, option: str) -> Any:  # noqa: ANN401 - a library that may be absent has no types here
    """Return the library's module. Raises ConfigError, which names the ``option`` that asked for it, without it."""
    module = _MODULES[name]
    try:
        return import_module(module)
    except ImportError as error:
        raise ConfigError(
            f"{option}: got no {module}, expected it installed: pip install 'vtwin[{name}]'"
        ) from error


def refuse_dead(address: str | None) -> None:
    """Raise OSError where nothing listens at an address: the libraries would ask again for long. ``auto`` has none."""
    place = urlsplit(address if address is None or "://" in address else f"//{address}")
    if isinstance(place.hostname, str) and place.port:
        socket.create_connection((place.hostname, place.port), timeout=PATIENCE_S).close()


def no_scheduler(address: str | None, error: Exception, *, option: str) -> ConfigError:
    """Return the error of an address at which no scheduler answers."""
    asked = f"no {option}" if address is None else quoted(address)
    return ConfigError(f"{option}: got {asked}, expected a scheduler that answers ({cut(str(error))})")
