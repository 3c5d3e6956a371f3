"""Server flags in traces' headers: used if the twin's file does not give them, else compared with it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from calibrate.flags.learned import VERSION, LearnedFlag, Observed
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
    found = _version_said(sources, config)
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


def _version_said(sources: Sequence[Observed], config: TwinConfig) -> dict[str, LearnedFlag]:
    """Return the version of the first header that has one whose rules are known, unless the twin's file has one."""
    from sim import is_known

    for source in () if config.has_version else sources:
        version = source.trace.header.server.version
        if version is not None and is_known(version):
            return {
                VERSION: LearnedFlag(name=VERSION, value=version, origin=f"as {_place(source, 'version')}")
            }
    return {}


def version_notes(sources: Sequence[Observed], config: TwinConfig) -> tuple[str, ...]:
    """Return the line to tell where nobody said vLLM's version, or a header says another than the twin's file."""
    from replay.twin.fitted import same_version

    said = [(source, version) for source in sources if (version := source.trace.header.server.version)]
    if not said and not config.has_version:
        return (
            f"{VERSION} is not known: neither the traces nor the configuration say it. The rules of "
            f"{config.vllm_version} are taken; give the server's own as {VERSION} in the configuration",
        )
    others = [(source, version) for source, version in said if not same_version(version, config.vllm_version)]
    if not others:
        return ()
    source, version = others[0]
    return (
        f"{VERSION}: the rules of {config.vllm_version} are taken; {_place(source, 'version')} {version}",
    )


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
