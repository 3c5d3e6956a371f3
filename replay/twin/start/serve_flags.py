"""A ``vllm serve`` command line, taken apart: the scheduler's flags, and all others by name."""

from __future__ import annotations

import difflib
import json
import math
import re
from lazy_dataclasses import dataclass, field, replace
from typing import Final

from replay.twin.keys.ranges import RANGES
from replay.twin.kv_cache.retention_interval import ALL
from replay.twin.start.flag_table import FLAGS, SHORT, KnownFlag
from replay.twin.start.json_flags import (
    has_no_graphs,
    no_json,
    offloading_gib,
    readable_integer,
    spelled_out,
    with_json_flags,
)
from replay.twin.start.speculation import from_config
from replay.twin.start.what_starts import launch_of
from traces import ConfigError, quoted

UNKNOWN: Final = "not in the twin"
MAY_MEAN: Final = "did you mean"
LIKE: Final = 0.85
"""How similar a flag's name must be to a known one to be taken for a typing error."""
TRUTHS: Final = {
    **dict.fromkeys(("true", "1", "yes", "on"), True),
    **dict.fromkeys(("false", "0", "no", "off"), False),
}
"""What stands behind a switch in command lines of vLLM up to 0.8, whose switches took a value."""
VARIABLE: Final = re.compile(r"\$(?:[A-Z][A-Z0-9_]{0,40}|[({][A-Z][A-Z0-9_]{0,40}[)}])")
SEVERAL: Final = (
    "api-key served-model-name lora-modules prompt-adapters middleware cudagraph-capture-sizes allowed-origins "
    "allowed-methods allowed-headers ssl-keyfile chat-template-kwargs"
)
"""Flags behind which several words may stand."""

GRAPHS: Final = ("optimization-level", "compilation-config")
"""Flags that may leave steps no CUDA graph."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Flag:
    """A flag as written, its value (None: a switch), and why the engine has no setting of it.

    ``key``: of a section that a twin with hardware has; ``is_listed``: its value is one of those in the table of flags.
    """

    name: str
    value: str | None
    reason: str
    key: str = ""
    is_listed: bool = False


@dataclass(slots=True, kw_only=True)
class Served:
    """What a command line asked for; filled flag by flag.

    ``hardware`` and ``latency``: what these sections of TWIN.yaml say of it. Their flags are among ``others``, too,
    with the section's ``key``, for a twin that has no hardware. ``version``, ``instances`` and ``gpus``: as ``Launch``.
    """

    origin: str = "a vllm serve command line"
    version: str | None = None
    instances: int = 1
    gpus: int | None = None
    model: str | None = None
    engine: dict[str, object] = field(default_factory=dict)
    hardware: dict[str, object] = field(default_factory=dict)
    latency: dict[str, object] = field(default_factory=dict)
    others: list[Flag] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def parse_serve(given: str, *, strict: str = "") -> Served:
    """Return the settings of a server by what starts it: a command line, a manifest, or a file of it (``launch_of``).

    ``strict``: an option whose flags must all be known; without it unknown ones are noted. Raises ConfigError if
    nothing in it starts vLLM, if it names no model, or gives a known flag a wrong value.
    """
    launch = launch_of(given)
    words = with_json_flags(spelled_out(list(launch.words)))
    served = Served(
        origin=launch.origin, version=launch.version, instances=launch.instances, gpus=launch.gpus
    )
    served.notes.extend(launch.notes)
    strays = 0
    while words:
        word = words.pop(0)
        if not word.startswith("-") or len(word) == 1:
            if served.model is not None and VARIABLE.fullmatch(word):
                served.notes.append(f"{word}: a variable whose value the text does not say")
            else:
                strays += served.model is not None
            served.model = served.model or word
            continue
        written, has_value, value = word.partition("=")
        name = _whole_name(served, written)
        if not has_value:
            value = _value_behind(name, words)
            has_value = "=" if value else ""
        _take(served, written, name=name, value=value if has_value else None)
    served.model = served.model or launch.model
    if strict:
        _refuse_unknown(served, strict, strays=strays)
    if strays:
        served.notes.append(
            f"{strays} {'word' if strays == 1 else 'words'} behind no flag that takes them: not understood"
        )
    _take_graphs(served)
    _take_implied(served)
    if served.model is None:
        raise ConfigError("command: got no model, expected vllm serve MODEL --flags …, the model first")
    return served


def _whole_name(served: Served, written: str) -> str:
    """Return a flag's name as the table has it; of one cut short the only one that begins so, as argparse takes it.

    (vLLM 0.32.0 starts with 64 seats on ``--max-num-seq 64``.)
    """
    name = SHORT.get(written) or written.lstrip("-").replace("_", "-")
    if name in FLAGS or name.removeprefix("no-") in FLAGS:
        return name
    switches = [f"no-{each}" for each, known in FLAGS.items() if known.kind == "switch"]
    longer = [each for each in (*FLAGS, *switches) if each.startswith(name)]
    if len(longer) != 1 or not written.startswith("--"):
        return name
    served.notes.append(f"{written}: taken for --{longer[0]}, as vLLM takes a flag that is cut short")
    return longer[0]


def _refuse_unknown(served: Served, option: str, *, strays: int) -> None:
    """Raise ConfigError on a flag that is not in the table, and on words behind no flag."""
    expected = "flags of `vllm serve` that vtwin knows"
    for flag in served.others:
        if flag.reason.startswith(UNKNOWN):
            plain = flag.name.lstrip("-").removeprefix("no-").replace("_", "-")
            [nearest, *_] = difflib.get_close_matches(plain, FLAGS, n=1, cutoff=0.0)
            raise ConfigError(f"{option}: got {flag.name}, expected {expected}; the nearest is --{nearest}")
    if strays:
        raise ConfigError(f"{option}: got {strays} words behind no flag that takes them, expected {expected}")


def _value_behind(name: str, words: list[str]) -> str:
    """Take a flag's value from the words behind it, "" where it has none. All values of a flag that takes several."""
    known = FLAGS.get(name.removeprefix("no-"))
    if known is not None and known.kind == "switch":
        return words.pop(0) if words and words[0].lower() in TRUTHS else ""
    if not _is_value(words):
        return ""
    value = words.pop(0)
    while name in SEVERAL.split() and _is_value(words):
        value = f"{value} {words.pop(0)}"
    return value


