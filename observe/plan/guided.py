"""Guided decoding: requests whose output a JSON schema constrains.

Source of the fields: vLLM's "Structured Outputs" (``structured_outputs: {"json": SCHEMA}``; ``guided_json`` was removed
in 0.12) and OpenAI's ``response_format`` of type ``json_schema``, which other servers and older vLLMs take.
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import TYPE_CHECKING

import orjson

from observe.settings import GuidedDecoding
from traces import ConfigError

if TYPE_CHECKING:
    from traces import Trace

_STRUCTURED_OUTPUTS_SINCE = (0, 12)
"""The version of vLLM from which on a body has ``structured_outputs``."""
_LARGEST_SCHEMA = 1 << 20


def read_schema(path: Path, *, frac: float | None = None) -> GuidedDecoding:
    """Return the schema in ``path``. Raises ConfigError for a file that is not one."""
    schema = read_json(path, option="--guided", expected="a JSON schema")
    if not isinstance(schema, dict):
        raise ConfigError(f"--guided: got {type(schema).__name__}, expected a JSON object ({path})")
    return GuidedDecoding(name=path.name, schema=schema, frac=frac)


def read_json(path: Path, *, option: str, expected: str) -> object:
    """Return what is in ``path``. Raises ConfigError for a file that is too long or no JSON."""
    try:
        with path.open("rb") as file:
            text = file.read(_LARGEST_SCHEMA + 1)
    except OSError as fault:
        raise ConfigError(f"{option}: got {fault.strerror}, expected {expected} ({path})") from fault
    if len(text) > _LARGEST_SCHEMA:
        raise ConfigError(f"{option}: got more than {_LARGEST_SCHEMA} bytes, expected {expected} ({path})")
    try:
        said: object = orjson.loads(text)
    except orjson.JSONDecodeError as fault:
        raise ConfigError(f"{option}: got no JSON ({fault}), expected {expected} ({path})") from fault
    return said


def guided_rows(trace: Trace, guided: GuidedDecoding | None) -> frozenset[int]:
    """Return the rows that the schema constrains, none without a schema.

    A fraction picks by request_id: the same requests in every run of a workload, in any order, and exactly that share
    of them, rounded; those of a smaller fraction are among those of a larger one.
    """
    if guided is None:
        return frozenset()
    stated = trace.column("guided").fillna(False).to_numpy(dtype=bool)
    if guided.frac is None and stated.any():
        return frozenset(stated.nonzero()[0].tolist())
    frac = 1.0 if guided.frac is None else guided.frac
    names = list(trace.column("request_id").astype(str))
    shuffled = sorted(range(len(names)), key=lambda row: (_shuffling(names[row]), names[row]))
    return frozenset(shuffled[: round(frac * len(names))])


def _shuffling(name: str) -> bytes:
    """Return a sort key that puts names into a random order that depends on them alone."""
    return hashlib.blake2b(b"guided:" + name.encode(), digest_size=8).digest()


def guided_fields(guided: GuidedDecoding, *, is_vllm: bool, version: str | None) -> dict[str, object]:
    """Return the fields of a guided request's body, in the form that this server accepts."""
    if is_vllm and _version_of(version) >= _STRUCTURED_OUTPUTS_SINCE:
        return {"structured_outputs": {"json": guided.schema}}
    name = re.sub(r"[^A-Za-z0-9_-]", "_", guided.name)[:64]
    return {
        "response_format": {"type": "json_schema", "json_schema": {"name": name, "schema": guided.schema}}
    }


def _version_of(version: str | None) -> tuple[int, int]:
    found = re.match(r"v?(\d+)\.(\d+)", version or "")
    return (int(found[1]), int(found[2])) if found else _STRUCTURED_OUTPUTS_SINCE
