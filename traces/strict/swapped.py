"""Files given in each other's place: a trace where a twin is expected, a twin where a trace is."""

from __future__ import annotations

from pathlib import Path

from traces.errors import ConfigError, TraceError

_SNIFFED = 65_536
"""Bytes at a file's beginning that are looked at: headers and TWIN.yaml say what they are in their first keys."""
_OF_TRACE = (b"trace_version:",)
_OF_TWIN = (b"vllm_version:", b"engine:", b"latency:")
_TABLES = (".csv", ".parquet")


def check_twin_file(path: Path | None) -> Path | None:
    """Return the path of a TWIN.yaml, None of none. Raises ConfigError where there is nothing, or a trace."""
    if path is None or str(path) == "-":
        return path
    header = path.with_name(f"{path.name}.yaml") if path.name else path
    if not path.exists():
        if not _begins(header, _OF_TRACE):
            raise ConfigError(f"file: got nothing at this path, expected a YAML file ({path})")
        kind = "stem"
    elif path.is_file() and path.suffix in _TABLES:
        kind = "table"
    elif path.is_file() and _begins(path, _OF_TRACE):
        kind = "header"
    else:
        return path
    raise ConfigError(f"file: got a trace's {kind}, expected a TWIN.yaml ({path}): a trace in a twin's place")


def check_no_twin_for_grid(path: Path) -> None:
    """Raise ConfigError where a file is a TWIN.yaml."""
    if _begins(path, _OF_TWIN):
        raise ConfigError(f"file: got a TWIN.yaml, expected a GRID.yaml ({path}): a twin in a grid's place")


def check_no_twin(header: Path) -> None:
    """Raise TraceError where a file that stands alone is a TWIN.yaml."""
    if _begins(header, _OF_TWIN) and not _begins(header, _OF_TRACE):
        raise TraceError(f"{header}: got a TWIN.yaml, expected a trace: a twin in a trace's place")


def _begins(path: Path, keys: tuple[bytes, ...]) -> bool:
    """Return whether a line of a file begins with one of these keys."""
    try:
        with path.open("rb") as file:
            lines = file.read(_SNIFFED).splitlines()
    except OSError:
        return False
    return any(line.startswith(keys) for line in lines)
