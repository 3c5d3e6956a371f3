"""A ``vllm serve`` command line, taken apart: the scheduler's flags, and all others by name."""

from __future__ import annotations

import difflib
import math
import re
import shlex
from dataclasses import dataclass, field, replace
from typing import Final

from replay.twin.kv_cache.retention_interval import ALL
from replay.twin.start.flag_table import FLAGS, SHORT, KnownFlag
from replay.twin.start.json_flags import offloading_gib, readable_integer, with_json_flags
from replay.twin.start.speculation import from_config
from traces import ConfigError

UNKNOWN: Final = "not in the twin"
LIKE: Final = 0.85
"""How similar a flag's name must be to a known one to be taken for a typing error."""
SERVE = re.compile(r"(?:^|/)vllm$")
IMAGE = re.compile(r"(?:^|/)vllm-openai[-\w]*(?::[\w.-]+)?(?:@sha256:\w+)?$")
"""vLLM's container, which runs ``vllm serve`` with what stands behind its name."""
API_SERVER = "vllm.entrypoints.openai.api_server"


@dataclass(frozen=True, slots=True, kw_only=True)
class Flag:
    """A flag as written, its value (None: a switch), and why the engine has no setting of it."""

    name: str
    value: str | None
    reason: str
    key: str = ""


@dataclass(slots=True, kw_only=True)
class Served:
    """What a command line asked for; filled flag by flag.

    ``hardware`` and ``latency``: what these sections of TWIN.yaml say of it. Their flags are among ``others``, too,
    with the section's ``key``, for a twin that has no hardware.
    """

    model: str | None = None
    engine: dict[str, object] = field(default_factory=dict)
    hardware: dict[str, object] = field(default_factory=dict)
    latency: dict[str, object] = field(default_factory=dict)
    others: list[Flag] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def parse_serve(command: str) -> Served:
    """Return the settings of a ``vllm serve`` command line; environment and launcher before it are skipped.

    Raises ConfigError if it is not one, names no model, or gives a known flag a wrong value.
    """
    words = with_json_flags(_arguments(command))
    served = Served()
    while words:
        word = words.pop(0)
        if not word.startswith("-") or len(word) == 1:
            if served.model is None:
                served.model = word
            else:
                served.others.append(Flag(name=word, value=None, reason="not understood"))
            continue
        written, has_value, value = word.partition("=")
        name = SHORT.get(written) or written.lstrip("-").replace("_", "-")
        if not has_value:
            known = FLAGS.get(name.removeprefix("no-"))
            takes_none = known is not None and known.kind == "switch"
            next_is_value = bool(words) and re.match(r"--?[A-Za-z]", words[0]) is None
            value = words.pop(0) if next_is_value and not takes_none else ""
            has_value = "=" if value else ""
        _take(served, written, name=name, value=value if has_value else None)
    _take_implied(served)
    if served.model is None:
        raise ConfigError("command: got no model, expected vllm serve MODEL --flags …, the model first")
    return served


def _arguments(command: str) -> list[str]:
    """Return the words behind ``vllm serve``, the module that it runs or the container that does."""
    try:
        words = shlex.split(command.replace("\\\n", " "))
    except ValueError as error:
        raise ConfigError(f"command: got {error}, expected a shell's words (vllm serve MODEL …)") from error
    for place, word in enumerate(words):
        if SERVE.search(word) and words[place + 1 : place + 2] == ["serve"]:
            return words[place + 2 :]
        if word == API_SERVER:
            return words[place + 1 :]
    for place, word in enumerate(words):
        if IMAGE.search(word):
            return words[place + 1 :]
    raise ConfigError(f'command: got "{command[:60]}", expected vllm serve MODEL --flags …')


