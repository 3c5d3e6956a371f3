"""The drawn cases reach what the other tests are about: counted, so that an easy life is noticed."""

from __future__ import annotations

import importlib
from collections import Counter
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim import Outcomes, Status
from tests.examples import THOROUGH, examples, few_or_all
from tests.sim.strategies import Case, Setting, cases

DRAWN = few_or_all(150, 300)

AT_LEAST_FRAC = {
    "preemption": 0.1,
    "preemption, async": 0.015,
    "preemption, by urgency": 0.02,
    "preemption, prefix cache": 0.05,
    "hit": 0.15,
    "stuck": 0.05,
    "refused": 0.05,
    "a jump of several steps": 0.4,
    "several requests done at once": 0.08,
    "unbounded": 0.03,
    "long_prefill_token_threshold": 0.07,
    "enable_chunked_prefill": 0.015,
    "scheduler_reserve_full_isl": 0.005,
    "watermark": 0.02,
    "enable_prefix_caching": 0.15,
    "max_model_len": 0.1,
    "scheduling_policy": 0.1,
    "async_scheduling": 0.08,
}
"""What part of the drawn cases shows each; an option by name: it changes some outcome.

Often a third of what 1,500 cases show: hypothesis draws in clumps."""

WITHOUT: dict[str, Setting] = {
    "long_prefill_token_threshold": 0,
    "enable_chunked_prefill": True,
    "scheduler_reserve_full_isl": True,
    "watermark": 0.0,
    "enable_prefix_caching": False,
    "max_model_len": 1000,
    "scheduling_policy": "fcfs",
    "async_scheduling": False,
}


def differ(one: Outcomes, other: Outcomes) -> bool:
    return any(not np.array_equal(getattr(one, f.name), getattr(other, f.name)) for f in fields(Outcomes))


def what_happened(case: Case) -> set[str]:
    """Return which of AT_LEAST_FRAC a case shows."""
    simulation = case.run()
    outcomes, config = simulation.outcomes, case.config
    preempts = simulation.num_preemptions > 0
    finished = outcomes.last_token_us[outcomes.status == Status.OK]
    seen = {
        "preemption": preempts,
        "preemption, async": preempts and config.async_scheduling,
        "preemption, by urgency": preempts and config.scheduling_policy != "fcfs",
        "preemption, prefix cache": preempts and config.enable_prefix_caching,
        "hit": bool(np.any(outcomes.num_cached_tokens > 0)),
        "stuck": Status.STUCK in outcomes.status,
        "refused": Status.REJECTED in outcomes.status,
        "a jump of several steps": case.run(coalesce=False).num_steps > simulation.num_jumps + 5 > 6,
        "several requests done at once": len(set(finished.tolist())) < len(finished),
        "unbounded": config.num_gpu_blocks == 0,
    }
    for name, value in WITHOUT.items():
        seen[name] = differ(case.under(**{name: value}).run().outcomes, outcomes)
    return {name for name, is_seen in seen.items() if is_seen}


def test_the_cases_are_hard_enough() -> None:
    counts: Counter[str] = Counter()

    @examples(DRAWN, is_counted=True)
    @given(cases())
    def count(case: Case) -> None:
        counts.update(what_happened(case))
        counts["drawn"] += 1

    count()
    fracs = {name: counts[name] / counts["drawn"] for name in AT_LEAST_FRAC}
    too_rare = {name: frac for name, frac in fracs.items() if frac < AT_LEAST_FRAC[name]}
    assert not too_rare


def drawn_numbers() -> list[int]:
    seen: list[int] = []

    @examples(100, is_counted=True)
    @given(st.lists(st.integers(), min_size=20))
    def draws(numbers: list[int]) -> None:
        seen.extend(numbers)

    draws()
    return seen


@pytest.mark.skipif(bool(THOROUGH), reason="cases differ from run to run")
def test_a_module_with_new_numbers_changes_no_draw(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = drawn_numbers()
    numbers = range(7_000_001, 7_000_400)
    (tmp_path / "has_new_numbers.py").write_text(f"NUMBERS = {list(numbers)}\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.import_module("has_new_numbers")
    after = drawn_numbers()
    assert not set(after) & set(numbers)
    assert after == before
