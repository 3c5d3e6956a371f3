"""Server flags in traces' headers: used if the twin's file does not give them, else compared with it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from calibrate.flags.learned import LearnedFlag, Observed
from traces import ConfigError

if TYPE_CHECKING:
    from replay import TwinConfig

SAID = (
    "max_num_seqs",
    "max_num_batched_tokens",
    "block_size",
    "num_gpu_blocks",
    "max_model_len",
    "enable_prefix_caching",
    "enable_chunked_prefill",
    "async_scheduling",
    "scheduling_policy",
)
"""Flags that both a trace's header and the engine have."""
NEAR_BLOCKS = 0.05
"""The tolerance between a KV cache computed from model and GPU and the server's own."""


def said_of(
    sources: Sequence[Observed], config: TwinConfig, *, is_async_open: bool = False
) -> tuple[LearnedFlag, ...]:
    """Return the flags that a twin's file leaves open and a header has, from the first such trace.

    ``is_async_open``: whether the server had async scheduling is to be found by the fit.
    """
    if config.written is None:
        return ()
    found: dict[str, LearnedFlag] = {}
    for source in sources:
        server = source.trace.header.server
        for name in SAID:
            said = getattr(server, name)
            if said is None or name in config.written or name in found:
                continue
            if name == "async_scheduling" and is_async_open:
                continue
            found[name] = LearnedFlag(name=name, value=said, origin=f"as {_place(source, name)}")
    return tuple(found.values())


def check_flags(sources: Sequence[Observed], config: TwinConfig, *, is_async_open: bool = False) -> None:
    """Raise ConfigError if a server flag in a trace's header differs from the twin's.

    ``is_async_open``: whether the server had async scheduling is to be found by the fit.
    """
    for source in sources:
        server = source.trace.header.server
        for name in SAID:
            said, own = getattr(server, name), getattr(config.engine, name)
            if said is None or said == own or (name == "async_scheduling" and is_async_open):
                continue
            if name == "num_gpu_blocks" and abs(own - said) <= NEAR_BLOCKS * said:
                continue
            raise ConfigError(
                f"engine.{name}: got {own}, expected {said}, which {_place(source, name)}: `vtwin config from-serve "
                "--from-trace` writes a twin of that server, --accept-flags goes on with this one"
            )


def _place(source: Observed, name: str) -> str:
    """Return where a flag's value is from, in words."""
    how = source.trace.header.server.sources.get(name, "header")
    return f"the header of {source.name} says of its server ({how})"
