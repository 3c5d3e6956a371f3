"""Whether a question lies inside what a twin was fitted on: the one rule, each way in which it leaves in a line.

Of loads and lengths ``replay.twin.fitted.fitted_range`` decides; here it is the server: model, GPU, version, flags.
What the engine simulates exactly (seats, KV blocks, prefix caching, scheduling) leaves nothing; what changes a step's
time does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from lazy_dataclasses import dataclass, field

from replay.model.gpus import find_gpu
from replay.twin.fitted.fitted_on import FittedOn, Flag
from replay.twin.fitted.fitted_range import BEYOND
from replay.twin.keys.fitted_on_keys import WORDS
from sim import minor_version
from traces import ConfigError

OF_A_STEP = (
    "async_scheduling",
    "enforce_eager",
    "pipeline_parallel_size",
    "num_speculative_tokens",
    *WORDS[1:],
)
"""Flags that change what a step takes."""
STEPS_TOKENS = "max_num_batched_tokens"
AS_IT_IS = "auto"
"""The value of ``dtype`` and its like that stands for what the model says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedServer:
    """The server of a question; None, and a flag that is absent: as the twin's was."""

    model: str | None = None
    gpu: str | None = None
    tp: int | None = None
    vllm_version: str | None = None
    flags: Mapping[str, Flag] = field(default_factory=dict)


def ways_out(on: FittedOn, asked: AskedServer) -> list[str]:
    """Return each way in which a question's server leaves what a twin was fitted on; what nobody told leaves, too."""
    pairs: tuple[tuple[str, Flag | None, Flag | None, Callable[[str, str], bool]], ...] = (
        ("model", asked.model, on.model, same_model),
        ("GPU", asked.gpu, on.gpu, same_gpu),
        ("tp", asked.tp, on.tp, str.__eq__),
        ("vLLM", asked.vllm_version, on.vllm_version, same_version),
    )
    found = []
    for what, value, fitted, is_same in pairs:
        if value is None:
            continue
        if fitted is None:
            found.append(f"{what} {value}: the file does not say which {what} it was fitted on")
        elif not is_same(str(value), str(fitted)):
            found.append(f"{what} {value}, fitted on {fitted}")
    return [*found, *_flags_out(on.flags, asked.flags)]


def outside_note(on: FittedOn | None, asked: AskedServer) -> str | None:
    """Return the line that every answer of such a twin begins with; None where nothing leaves.

    What the file does not tell about its fit is no reason for a warning.
    """
    if on is None:
        return None
    found = [line for line in ways_out(on, asked) if ", fitted " in line]
    return f"outside what the twin was fitted on: {'; '.join(found)}" if found else None


def _flags_out(fitted: Mapping[str, Flag], asked: Mapping[str, Flag]) -> list[str]:
    found = []
    for name, value in asked.items():
        own = fitted.get(name, AS_IT_IS if name in WORDS else None)
        if own is None and name in OF_A_STEP:
            found.append(f"{name} {_shown(value)}: the file does not say what it was fitted with")
        if own is None or own == value:
            continue
        if name in OF_A_STEP:
            found.append(f"{name} {_shown(value)}, fitted with {_shown(own)}")
        elif name == STEPS_TOKENS and float(value) > BEYOND * float(own):
            found.append(f"steps of up to {value} tokens ({name}), fitted with {own}")
    return found


def _shown(value: Flag) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def same_model(one: str, other: str) -> bool:
    """Return whether two names are one model's: letter case aside, in full or without its publisher."""
    first, second = one.lower(), other.lower()
    return first == second or first == second.rpartition("/")[2] or first.rpartition("/")[2] == second


def same_gpu(one: str, other: str) -> bool:
    """Return whether two names are one GPU's."""
    return _gpu(one) == _gpu(other)


def _gpu(name: str) -> str:
    try:
        return find_gpu(name).name
    except ConfigError:
        return name.lower()


def same_version(one: str, other: str) -> bool:
    """Return whether two versions have the same first two numbers."""
    first, second = minor_version(one), minor_version(other)
    return one == other if first is None or second is None else first == second
