"""The engine against vLLM's scheduler written once more in plain Python: same steps, blocks and outcomes."""

from __future__ import annotations

from dataclasses import fields

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from sim import Outcomes, Status, Step
from tests.examples import examples
from tests.sim.reference import NEVER, Reference, Request
from tests.sim.strategies import Case, assert_same_outcomes, cases, crowds

MANY_BLOCKS = 200
"""More than any drawn case can fill."""

KEYS = [field.name for field in fields(Step)]


def reference_outcomes(reference: Reference) -> Outcomes:
    """Return the reference's requests as the engine's columns."""
    rows = [
        {
            "status": r.status,
            "arrival_us": r.arrival_us if r.has_arrived else NEVER,
            "queued_us": queued_us(r),
            "taken_in_us": NEVER if r.scheduled_us == NEVER else r.taken_in_us,
            "scheduled_us": r.scheduled_us,
            "first_token_us": first_seen_us(reference, r),
            "last_token_us": reference.seen_us(r, len(r.token_times)),
            "num_output_tokens": len(r.token_times),
            "num_preemptions": r.num_preemptions,
            "preempted_us": r.preempted_us,
            "num_cached_tokens": r.hit,
            "num_loaded_tokens": NEVER,
            "load_wait_us": NEVER,
        }
        for r in reference.requests
    ]
    return Outcomes(**{field.name: np.array([row[field.name] for row in rows]) for field in fields(Outcomes)})


def first_seen_us(reference: Reference, request: Request) -> int:
    """Return when the client saw the first token, which it did not after it had given up."""
    seen_us = reference.seen_us(request, 1)
    gave_up = request.status == Status.TIMEOUT and seen_us > (request.deadline_us or 0)
    return NEVER if gave_up else seen_us


def queued_us(request: Request) -> int:
    """Return when a request came to the queue."""
    return request.queued_us if request.has_arrived else NEVER


def run_reference(case: Case) -> Reference:
    return Reference(case.requests, case.config, case.latency, closed_loop=case.closed_loop).run()


def bounded(case: Case) -> Case:
    """Return the case with a number of blocks in place of none: only then is the order of free blocks vLLM's."""
    return case if case.config.num_gpu_blocks else case.under(num_gpu_blocks=MANY_BLOCKS)


impatient = st.one_of(cases(closed=None, impatient=True, costly=True), crowds())


@examples(200)
@given(impatient)
def test_every_step_and_every_block_is_the_reference_s(case: Case) -> None:
    case = bounded(case)
    reference, simulation = run_reference(case), case.run(record="blocks")
    steps = simulation.steps()
    for mine, theirs in zip(steps, reference.steps, strict=False):
        assert {key: value for key in KEYS if (value := getattr(mine, key)) is not None} == theirs
    assert len(steps) == len(reference.steps)
    assert_same_outcomes(simulation.outcomes, reference_outcomes(reference))


@examples(200)
@given(impatient)
def test_jumps_and_the_unbounded_cache_end_as_the_reference_does(case: Case) -> None:
    assert_same_outcomes(case.run().outcomes, reference_outcomes(run_reference(bounded(case))))
