"""LoRA adapters (``sim/engine/optional/added_time.py`` has the rules)."""

from __future__ import annotations

from lazy_dataclasses import dataclass

from sim.features.setting import setting, since


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False, match_args=False)
class LoraSettings:
    """Adapters in a batch, and what they take."""

    __slots__ = ()

    max_loras: int = setting(
        0,
        "LoRA adapters that a step may hold, and places for them on the GPU: a request whose adapter would be "
        "one too many waits, those behind it go by. 0: any number; vLLM's own default is 1.",
        most=1_000_000,
        flag="max-loras",
        taken=True,
    )
    lora_load_us: int = setting(
        0, "µs that a step waits for each adapter that has no place on the GPU yet.", most=10**9, taken=True
    )
    lora_step_factor: float = setting(
        1.0,
        "Factor on the time of steps that hold any request with an adapter, at least 1.",
        least=1,
        taken=True,
    )


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False, match_args=False)
class LoraRules:
    """What versions do with adapters (sched/scheduler.py).

    - ``counts_adapters_of_all_running``: the adapters of running requests that sit a step out take up places in its
      batch, too (from 0.33.0; schedule).
    """

    __slots__ = ()

    counts_adapters_of_all_running: bool = since(33)
