"""Whether an answer hangs on a KV cache whose size nobody told: the same question with a quarter less, and more.

Without ``gpu_memory_utilization`` the blocks are what vLLM's default share of the GPU leaves, and servers run with
others. Of 15 measured points whose TTFT was furthest off, 9 came right with 1.25 times the blocks (docs/validation.md).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from lazy_dataclasses import asdict, dataclass, replace

from replay.twin.twin_config import TwinConfig, with_pools
from sim import UNBOUNDED, EngineConfig
from traces import ConfigError, shown_time

SHARE = 0.25
MOVED = 0.10
"""A figure that moves by less is not worth a line."""
NOTICED = 0.02
"""Where a quarter less moves nothing by so much, the cache is no limit, and more of it is not simulated."""
OVERLOAD, KEEPS_UP = float("inf"), -1.0
"""The change of a figure to a server that does not keep up, and from there to one that does."""
REMEDY = "give hardware.gpu_memory_utilization, or the server's own engine.num_gpu_blocks"

Figures = Mapping[str, float]
"""Times by name, µs; infinite where the server does not keep up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KvDoubt:
    """The figures, µs, as asked (``own``) and with ``share`` of the blocks ``less`` and ``more``; None: not simulated.

    ``less`` is None where so few blocks hold not even one prompt; ``more`` also where a quarter less changed nothing
    of a server that keeps up.
    """

    own: Figures
    less: Figures | None
    more: Figures | None
    share: float = SHARE

    @property
    def changes(self) -> dict[str, tuple[float | None, float | None]]:
        """Each figure's change with less and with more, fractions; infinite: overload; None: not simulated."""
        return {name: (self._change(name, self.less), self._change(name, self.more)) for name in self.own}

    def _change(self, name: str, other: Figures | None) -> float | None:
        if other is None:
            return None
        own, there = self.own[name], other.get(name, self.own[name])
        if own in (0.0, there):
            return 0.0
        return KEEPS_UP if own == OVERLOAD else there / own - 1

    @property
    def furthest(self) -> str | None:
        """The figure that moves the furthest, None where none moves by more than a tenth."""
        by_size = {
            name: max(abs(each) for each in both if each is not None)
            for name, both in self.changes.items()
            if any(each is not None for each in both)
        }
        name = max(by_size, key=lambda each: by_size[each], default=None)
        return None if name is None or by_size[name] <= MOVED else name

    def line(self) -> str | None:
        """Return what to tell: how far the answer hangs on the cache; None where it does not."""
        name = self.furthest
        if name is None:
            return None if self.less is not None else f"{_AT_ALL}: {REMEDY}"
        told = [
            f"with {self.share:.0%} {which} of it {_shown(other[name])} ({_percent(change)})"
            for which, other, change in zip(
                ("less", "more"), (self.less, self.more), self.changes[name], strict=True
            )
            if other is not None and change is not None
        ]
        return f"nobody told the size of the KV cache: {name} {_shown(self.own[name])}, {', '.join(told)}; {REMEDY}"

    def document(self) -> dict[str, object]:
        """Return it for programs."""
        return {**asdict(self), "line": self.line()}


_AT_ALL = f"nobody told the size of the KV cache: with {SHARE:.0%} less of it not every prompt fits"


def _shown(value_us: float) -> str:
    return "overload" if value_us == OVERLOAD else shown_time(value_us)


def _percent(change: float) -> str:
    told = {OVERLOAD: "it does not keep up", KEEPS_UP: "it keeps up"}
    return told.get(change, f"{change:+.0%}")


def kv_doubt(twin: TwinConfig, own: Figures, measure: Callable[[TwinConfig], Figures]) -> KvDoubt | None:
    """Return how far figures hang on the KV cache's size; None where somebody told it, or it has no limit.

    ``measure``: from a twin to its figures, at most two more of them.
    """
    if not twin.assumes_memory:
        return None
    less = _measured(with_memory(twin, 1 - SHARE), measure)
    found = KvDoubt(own=own, less=less, more=None)
    is_moved = any(abs(first or 0.0) >= NOTICED for first, _ in found.changes.values())
    if less is not None and not is_moved and OVERLOAD not in own.values():
        return found
    return replace(found, more=_measured(with_memory(twin, 1 + SHARE), measure))


def _measured(twin: TwinConfig, measure: Callable[[TwinConfig], Figures]) -> Figures | None:
    try:
        return measure(twin)
    except ConfigError:
        return None


def with_memory(twin: TwinConfig, factor: float) -> TwinConfig:
    """Return the twin with so many times the KV blocks, on all its servers."""
    return with_pools(
        twin, [replace(pool, engine=with_blocks(pool.engine, factor)) for pool in twin.cluster.pools]
    )


def with_blocks(engine: EngineConfig, factor: float) -> EngineConfig:
    """Return an engine with so many times the KV blocks; one without a limit stays."""
    if engine.num_gpu_blocks == UNBOUNDED:
        return engine
    return replace(engine, num_gpu_blocks=max(round(engine.num_gpu_blocks * factor), 2))
