"""Queueing theory's exact laws, which need no distribution: Lindley's recursion and Little's law."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import assume, given
from hypothesis import strategies as st

from sim import Blackbox, EngineConfig, Status
from tests.examples import examples
from tests.sim.strategies import Case, any_model, cases, requests_of

LENGTHS = st.lists(
    st.tuples(st.integers(0, 400), st.integers(1, 300), st.integers(1, 40)), min_size=1, max_size=30
)
"""(time since the arrival before, prompt, output) of each request."""


def single_server(lengths: list[tuple[int, int, int]], latency: Blackbox) -> Case:
    """Return a sync engine that serves one request at a time, each prompt in one step."""
    arrival_us = np.cumsum([gap for gap, *_ in lengths]).tolist()
    rows = [
        {"arrival_us": at, "prompt": prompt, "output": output}
        for at, (_, prompt, output) in zip(arrival_us, lengths, strict=True)
    ]
    config = EngineConfig(
        max_num_seqs=1, max_num_batched_tokens=1000, enable_prefix_caching=False, async_scheduling=False
    )
    return Case(requests=requests_of(rows), config=config, latency=latency)


@examples(100)
@given(LENGTHS, st.integers(1, 50))
def test_one_at_a_time_in_constant_steps_is_lindley_s_recursion(
    lengths: list[tuple[int, int, int]], step_us: int
) -> None:
    """W(n + 1) = max(0, W(n) + S(n) - A(n)), S = outputs x step: Lindley 1952, eq. 1."""
    outcomes = single_server(lengths, Blackbox(beta0=step_us)).run().outcomes
    wait_us, expected = 0, [0]
    for (_, _, output), (gap_us, _, _) in pairwise(lengths):
        wait_us = max(0, wait_us + output * step_us - gap_us)
        expected.append(wait_us)
    assert (outcomes.scheduled_us - outcomes.arrival_us).tolist() == expected
    served_us = outcomes.last_token_us - outcomes.scheduled_us
    assert served_us.tolist() == [output * step_us for _, _, output in lengths]


@examples(50)
@given(LENGTHS)
def test_one_at_a_time_under_blackbox_is_lindley_s_recursion_too(lengths: list[tuple[int, int, int]]) -> None:
    outcomes = single_server(lengths, Blackbox(beta0=7, beta1=2, beta2=3)).run().outcomes
    service_us = [7 + 2 * prompt + (output - 1) * (7 + 3) for _, prompt, output in lengths]
    wait_us, expected = 0, [0]
    for service, (gap_us, _, _) in zip(service_us, lengths[1:], strict=False):
        wait_us = max(0, wait_us + service - gap_us)
        expected.append(wait_us)
    assert (outcomes.scheduled_us - outcomes.arrival_us).tolist() == expected


@examples(150)
@given(cases(model=any_model))
def test_little_s_law_holds_to_the_microsecond_on_every_path(case: Case) -> None:
    """The integral over time of how many are in the engine is the sum of how long each was (Little 1961).

    Left: counts at every scheduling decision times how long they stood. Right: from the decision that saw a
    request to its last token. Both are integers.
    """
    case = case.under(num_gpu_blocks=0) if Status.STUCK in case.run().outcomes.status else case
    simulation = case.run(record="steps")
    outcomes, steps = simulation.outcomes, simulation.steps()
    assume(Status.STUCK not in outcomes.status)
    ok = outcomes.status == Status.OK
    if case.config.async_scheduling:
        until_us = [*(step.t for step in steps[1:]), *(step.t_end for step in steps[-1:])]
    else:
        until_us = [step.t_end for step in steps]
    in_engine_us = sum(
        (step.running + step.waiting) * (end_us - step.t)
        for step, end_us in zip(steps, until_us, strict=True)
    )
    starts_us = np.array([step.t for step in steps], np.int64)
    seen_us = starts_us[np.searchsorted(starts_us, outcomes.queued_us[ok])]
    done_us = outcomes.last_token_us[ok] - case.latency.output_delay_us(outcomes.num_output_tokens[ok])
    assert in_engine_us == (done_us - seen_us).sum()