def _is_value(words: list[str]) -> bool:
    return bool(words) and re.match(r"--?[A-Za-z]", words[0]) is None


def _take(served: Served, written: str, *, name: str, value: str | None) -> None:
    """Store one flag. Raises ConfigError for a wrong value, or a refused one."""
    plain = name.removeprefix("no-")
    known = FLAGS.get(name) or (FLAGS.get(plain) if name.startswith("no-") else None)
    if known is not None and (wrong := _lost_quotes(value)):
        raise ConfigError(f"{written}: {wrong}")
    if known is None:
        served.others.append(Flag(name=written, value=value, reason=UNKNOWN + _hint(name)))
    elif known.kind == "switch":
        _take_switch(served, known, Flag(name=written, value=value, reason=known.how), is_on=plain == name)
    elif name == "model" and value is not None:
        served.model = value
    elif known.treatment == "refused" and value not in known.harmless:
        usual = f" or {known.harmless[-1]}" if known.harmless else ""
        raise ConfigError(
            f"{written}: got {'another value' if value else 'nothing'}, expected no such flag{usual}: {known.how}, so "
            "the schedule would be another"
        )
    elif known.choices and value not in known.choices:
        said = "another value" if value else "nothing"
        raise ConfigError(f"{written}: got {said}, expected {' or '.join(known.choices)}")
    elif name == "max-model-len" and value in ("-1", "auto"):
        reason = "vLLM's choice by memory, not known here"
        served.others.append(Flag(name=written, value=value, reason=reason, is_listed=True))
    elif known.kind == "speculation":
        found = from_config(written, value)
        served.engine = {**found.engine, **served.engine}
        served.notes.extend(found.notes)
    elif known.kind == "connector":
        _take_connector(served, known, Flag(name=written, value=value, reason=known.how))
    elif known.section == "engine":
        served.engine[known.name] = _value(known, written, value=value)
    elif known.section:
        section = served.hardware if known.section == "hardware" else served.latency
        section[known.name] = _value(known, written, value=value)
        served.others.append(Flag(name=written, value=value, reason=known.how, key=known.name))
    else:
        is_listed = value in (*known.harmless, *known.choices)
        served.others.append(Flag(name=written, value=value, reason=known.how, is_listed=is_listed))


