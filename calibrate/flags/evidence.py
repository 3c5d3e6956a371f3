"""The server's flags as runs show them: they fill in flags that the twin leaves open, or are compared with it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from calibrate.flags.learned import LearnedFlag, Observed
from calibrate.flags.shown import SEATS, Shown, seats_of_trace
from sim import EngineConfig, HeldBlocks
from traces import ConfigError

if TYPE_CHECKING:
    from replay import TwinConfig

FAR_ABOVE = 1.25
"""A limit of seats is seen to within a few: a twin with more than this many times the running requests differs."""
OVERLAP = 1.1
"""A client may see one answer end after the next began: this many more answers at once than seats are ignored."""


def learned_of(sources: Sequence[Observed], config: TwinConfig) -> tuple[LearnedFlag, ...]:
    """Return the flags that neither the twin's file nor a header has and that runs have shown.

    If several runs show a limit the largest counts; there is none if a run exceeded it.
    """
    if config.written is None:
        return ()
    found = []
    seen = list(_shown(sources, config.engine))
    for name in dict.fromkeys(each.name for _, each in seen):
        runs = [(source, each) for source, each in seen if each.name == name]
        limits = [(source, each) for source, each in runs if each.is_limit]
        if name in config.written or not limits:
            continue
        source, limit = max(limits, key=lambda one: (one[1].most, one[1].is_servers))
        if limit.most == max(each.most for _, each in runs):
            origin = f"as {source.name} shows: {limit.how}"
            found.append(LearnedFlag(name=name, value=limit.most, origin=origin))
    return tuple(found)


def contradictions_of(sources: Sequence[Observed], config: TwinConfig) -> tuple[tuple[Shown, str], ...]:
    """Return evidence of runs that contradicts the twin's flags, with a line for each."""
    found: dict[str, tuple[Shown, str]] = {}
    for source, each in _shown(sources, config.engine):
        own = getattr(config.engine, each.name)
        if each.name in found or not _contradicts(each, own):
            continue
        expected = f"{each.most}" if each.is_limit else f"at least {each.most}"
        found[each.name] = (
            each,
            f"engine.{each.name}: got {own}, expected {expected}, by {source.name}: {each.how}",
        )
    return tuple(found.values())


def check_shown(sources: Sequence[Observed], config: TwinConfig) -> None:
    """Raise ConfigError if a server itself has shown a flag that differs from the twin's.

    Evidence seen only by a client is not an error: the report warns of it, and the twin is not trusted.
    """
    for each, line in contradictions_of(sources, config):
        if each.is_servers:
            by_gpu = ", name the GPU whose default it may be (--gpu)" if each.name in config.assumed else ""
            raise ConfigError(
                f"{line}. Give the server's own{by_gpu}, or go on with this one by --accept-flags"
            )


def _shown(sources: Sequence[Observed], engine: EngineConfig) -> Iterator[tuple[Observed, Shown]]:
    """Yield evidence of runs on flags that no header has.

    Whether the KV cache had room for more is asked again where the twin's layers keep different tokens: no trace says.
    """
    held = HeldBlocks.of(engine) if engine.kv_cache_groups else None
    said = {
        name
        for name in {each.name for source in sources for each in source.shown}
        if any(getattr(source.trace.header.server, name) is not None for source in sources)
    }
    for source in sources:
        for each in source.shown:
            if each.name not in said:
                is_of_trace = held is not None and each.name == SEATS and not each.is_servers
                yield source, (seats_of_trace(source.trace, held=held) or each if is_of_trace else each)


def _contradicts(shown: Shown, own: int) -> bool:
    """Return whether a server with ``own`` could not have shown this."""
    if shown.most > (own if shown.is_servers else OVERLAP * own + 1):
        return True
    return shown.is_limit and own > (FAR_ABOVE if shown.name == SEATS else 1) * shown.most
