"""Grammars of guided requests (``sim/engine/optional/added_time.py`` has the rules)."""

from __future__ import annotations

from lazy_dataclasses import dataclass

from sim.features.setting import setting, since


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False, match_args=False)
class GrammarSettings:
    """What grammars take."""

    __slots__ = ()

    guided_compile_us: int = setting(
        0,
        "µs that the grammar of a guided request (structured outputs) takes to compile. The request "
        "waits that long, others do not.",
        most=10**9,
        taken=True,
    )
    guided_mask_us: float = setting(
        0.0, "µs per guided request and step, for its bitmask.", least=0, taken=True
    )


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False, match_args=False)
class GrammarRules:
    """What versions do with requests that are passed over, for a grammar or an adapter (sched/scheduler.py).

    - ``queues_passed_over_apart``: with fcfs those that were passed over stand in a queue of their own before the
      others, so whoever is preempted goes behind them, and a request whose grammar compiles joins them at once (0.18 to
      0.30; _enqueue_waiting_request, skipped_waiting).
    """

    __slots__ = ()

    queues_passed_over_apart: bool = since(18, until=31)
