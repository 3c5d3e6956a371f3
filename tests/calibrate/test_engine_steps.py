from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from calibrate.compare.engine_steps import EngineSteps, read_steps, step_errors
from calibrate.findings import Options, Source
from calibrate.run import compare_with_twin
from replay import simulate_trace
from sim import Extended
from tests.calibrate.known_servers import SERVER, TRUTH, observed, workload
from traces.errors import TraceError

LOGGED = EngineSteps(
    prefill_tokens=np.array([100.0, 0, 0]),
    decode_tokens=np.array([0.0, 1, 4]),
    duration_us=np.array([18_000.0, 12_500, 14_000]),
)


def test_the_servers_own_coefficients_predict_its_steps_exactly() -> None:
    found = step_errors(LOGGED, SERVER, simulated=[])
    assert found is not None
    assert list(found.predicted_us) == list(LOGGED.duration_us)
    assert (found.mape, found.time_error) == (0, 0)


def test_a_step_that_takes_a_tenth_longer_than_predicted_is_an_error_of_an_eleventh() -> None:
    slow = replace(LOGGED, duration_us=1.1 * LOGGED.duration_us)
    found = step_errors(slow, SERVER, simulated=[])
    assert found is not None
    assert found.bias == pytest.approx(1 / 1.1 - 1)
    assert found.mape == pytest.approx(1 - 1 / 1.1)


def test_a_model_that_goes_by_context_is_asked_through_simulated_steps() -> None:
    twin = replace(SERVER, latency=Extended(**TRUTH, beta3=0.5))
    drawn = workload(60, rate=6, seed=1)
    steps = simulate_trace(drawn, twin, record="steps")[1].steps()
    logged = EngineSteps(
        prefill_tokens=np.array([step.P for step in steps], dtype=float),
        decode_tokens=np.array([step.D for step in steps], dtype=float),
        duration_us=np.array([step.dur for step in steps], dtype=float),
    )
    found = compare_with_twin(
        [Source(name="a", trace=observed(drawn, twin), steps=logged)], twin, Options(replicates=60)
    ).traces[0]
    assert found.steps is not None
    assert found.steps.mape is not None
    assert found.steps.mape < 0.03
    assert abs(found.steps.time_error or 1) < 0.01


def test_a_log_is_read_as_observe_writes_it(tmp_path: Path) -> None:
    file = tmp_path / "a.steps.csv"
    assert read_steps(file) is None
    file.write_text("engine,step,num_prefill_tokens,num_decode_tokens,duration_us\n0,0,5,2,1000\n")
    found = read_steps(file)
    assert found is not None
    assert (found.prefill_tokens[0], found.decode_tokens[0], found.duration_us[0]) == (5, 2, 1000)
    file.write_text("a,b\n1,2\n")
    with pytest.raises(TraceError, match=r"a\.steps\.csv: got .*, expected columns num_prefill_tokens"):
        read_steps(file)
