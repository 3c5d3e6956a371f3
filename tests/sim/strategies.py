"""Cases that make an engine work for its living: drawn so that blocks run out, prefixes meet and times tie.

``cases()`` draws all of it; ``tests/sim/test_strategies.py`` fails when it stops reaching preemption, hits, stuck
requests and the rest. ``VTWIN_THOROUGH=20`` in the environment draws twenty times as many, differently each time.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from sim import Blackbox, EngineConfig, Extended, Outcomes, Requests, Simulation, simulate
from sim.simulation import Record

Setting = bool | int | float | str

THOROUGH = int(os.environ.get("VTWIN_THOROUGH", "0"))

CACHE_SIZES = (1.0, 1.5, 2.0, 1.2, 3.0, 0.7, 0)
"""Of a drawn cache, in what the longest request needs; 0 is unbounded."""

STEP_COSTS = ("0", "1", "7", "50", "100", "0.5", "33.5", "12.25", "19.999999")

POLICIES = ("fcfs", "fcfs", "fcfs", "priority", "priority", "sjf", "reverse-priority")

AGE_WEIGHTS = (0, 250_000, 1_000_000)
"""Per second, so that a µs of age weighs exactly 0, 1/4 or 1."""


def examples(number: int) -> settings:
    """Return settings for a test that draws ``number`` cases: the same ones each time, unless it is thorough."""
    return settings(
        max_examples=number * max(1, THOROUGH),
        deadline=None,
        derandomize=not THOROUGH,
        database=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """What one call of ``simulate`` takes."""

    requests: Requests
    config: EngineConfig
    latency: Blackbox
    closed_loop: tuple[int, int] | None = None

    def run(self, *, coalesce: bool = True, record: Record = "none") -> Simulation:
        """Simulate it."""
        return simulate(
            self.requests,
            self.config,
            self.latency,
            coalesce=coalesce,
            record=record,
            closed_loop=self.closed_loop,
        )

    def under(self, **changes: Setting) -> Case:
        """Return the case with other settings of the engine."""
        config = replace(self.config, **changes)  # type: ignore[arg-type]
        return replace(self, config=config)


def requests_of(rows: list[dict[str, Any]]) -> Requests:
    """Return rows with arrival_us, prompt, output and, where they have them, priority and hash_ids as columns."""
    hashes = [row.get("hash_ids", []) for row in rows]

    def column(name: str) -> np.ndarray[Any, np.dtype[np.int64]]:
        return np.array([row.get(name, 0) for row in rows], np.int64)

    return Requests(
        arrival_us=column("arrival_us"),
        prompt_tokens=column("prompt"),
        output_tokens=column("output"),
        priority=column("priority"),
        hash_offsets=np.cumsum([0] + [len(ids) for ids in hashes]).astype(np.int64),
        hash_ids=np.array([number for ids in hashes for number in ids], np.int64),
    )


@st.composite
def blackboxes(draw: st.DrawFn) -> Blackbox:
    """Draw coefficients: whole and fractional, zero included."""
    cost = st.sampled_from(STEP_COSTS)
    alphas = {name: draw(cost) for name in ("alpha0", "alpha1", "alpha2")} if draw(st.booleans()) else {}
    return Blackbox(beta0=draw(cost), beta1=draw(cost), beta2=draw(cost), **alphas)


@st.composite
def extendeds(draw: st.DrawFn) -> Extended:
    """Draw a model with attention, a floor, a slow state and scatter."""
    cost = st.sampled_from((0.0, 0.7, 3.0, 40.0))
    return Extended(
        alpha0=draw(cost),
        beta0=draw(cost),
        beta1=draw(cost),
        beta2=draw(cost),
        beta3=draw(cost) / 10,
        beta4=draw(cost) / 100,
        beta5=draw(cost),
        floor=draw(cost) * 10,
        kappa=draw(st.sampled_from((0.0, 0.3))),
        tau_s=draw(st.sampled_from((1e-4, 1e-2))),
        sigma=draw(st.sampled_from((0.0, 0.2))),
        seed=draw(st.integers(0, 3)),
    )


@st.composite
def configs(draw: st.DrawFn, *, block_size: int, longest: int, is_async: bool | None = None) -> EngineConfig:
    """Draw every setting of the engine, so that each of them binds now and then; ``longest`` request in tokens."""
    size = draw(st.sampled_from(CACHE_SIZES))
    return EngineConfig(
        max_num_seqs=draw(st.sampled_from((4, 8, 16, 3, 2, 1))),
        max_num_batched_tokens=draw(st.sampled_from((17, 8, 3, 1, 32, 64, 200, 1000))),
        num_gpu_blocks=2 + int(size * -(-longest // block_size)) if size else 0,
        block_size=block_size,
        max_model_len=draw(st.sampled_from((1000, 1000, longest, max(2, longest - 5), 1 + longest // 2))),
        enable_prefix_caching=draw(st.sampled_from((True, True, False))),
        enable_chunked_prefill=draw(st.sampled_from((True, True, False))),
        long_prefill_token_threshold=draw(st.sampled_from((0, 0, 1, 5, 20))),
        long_prefill_token_threshold_adaptive=draw(st.booleans()),
        scheduler_reserve_full_isl=draw(st.sampled_from((True, True, False))),
        watermark=draw(st.sampled_from((0.0, 0.0, 0.1, 0.3))),
        scheduling_policy=draw(st.sampled_from(POLICIES)),
        priority_scoring=draw(st.sampled_from(("constant", "slo-based", "inverted-slo"))),
        priority_age_weight=draw(st.sampled_from(AGE_WEIGHTS)),
        async_scheduling=draw(st.sampled_from((True, False))) if is_async is None else is_async,
        frontend=draw(st.sampled_from(("openai", "openai", "none"))),
    )


@st.composite
def request_rows(draw: st.DrawFn, *, block_size: int, most: int = 12) -> list[dict[str, Any]]:
    """Draw requests whose arrivals tie and whose contents share beginnings, past the prompt too.

    Each may continue what an earlier one holds: its first ``depth`` blocks, then blocks of its own, named so that a
    later one can share them.
    """
    longest = draw(st.sampled_from((4, 2, 5))) * block_size
    gap = draw(st.sampled_from((50, 0, 100, 1000, 40_000)))
    named = draw(st.sampled_from(("everything", "everything", "prompt", "nothing")))
    lengths = st.integers(1, longest) | st.integers(longest // 2, longest)
    rows: list[dict[str, Any]] = []
    arrival_us = num_ids = 0
    for _ in range(draw(st.sampled_from([n for n in (12, 8, 5, 3, 2, 1) if n <= most]))):
        arrival_us += gap * draw(st.sampled_from((0, 0, 1, 1, 2, 5)))
        row: dict[str, Any] = {"arrival_us": arrival_us, "prompt": draw(lengths), "output": draw(lengths)}
        row["priority"] = draw(st.integers(0, 2))
        if named != "nothing":
            shared: list[int] = []
            if rows and draw(st.sampled_from((True, True, False))):
                shared = rows[draw(st.integers(0, len(rows) - 1))]["hash_ids"]
                shared = shared[: len(shared) - draw(st.integers(0, len(shared)))]
            tokens = row["prompt"] + (row["output"] if named == "everything" else 0)
            fresh = max(0, tokens // block_size - len(shared))
            row["hash_ids"] = [*shared, *range(num_ids, num_ids + fresh)]
            num_ids += fresh
        rows.append(row)
    if draw(st.integers(0, 15)) == 0:  # what no front end lets through
        rows[draw(st.integers(0, len(rows) - 1))][draw(st.sampled_from(("prompt", "output")))] = 0
    return rows


@st.composite
def cases(
    draw: st.DrawFn,
    *,
    is_async: bool | None = None,
    closed: bool | None = False,
    models: st.SearchStrategy[Blackbox] | None = None,
) -> Case:
    """Draw a whole case, under Blackbox unless told; ``closed`` None draws open and closed loops."""
    block_size = draw(st.sampled_from((4, 8, 16, 3, 2, 1)))
    rows = draw(request_rows(block_size=block_size))
    longest = max(row["prompt"] + row["output"] for row in rows)
    config = draw(configs(block_size=block_size, longest=longest, is_async=is_async))
    is_closed = draw(st.booleans()) if closed is None else closed
    loop = (draw(st.integers(1, 4)), draw(st.sampled_from((0, 1, 100, 777)))) if is_closed else None
    latency = draw(blackboxes() if models is None else models)
    return Case(requests=requests_of(rows), config=config, latency=latency, closed_loop=loop)


def any_model() -> st.SearchStrategy[Blackbox]:
    """Draw of every latency model the engine computes."""
    return st.one_of(blackboxes(), extendeds())


def assert_same_outcomes(ours: Outcomes, theirs: Outcomes) -> None:
    """Compare every column bit for bit."""
    for field in fields(Outcomes):
        np.testing.assert_array_equal(
            getattr(ours, field.name), getattr(theirs, field.name), err_msg=field.name
        )
