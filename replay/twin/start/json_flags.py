"""Flags whose value is JSON, given key by key: ``--speculative-config.method mtp``, or ``--spec-method mtp``.

vLLM puts them together before it reads them (vllm 0.32.0 utils/argparse_utils.py, engine/arg_utils.py).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from itertools import pairwise
from typing import Any, Final

from replay.model.gpu_memory import GIB
from traces import ConfigError

OFFLOADING, SIZE = "OffloadingConnector", "cpu_bytes_to_use"
MOST_BYTES = 2.0**60
MULTIPLES: Final = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "K": 2**10, "M": 2**20, "G": 2**30}
"""vLLM's: small letters are decimal and may follow a fraction, capitals are binary."""
NUMBER = re.compile(r"(\d{1,18}(?:\.\d{1,18})?)([kmgKMG]?)", re.ASCII)
SHORTHANDS: Final[Mapping[str, str]] = {
    "spec-method": "speculative-config.method",
    "spec-model": "speculative-config.model",
    "spec-tokens": "speculative-config.num_speculative_tokens",
}

NO_GRAPHS, PIECEWISE = ("NONE", "0"), ("PIECEWISE", "FULL_AND_PIECEWISE")
COMPILED: Final = ("3", "VLLM_COMPILE")
"""The one mode of compilation that pieces of a CUDA graph can be made of."""


def spelled_out(words: list[str]) -> list[str]:
    """Return a command line's words with ``-O0``, ``-O=0``, ``-O.mode=0`` and ``-cc.mode=0`` as their long flags.

    A key behind ``-O`` is one of ``--compilation-config``, as it was up to vLLM 0.11.
    """
    found = []
    for word, behind in pairwise([*words, ""]):
        if re.match(r"-(O|cc)\.", word):
            found.append("--compilation-config." + word.partition(".")[2])
        elif word == "-O" and behind.startswith("{"):
            found.append("--compilation-config")
        elif (level := re.fullmatch(r"-O=?(\d)", word)) is not None:
            found += ["--optimization-level", level[1]]
        else:
            found.append(word)
    return found


def has_no_graphs(level: str | None, compilation: str | None) -> bool:
    """Return whether ``--optimization-level`` and ``--compilation-config``, None: not given, leave no CUDA graph.

    vllm 0.32.0 config/vllm.py: level 0 compiles nothing and captures nothing; a graph in pieces needs compiled code.
    """
    said = _value(compilation or "{}")
    said = said if isinstance(said, dict) else {}
    usual = ("NONE", "NONE") if level == "0" else ("VLLM_COMPILE", "FULL_AND_PIECEWISE")
    mode, graphs = (
        str(next((said[key] for key in keys if said.get(key) is not None), other)).upper()
        for keys, other in zip((("mode", "level"), ("cudagraph_mode",)), usual, strict=True)
    )
    return (
        said.get("use_cudagraph") is False
        or graphs in NO_GRAPHS
        or (graphs in PIECEWISE and mode not in COMPILED)
    )


def with_json_flags(words: list[str]) -> list[str]:
    """Return a command line's words with such flags put together behind the others, each as one flag with its JSON.

    Raises ConfigError if a key has no value, or the flag itself has a value that is not a JSON object.
    """
    plain: list[str] = []
    found: dict[str, dict[str, Any]] = {}
    rest = list(words)
    while rest:
        word = rest.pop(0)
        written, has_value, value = word.partition("=")
        name = SHORTHANDS.get(_plain(written), _plain(written))
        if not word.startswith("--") or "." not in name:
            plain.append(word)
            continue
        if not has_value and (not rest or rest[0].startswith("--")):
            raise ConfigError(f"{written}: got nothing, expected a value")
        flag, *keys = name.split(".")
        _put(found.setdefault(flag, {}), keys, _value(value if has_value else rest.pop(0)))
    for flag, said in found.items():
        whole = _taken_out(plain, flag)
        plain += [f"--{flag}", json.dumps({**whole, **said})]
    return plain


def offloading_gib(flag: str, value: str | None) -> float | None:
    """Return the GiB of host memory that ``--kv-transfer-config JSON`` gives vLLM's offloading connector, else None.

    Raises ConfigError if it is not a JSON object, or the size is not a number of bytes.
    """
    said = _value(value or "")
    if not isinstance(said, dict):
        raise ConfigError(f"{flag}: {no_json(value)}")
    extra = said.get("kv_connector_extra_config")
    if said.get("kv_connector") != OFFLOADING or not isinstance(extra, dict) or SIZE not in extra:
        return None
    size = extra[SIZE]
    if not isinstance(size, int | float) or isinstance(size, bool) or not 0 < size < MOST_BYTES:
        said_size = "a text" if isinstance(size, str) else "a value that is none"
        raise ConfigError(f"{flag}: got {said_size} for {SIZE}, expected a number of bytes")
    return float(size) / GIB


def no_json(value: str | None) -> str:
    """Return what is wrong with a flag's value that is not JSON; the value itself is the user's, and not shown."""
    if not value:
        return "got nothing, expected a JSON object"
    quotes = "'" + '{"key": "value"}' + "'"
    if value.strip().startswith("{"):
        return (
            f"got text that is not JSON, expected a JSON object, as a shell passes it: {quotes}, single quotes around "
            "it and double quotes around each key and text"
        )
    return f"got another text, expected a JSON object: {quotes}"


def _plain(written: str) -> str:
    """Return a flag's name with hyphens; keys behind a dot keep their underscores."""
    flag, dot, keys = written.removeprefix("--").partition(".")
    return flag.replace("_", "-") + dot + keys


def _value(text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        number = readable_integer(text)
        return text if number is None else number


def readable_integer(text: str) -> int | None:
    """Return a number as vLLM's flags have it (8192, 8k, 1.5k, 8K), None for any other text."""
    found = NUMBER.fullmatch(text)
    if found is None or ("." in found[1] and found[2] not in ("k", "m", "g")):
        return None
    return (
        int(float(found[1]) * MULTIPLES[found[2]]) if "." in found[1] else int(found[1]) * MULTIPLES[found[2]]
    )


def _put(into: dict[str, Any], keys: list[str], value: object) -> None:
    *outer, last = keys
    for key in outer:
        inner = into.setdefault(key, {})
        into = inner if isinstance(inner, dict) else into
    into[last] = value


def _taken_out(plain: list[str], flag: str) -> dict[str, Any]:
    """Remove a flag with its JSON from the words, and return its value; nothing if it is missing."""
    for place, word in enumerate(plain):
        written, has_value, value = word.partition("=")
        if not word.startswith("--") or _plain(written) != flag:
            continue
        text = value if has_value else (plain[place + 1] if place + 1 < len(plain) else "")
        del plain[place : place + (1 if has_value else 2)]
        said = _value(text)
        if not isinstance(said, dict):
            raise ConfigError(
                f"{written}: got {'another text' if text else 'nothing'}, expected a JSON object beside --{flag}.KEY"
            )
        return said
    return {}