def _take(served: Served, written: str, *, name: str, value: str | None) -> None:
    """Store one flag. Raises ConfigError for a wrong value, or a refused one."""
    plain = name.removeprefix("no-")
    known = FLAGS.get(name) or (FLAGS.get(plain) if name.startswith("no-") else None)
    if known is None or (known.kind == "switch" and known.key and value is not None):
        served.others.append(Flag(name=written, value=value, reason=UNKNOWN + _hint(name, known)))
    elif name == "model" and value is not None:
        served.model = value
    elif known.treatment == "refused" and value not in known.harmless:
        usual = f" or {known.harmless[-1]}" if known.harmless else ""
        raise ConfigError(
            f"{written}: got {value or 'nothing'}, expected no such flag{usual}: {known.how}, so the schedule would be "
            "another"
        )
    elif known.choices and value not in known.choices:
        raise ConfigError(f"{written}: got {value or 'nothing'}, expected {' or '.join(known.choices)}")
    elif name == "max-model-len" and value in ("-1", "auto"):
        served.others.append(
            Flag(name=written, value=value, reason="vLLM's choice by memory, not known here")
        )
    elif known.kind == "speculation":
        found = from_config(written, value)
        served.engine = {**found.engine, **served.engine}
        served.notes.extend(found.notes)
    elif known.kind == "connector":
        _take_connector(served, known, Flag(name=written, value=value, reason=known.how))
    elif known.section == "engine":
        served.engine[known.name] = _value(known, written, value=value, is_on=plain == name)
    elif known.section:
        section = served.hardware if known.section == "hardware" else served.latency
        section[known.name] = _value(known, written, value=value, is_on=plain == name)
        served.others.append(Flag(name=written, value=value, reason=known.how, key=known.name))
    else:
        served.others.append(Flag(name=written, value=value, reason=known.how))


def _take_connector(served: Served, known: KnownFlag, flag: Flag) -> None:
    """Store the size of the host memory that ``--kv-transfer-config`` gives the offloading connector; else note it."""
    size = offloading_gib(flag.name, flag.value)
    if size is None:
        served.others.append(flag)
        return
    served.hardware[known.name] = size
    served.others.append(replace(flag, key=known.name))


def _hint(name: str, known: KnownFlag | None) -> str:
    """Return the flag that an unknown one may mean, as a question; nothing if none is similar."""
    close = difflib.get_close_matches(name, FLAGS, n=1, cutoff=LIKE) if known is None else []
    return f", did you mean --{close[0]}?" if close else ""


def _take_implied(served: Served) -> None:
    """Add vLLM's value of a flag that another one needs (vllm 0.32.0 config/lora.py:LoRAConfig.max_loras)."""
    has_lora = any(flag.name.endswith("enable-lora") and "no-" not in flag.name for flag in served.others)
    if has_lora and "max_loras" not in served.engine:
        served.engine["max_loras"] = 1
        served.notes.append("max_loras not given: 1, vLLM's own; a step holds one adapter at a time")


def _value(known: KnownFlag, written: str, *, value: str | None, is_on: bool) -> object:
    """Return a flag's value as TWIN.yaml has it."""
    if known.kind == "switch":
        return is_on
    if known.kind == "interval" and (value or "").lower() == ALL:
        return ALL
    if known.kind in ("integer", "interval"):
        return _integer(written, value)
    if known.kind in ("fraction", "number"):
        return _fraction(written, value, most=1.0 if known.kind == "fraction" else None)
    if known.kind == "choice" and value not in ("fcfs", "priority"):
        raise ConfigError(f"{written}: got {value or 'nothing'}, expected fcfs or priority")
    if value is None:
        raise ConfigError(f"{written}: got nothing, expected a value")
    return value


def _integer(flag: str, value: str | None) -> int:
    found = readable_integer(value or "")
    if found is None:
        raise ConfigError(f"{flag}: got {value or 'nothing'}, expected an integer such as 8192, 8k or 8K")
    return found


def _fraction(flag: str, value: str | None, *, most: float | None) -> float:
    """Return a number from 0 to ``most``; None: without end."""
    try:
        found = float(value or "")
    except ValueError:
        found = math.nan
    if not 0 <= found <= (math.inf if most is None else most) or math.isinf(found):
        expected = "a number >= 0" if most is None else f"a fraction from 0 to {most:g}"
        raise ConfigError(f"{flag}: got {value or 'nothing'}, expected {expected}")
    return found
