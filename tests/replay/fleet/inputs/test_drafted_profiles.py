"""The profile of an engine with drafts: W and H per token that a request gets, as the engine itself takes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from replay import TwinConfig
from replay.fleet.check.drawn_requests import Stream, drawn
from replay.fleet.inputs.profiles import from_twin, mean_tokens
from sim import Blackbox, EngineConfig, simulate
from sim.fleet import Lengths

LENGTHS = Lengths(input_tokens=np.array([200.0]), output_tokens=np.array([200.0]))
TWIN = TwinConfig(
    engine=EngineConfig(
        max_num_seqs=16, num_gpu_blocks=4000, max_model_len=4096, async_scheduling=False, frontend="none"
    ),
    latency=Blackbox(alpha0=0, beta0=8000, beta1=40, beta2=60),
)


def drafting(twin: TwinConfig, *, rate: float) -> TwinConfig:
    engine = replace(
        twin.engine, num_speculative_tokens=3, synthetic_acceptance_rates=(rate,), draft_us=300.0
    )
    return replace(twin, engine=engine)


def test_w_and_h_with_drafts_are_a_steps_time_over_the_tokens_that_it_brings() -> None:
    found = from_twin(drafting(TWIN, rate=0.7), LENGTHS, context=4096, name="t").profile
    a_step = 1 + 0.7 + 0.49 + 0.343
    assert found.w_s == pytest.approx((0.008 + 3 * 300e-6) / a_step, rel=1e-6)
    assert found.iteration_s(10.0, mean_tokens(LENGTHS)) == pytest.approx(
        (0.008 + 3 * 300e-6 + 10 * 4 * 60e-6) / a_step, rel=1e-6
    )
    plain = from_twin(TWIN, LENGTHS, context=4096, name="t").profile
    assert plain.w_s == pytest.approx(0.008, rel=1e-6)


@pytest.mark.parametrize("rate", [0.2, 0.8])
def test_a_full_engine_with_drafts_answers_as_many_requests_as_its_profile_says(rate: float) -> None:
    source = from_twin(drafting(TWIN, rate=rate), LENGTHS, context=4096, name="t")
    requests = drawn(Stream(lengths=LENGTHS, rate_per_s=1e5), 600, seed=1)
    done = simulate(requests, source.engine, source.latency).outcomes
    seen = 600 / (float(done.last_token_us.max()) / 1e6)
    busy = source.profile.busy(LENGTHS)
    formula = 16 / (busy.mean_iterations * busy.iteration_s(16.0))
    assert formula == pytest.approx(seen, rel=0.12)
