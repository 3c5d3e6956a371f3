"""A ``vllm serve`` command line, taken apart: the scheduler's flags, and all others by name."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from traces.errors import ConfigError

INTEGERS: Final[Mapping[str, str]] = {
    "max-num-seqs": "max_num_seqs",
    "max-num-batched-tokens": "max_num_batched_tokens",
    "max-model-len": "max_model_len",
    "block-size": "block_size",
    "num-gpu-blocks-override": "num_gpu_blocks",
    "long-prefill-token-threshold": "long_prefill_token_threshold",
}
SWITCHES: Final = (
    "enable-prefix-caching",
    "enable-chunked-prefill",
    "async-scheduling",
    "scheduler-reserve-full-isl",
    "long-prefill-token-threshold-adaptive",
)
FOREIGN_SWITCHES: Final = (
    "aggregate-engine-logging",
    "disable-custom-all-reduce",
    "disable-log-requests",
    "disable-log-stats",
    "enable-auto-tool-choice",
    "enable-eplb",
    "enable-expert-parallel",
    "enable-log-requests",
    "enable-lora",
    "enable-prompt-tokens-details",
    "enable-request-id-headers",
    "enable-sleep-mode",
    "enforce-eager",
    "language-model-only",
    "trust-remote-code",
)
"""Flags of vLLM without a value, so that the word behind one is not taken for it."""
SHORT: Final[Mapping[str, str]] = {
    "-tp": "tensor-parallel-size",
    "-pp": "pipeline-parallel-size",
    "-dp": "data-parallel-size",
}
HARDWARE: Final[Mapping[str, str]] = {
    "tensor-parallel-size": "tp",
    "pipeline-parallel-size": "pp",
    "data-parallel-size": "dp",
}
"""Flags with a number that are keys of ``hardware``; without one they are in the coefficients."""
LATENCY: Final[Mapping[str, str]] = {"dtype": "dtype", "kv-cache-dtype": "kv_cache_dtype"}
SPEED: Final = "in the coefficients, not in the engine"
REASONS: Final[Mapping[str, str]] = {
    "tensor-parallel-size": SPEED,
    "pipeline-parallel-size": f"{SPEED}; with --gpu under hardware",
    "data-parallel-size": "not simulated: one engine is",
    "enable-expert-parallel": f"{SPEED}; with --gpu under hardware",
    "all2all-backend": f"{SPEED}; with --gpu under hardware",
    "dtype": SPEED,
    "quantization": SPEED,
    "kv-cache-dtype": f"{SPEED}; it also sets how many blocks there are",
    "gpu-memory-utilization": "it sets how many blocks there are: num_gpu_blocks says it to the twin",
    "config": "not read; give its flags on the command line",
}
UNKNOWN: Final = "not in the twin"
MULTIPLES: Final = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "K": 2**10, "M": 2**20, "G": 2**30}
"""vLLM's: small letters are decimal and may follow a fraction, capitals are binary."""
NUMBER = re.compile(r"(\d+(?:\.\d+)?)([kmgKMG]?)")
SERVE = re.compile(r"(?:^|/)vllm$")
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


def parse_serve(command: str) -> Served:
    """Return what a ``vllm serve`` command line asks for; environment and launcher before it are passed over.

    Raises ConfigError where it is none, names no model, or gives a known flag a value that it cannot have.
    """
    words = _arguments(command)
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
            takes_none = name.removeprefix("no-") in (*SWITCHES, *FOREIGN_SWITCHES)
            next_is_value = bool(words) and re.match(r"--?[A-Za-z]", words[0]) is None
            value = words.pop(0) if next_is_value and not takes_none else ""
            has_value = "=" if value else ""
        _take(served, written, name=name, value=value if has_value else None)
    if served.model is None:
        raise ConfigError("command: got no model, expected vllm serve MODEL --flags …, the model first")
    return served


def _arguments(command: str) -> list[str]:
    """Return the words behind ``vllm serve`` or the module that it runs."""
    try:
        words = shlex.split(command.replace("\\\n", " "))
    except ValueError as error:
        raise ConfigError(f"command: got {error}, expected a shell's words (vllm serve MODEL …)") from error
    for place, word in enumerate(words):
        if SERVE.search(word) and words[place + 1 : place + 2] == ["serve"]:
            return words[place + 2 :]
        if word == API_SERVER:
            return words[place + 1 :]
    raise ConfigError(f'command: got "{command[:60]}", expected vllm serve MODEL --flags …')


def _take(served: Served, written: str, *, name: str, value: str | None) -> None:
    """Put one flag where it belongs."""
    plain = name.removeprefix("no-")
    if name == "model" and value is not None:
        served.model = value
    elif plain in SWITCHES and value is None:
        served.engine[plain.replace("-", "_")] = plain == name
    elif name == "max-model-len" and value in ("-1", "auto"):
        served.others.append(
            Flag(name=written, value=value, reason="vLLM's choice by memory, not known here")
        )
    elif name in INTEGERS:
        served.engine[INTEGERS[name]] = _integer(written, value)
    elif name == "scheduling-policy":
        if value not in ("fcfs", "priority"):
            raise ConfigError(f"{written}: got {value or 'nothing'}, expected fcfs or priority")
        served.engine["scheduling_policy"] = value
    elif name == "watermark":
        served.engine["watermark"] = _fraction(written, value)
    else:
        key = _take_hardware(served, written, name=name, value=value)
        served.others.append(Flag(name=written, value=value, reason=REASONS.get(name, UNKNOWN), key=key))


def _take_hardware(served: Served, written: str, *, name: str, value: str | None) -> str:
    """Put a flag that bears on the speed where a twin with hardware has it; return its key, "" for another flag."""
    plain = name.removeprefix("no-")
    if name in HARDWARE:
        served.hardware[HARDWARE[name]] = _integer(written, value)
        return HARDWARE[name]
    if name == "gpu-memory-utilization":
        served.hardware["gpu_memory_utilization"] = _fraction(written, value)
    elif plain == "enable-expert-parallel" and value is None:
        served.hardware["enable_expert_parallel"] = plain == name
    elif name == "all2all-backend" and value is not None:
        served.hardware["all2all_backend"] = value
    elif name in LATENCY and value is not None:
        served.latency[LATENCY[name]] = value
    else:
        return ""
    return plain.replace("-", "_")


def _integer(flag: str, value: str | None) -> int:
    found = NUMBER.fullmatch(value or "")
    if found is None or ("." in found[1] and found[2] not in ("k", "m", "g")):
        raise ConfigError(f"{flag}: got {value or 'nothing'}, expected an integer such as 8192, 8k or 8K")
    return (
        int(float(found[1]) * MULTIPLES[found[2]]) if "." in found[1] else int(found[1]) * MULTIPLES[found[2]]
    )


def _fraction(flag: str, value: str | None) -> float:
    try:
        return float(value or "")
    except ValueError as error:
        raise ConfigError(f"{flag}: got {value or 'nothing'}, expected a fraction in [0, 1)") from error
