"""A simulator used again and again gives the bits of `simulate`, whatever latency models came before."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from sim import Simulator, simulate
from tests.examples import examples
from tests.sim.strategies import Case, any_model, assert_same_outcomes, cases


@examples(60)
@given(
    cases(model=any_model), st.lists(cases(model=any_model), min_size=1, max_size=2), st.integers(-1, 2000)
)
def test_every_use_is_a_fresh_simulation(case: Case, others: list[Case], patience_us: int) -> None:
    requests, config = case.requests, case.config
    if patience_us >= 0:
        requests = replace(requests, deadline_us=requests.arrival_us + patience_us)
    pace = {"closed_loop": case.closed_loop, "max_concurrency": case.max_concurrency}
    simulator = Simulator(requests, config, **pace)  # type: ignore[arg-type] # each keyword has its own type
    for latency in (case.latency, *(other.latency for other in others), case.latency):
        expected = simulate(requests, config, latency, **pace).outcomes  # type: ignore[arg-type] # likewise
        assert_same_outcomes(simulator.outcomes(latency), expected)