def _lost_quotes(value: str | None) -> str | None:
    """Return what is wrong with a value in braces that is not JSON; None where nothing is. A chart's {{ }} is none."""
    if value is None or not value.startswith("{") or value.startswith("{{"):
        return None
    try:
        json.loads(value)
    except (ValueError, RecursionError):
        return no_json(value)
    return None


def _take_switch(served: Served, known: KnownFlag, flag: Flag, *, is_on: bool) -> None:
    """Store a switch. A value behind it is its value: vLLM up to 0.8 took ``--enable-chunked-prefill False``.

    Raises ConfigError on another word, and on ``--no-… false``.
    """
    if flag.value is not None:
        said = TRUTHS.get(flag.value.lower())
        if said is None or (said is False and not is_on):
            raise ConfigError(f"{flag.name}: got another value, expected true or false, or no value")
        served.notes.append(
            f"{flag.name}: the value behind it is taken as {str(said).lower()}; newer versions of vLLM take none there"
        )
        is_on = is_on and said
    if known.section == "engine":
        served.engine[known.name] = is_on
        return
    if known.section:
        section = served.hardware if known.section == "hardware" else served.latency
        section[known.name] = is_on
    shown = replace(
        flag, name=flag.name if is_on or flag.value is None else f"--no-{flag.name.lstrip('-')}", value=None
    )
    served.others.append(replace(shown, key=known.name))


def _take_connector(served: Served, known: KnownFlag, flag: Flag) -> None:
    """Store the size of the host memory that ``--kv-transfer-config`` gives the offloading connector; else note it."""
    size = offloading_gib(flag.name, flag.value)
    if size is None:
        served.others.append(flag)
        return
    served.hardware[known.name] = size
    served.others.append(replace(flag, key=known.name))


def _hint(name: str) -> str:
    """Return the flag that an unknown one may mean, as a question; nothing if none is similar."""
    close = difflib.get_close_matches(name, FLAGS, n=1, cutoff=LIKE)
    return f", {MAY_MEAN} --{close[0]}?" if close else ""


def _take_graphs(served: Served) -> None:
    """Follow flags that leave no step a CUDA graph as vLLM follows --enforce-eager, which it takes for level 0."""
    given = {SHORT.get(flag.name) or flag.name.lstrip("-").replace("_", "-"): flag for flag in served.others}
    level, compilation = (given.get(name, Flag(name=name, value=None, reason="")) for name in GRAPHS)
    if served.engine.get("enforce_eager") is True or not has_no_graphs(level.value, compilation.value):
        return
    served.engine["enforce_eager"] = True
    which = " and ".join(each.name for each in (level, compilation) if each.value is not None)
    served.notes.append(f"enforce_eager: true, for {which} leaves no CUDA graphs")
    served.others = [flag for flag in served.others if flag is not level]


def _take_implied(served: Served) -> None:
    """Add vLLM's value of a flag that another one needs (vllm 0.32.0 config/lora.py:LoRAConfig.max_loras)."""
    is_on = any(flag.name.endswith("enable-lora") and "no-" not in flag.name for flag in served.others)
    if is_on and "max_loras" not in served.engine:
        served.engine["max_loras"] = 1
        served.notes.append("max_loras not given: 1, vLLM's own; a step holds one adapter at a time")


def _value(known: KnownFlag, written: str, *, value: str | None) -> object:
    """Return a flag's value as TWIN.yaml has it."""
    if known.kind == "interval" and (value or "").lower() == ALL:
        return ALL
    if known.kind in ("integer", "interval"):
        number = _integer(written, value)
        low, high = RANGES.get(f"{known.section}.{known.name}", (-math.inf, math.inf))
        if not low <= number <= high:
            raise ConfigError(
                f"{written}: got {quoted(number)}, expected an integer from {low:,} to {high:,}"
            )
        return number
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
