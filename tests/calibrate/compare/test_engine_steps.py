import tarfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from calibrate.calibration_run import compare_with_twin
from calibrate.command import source_at
from calibrate.compare.engine_steps import EngineSteps, as_step_times, read_steps, step_errors
from calibrate.findings import NamedTrace, Options
from replay import simulate_trace
from sim import Extended
from tests.calibrate.known_servers import SERVER, TRUTH, observed, workload
from traces import read_trace, write_trace
from traces.errors import TraceError

H100 = Path(__file__).parents[2] / "studies" / "validation" / "h100"

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
        [NamedTrace(name="a", trace=observed(drawn, twin), steps=logged)], twin, Options(replicates=60)
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


@pytest.mark.parametrize("wrong", [-1, 1e300, "nan"])
def test_a_log_with_a_number_that_cannot_be_is_refused(wrong: object, tmp_path: Path) -> None:
    file = tmp_path / "a.steps.csv"
    file.write_text(f"num_prefill_tokens,num_decode_tokens,duration_us\n5,2,{wrong}\n")
    with pytest.raises(TraceError, match=r"got duration_us that is not in \[0"):
        read_steps(file)


def test_steps_of_a_log_with_full_times_last_from_one_end_to_the_next(tmp_path: Path) -> None:
    file = tmp_path / "a.steps.csv"
    file.write_text(
        "engine,step,num_prefill_tokens,num_decode_tokens,duration_us,end_unix_us\n"
        "0,0,50,0,10,1000000\n"
        "0,1,0,1,10,1006500\n"
        "1,0,9,0,10,1007000\n"
        "0,2,0,1,10,1013000\n"
        "0,3,70,0,10,9000000\n"
        "1,1,0,1,10,1007400\n"
    )
    found = read_steps(file)
    assert found is not None
    assert found.is_by_end
    assert list(found.duration_us) == [0, 6_500, 0, 6_500, 0, 400]  # 0: the engine may have waited for work


def test_logged_waits_that_leave_most_of_the_busy_time_out_are_no_step_times(tmp_path: Path) -> None:
    drawn = observed(workload(60, rate=6, seed=1), SERVER)
    steps = simulate_trace(workload(60, rate=6, seed=1), SERVER, record="steps")[1].steps()
    whole = EngineSteps(
        prefill_tokens=np.array([step.P for step in steps], dtype=float),
        decode_tokens=np.array([step.D for step in steps], dtype=float),
        duration_us=np.array([step.dur for step in steps], dtype=float),
    )
    assert as_step_times(whole, drawn) == (whole, None)
    waits = replace(whole, duration_us=0.55 * whole.duration_us)
    kept, remark = as_step_times(waits, drawn)
    assert kept is None
    assert "engine steps left out: their logged times add up to 5" in (remark or "")
    by_end = replace(waits, is_by_end=True)
    assert as_step_times(by_end, drawn) == (by_end, None)

    write_trace(drawn, tmp_path / "a")
    rows = zip(waits.prefill_tokens, waits.decode_tokens, waits.duration_us, strict=True)
    table = ["num_prefill_tokens,num_decode_tokens,duration_us", *(f"{p:g},{d:g},{t:g}" for p, d, t in rows)]
    (tmp_path / "a.steps.csv").write_text("\n".join(table) + "\n")
    source = source_at(tmp_path / "a", "a")
    assert source.steps is None
    notes = compare_with_twin([source], SERVER, Options(replicates=60)).traces[0].notes
    assert any("engine steps left out" in note for note in notes)


def test_an_h100s_logged_waits_are_half_of_its_steps_and_the_ends_of_steps_account_for_all(
    tmp_path: Path,
) -> None:
    with tarfile.open(H100 / "traces.tar.xz") as archive:
        archive.extractall(
            tmp_path, [each for each in archive if each.name.startswith("r80.")], filter="data"
        )
    trace, by_end = read_trace(tmp_path / "r80"), read_steps(tmp_path / "r80.steps.csv")
    assert by_end is not None
    busy = trace.requests["last_chunk_time_us"].max() - trace.requests["send_time_us"].min()
    assert by_end.duration_us.sum() == pytest.approx(busy, rel=0.01)
    table = pd.read_csv(tmp_path / "r80.steps.csv").drop(columns="end_unix_us")
    table.to_csv(tmp_path / "r80.steps.csv", index=False)
    waits = read_steps(tmp_path / "r80.steps.csv")
    assert waits is not None
    kept, remark = as_step_times(waits, trace)
    assert kept is None
    assert "add up to 4" in (remark or "")
