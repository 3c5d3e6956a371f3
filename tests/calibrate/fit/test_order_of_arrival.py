"""The search's step to alpha1 0, where no slope leads: which of two prompts comes first decides over seconds."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from calibrate.fit.objective.fit_trace import fit_trace
from calibrate.fit.search import in_order_of_arrival
from calibrate.fit.task import Task
from replay import TwinConfig
from sim import Blackbox, EngineConfig
from tests.calibrate.known_servers import observed, workload

ENGINE = EngineConfig(max_num_seqs=4, async_scheduling=False)
TRUTH = Blackbox(alpha0=10_000, alpha1=0, beta0=9000, beta1=40, beta2=200)
NAMES = ("alpha0", "alpha1")


@pytest.mark.parametrize("alpha1", [0.0, 30.0])
def test_alpha1_becomes_0_only_where_prompts_keep_their_order(alpha1: float) -> None:
    truth = TwinConfig(engine=ENGINE, latency=replace(TRUTH, alpha1=alpha1))
    trace = observed(workload(80, rate=60, seed=3, prompt=(800, 1.0)), truth)
    config = TwinConfig(engine=ENGINE, latency=TRUTH)
    found = fit_trace(trace, config, name="one")
    task = Task(traces=(found,), config=config, names=(), priors={}, seed=1, report=lambda _s, _l: None)
    objective = task.objective(NAMES)
    near = np.array([TRUTH.alpha0 - (0 if alpha1 else 20_000), 30.0])
    chosen = in_order_of_arrival(objective, np.maximum(near, 0))
    assert (chosen[1] == 0) == (alpha1 == 0)
    assert objective.evaluate(chosen) <= objective.evaluate(near)


def test_without_alpha1_nothing_changes() -> None:
    config = TwinConfig(engine=ENGINE, latency=TRUTH)
    found = fit_trace(observed(workload(20, rate=60, seed=3), config), config, name="one")
    task = Task(traces=(found,), config=config, names=(), priors={}, seed=1, report=lambda _s, _l: None)
    theta = np.array([5000.0])
    assert in_order_of_arrival(task.objective(("beta0",)), theta) is theta
