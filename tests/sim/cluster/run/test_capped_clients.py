"""A capped client: requests are due at their times and wait, first due, first sent, while so many are in flight."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from sim import Blackbox, EngineConfig, InvalidConfig, Status, simulate
from tests.examples import examples
from tests.sim.strategies import Case, any_model, assert_same_outcomes, cases, requests_of


def sent_by_a_semaphore(due_us: Sequence[int], ends_us: Sequence[int], cap: int) -> list[int]:
    """Return when a client with ``cap`` slots sends, by trying: each waits until fewer than ``cap`` are in flight."""
    sent: list[int] = []
    for due in due_us:
        now = max(due, sent[-1] if sent else 0)
        moments = [now, *sorted(end for end in ends_us[: len(sent)] if end > now)]
        under_way = [(begin, end) for begin, end in zip(sent, ends_us, strict=False)]
        sent.append(next(t for t in moments if sum(end > t for _, end in under_way) < cap))
    return sent


@examples(150)
@given(cases(model=any_model), st.integers(1, 5), st.booleans())
def test_a_capped_run_is_an_open_one_sent_as_a_semaphore_sends(case: Case, cap: int, coalesce: bool) -> None:
    """Both ways: the arrivals are the semaphore's for these ends, and arriving so gives these ends, to the bit."""
    case = replace(case, latency=replace(case.latency, alpha2=0))
    capped = replace(case, max_concurrency=cap).run(coalesce=coalesce).outcomes
    assume(bool((capped.status == Status.OK).all()))
    sent = sent_by_a_semaphore(case.requests.arrival_us.tolist(), capped.last_token_us.tolist(), cap)
    assert capped.arrival_us.tolist() == sent
    open_case = replace(case, requests=replace(case.requests, arrival_us=np.array(sent, np.int64)))
    assert_same_outcomes(capped, open_case.run().outcomes)


@examples(50)
@given(cases(model=any_model))
def test_a_cap_that_never_binds_changes_nothing(case: Case) -> None:
    assert_same_outcomes(
        replace(case, max_concurrency=len(case.requests)).run().outcomes, case.run().outcomes
    )


def test_who_waits_goes_in_the_order_of_due_times_not_of_rows() -> None:
    rows = [{"arrival_us": due, "prompt": 1, "output": 1} for due in (300, 0, 100, 5000)]
    outcomes = simulate(
        requests_of(rows), EngineConfig(async_scheduling=False), Blackbox(beta0=1000), max_concurrency=1
    ).outcomes
    assert outcomes.arrival_us.tolist() == [2000, 0, 1000, 5000]
    assert outcomes.last_token_us.tolist() == [3000, 1000, 2000, 6000]


def test_a_refusal_gives_its_slot_back() -> None:
    rows = [{"arrival_us": 0, "prompt": prompt, "output": 1} for prompt in (99, 5, 5)]
    outcomes = simulate(
        requests_of(rows),
        EngineConfig(max_model_len=20, async_scheduling=False),
        Blackbox(beta0=100),
        max_concurrency=1,
    ).outcomes
    assert outcomes.arrival_us.tolist() == [0, 0, 100]


@pytest.mark.parametrize("options", [{"max_concurrency": 0}, {"max_concurrency": 2, "closed_loop": (1, 0)}])
def test_a_cap_below_one_or_beside_a_loop_is_refused(options: dict[str, object]) -> None:
    with pytest.raises(InvalidConfig, match=r"^max_concurrency: got \d, expected an integer >= 1"):
        simulate(requests_of([]), EngineConfig(), Blackbox(), **options)  # type: ignore[arg-type]
