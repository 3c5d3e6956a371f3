"""The concave cost of more decoding sequences: found where it is there, and none where it is not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from calibrate.fit.objective.fit_trace import fit_trace
from calibrate.fit.objective.priors import CONCAVITY
from calibrate.fit.refinement import refine
from calibrate.fit.search import search
from calibrate.fit.task import Task
from replay import TwinConfig
from sim import Extended
from tests.calibrate.known_servers import observed, workload
from tests.studies.bench.slowdown import ENGINE, GUESS, SERVER


@pytest.mark.parametrize(("concavity", "beta2"), [(0.5, 900.0), (0.0, 150.0)])
def test_the_exponent_is_found_whichever_it_is(concavity: float, beta2: float) -> None:
    truth = replace(SERVER, kappa=0.0, sigma=0.0, concavity=concavity, beta2=beta2)
    server, config = TwinConfig(engine=ENGINE, latency=truth), TwinConfig(engine=ENGINE, latency=GUESS)
    traces = tuple(
        fit_trace(
            observed(
                workload(150, rate=rate, seed=i, prompt=(300, 0.5), output=(120, 0.5)), server, noise=0.02
            ),
            config,
            name=str(i),
        )
        for i, rate in enumerate((1, 5, 20))
    )
    twin = replace(config, latency=replace(truth, beta2=0.0, concavity=0.0))
    task = Task(traces=traces, config=twin, names=(), priors={}, seed=1, report=lambda _s, _l: None)
    objective = replace(task.objective(("beta2", "concavity")), priors={"concavity": CONCAVITY})
    theta = search(objective, [np.array([400.0, CONCAVITY.centre])], report=lambda _s, _l: None)
    found = refine(objective, theta, report=lambda _s, _l: None)
    assert found.theta[1] == pytest.approx(concavity, abs=0.06)
    at_sixty = found.theta[0] * 60 ** (1 - found.theta[1])
    assert at_sixty == pytest.approx(beta2 * 60 ** (1 - concavity), rel=0.05)


def test_a_power_of_one_is_the_straight_line_and_a_smaller_one_grows_ever_less() -> None:
    from sim import StepBatch

    decodes = np.arange(0, 200)
    none = np.zeros(200, np.int64)
    batch = StepBatch(
        num_prefill_tokens=none,
        num_decode_tokens=decodes,
        decode_context_tokens=none,
        prefill_pairs=none,
        num_prefill_seqs=none,
        prefill_context_tokens=none,
    )
    line, root = (Extended(beta2=1000, beta3=1, concavity=c).durations_us(batch) for c in (0.0, 0.5))
    np.testing.assert_array_equal(line, 1000 * decodes)
    np.testing.assert_allclose(root, 1000 * np.sqrt(decodes), atol=0.5)
    assert (np.diff(root)[1:] <= np.diff(root)[:-1] + 1).all()  # of whole microseconds
