from dataclasses import replace

import numpy as np
import pytest

from calibrate.calibration_run import compare_with_twin
from calibrate.findings import Options
from calibrate.noise_floor import couples_of
from tests.calibrate.known_servers import SERVER, observed, source, workload
from traces import Trace, same_requests
from traces.errors import TraceError

QUICK = Options(replicates=60)


def run(seed: int, *, again: int = 0, n: int = 60) -> Trace:
    return observed(workload(n, rate=6, seed=seed), noise=0.05, seed=100 * seed + again)


def test_a_run_of_the_same_requests_is_recognised_and_is_the_noise_floor() -> None:
    sources = [source("a", run(1)), source("b", run(2)), source("again", run(1, again=1))]
    found = compare_with_twin(sources, SERVER, QUICK)
    assert found.noise is not None
    assert found.noise.couples == (("a", "again"),)
    one, other = (
        s.trace.column("content_first_time_us") - s.trace.column("send_time_us") for s in sources[::2]
    )
    apart = np.abs(other.to_numpy(float) / one.to_numpy(float) - 1).mean()
    assert found.noise_floor["ttft_us"].mape.value == pytest.approx(apart)
    assert found.noise.accuracy.rates["request_throughput"].n == 60


def test_a_named_repeat_takes_no_other_part() -> None:
    found = compare_with_twin(
        [source("a", run(1))], SERVER, QUICK, repeats=[source("again", run(1, again=1))]
    )
    assert found.noise is not None
    assert found.holdout["ttft_us"].n == 60
    assert [each.source.name for each in found.traces] == ["a"]
    assert compare_with_twin([source("a", run(1))], SERVER, QUICK).noise is None


def test_a_repeat_of_nothing_is_refused() -> None:
    with pytest.raises(TraceError, match="--repeat b: got requests that none of a has"):
        couples_of([source("a", run(1))], [source("b", run(2))])


def test_a_copy_of_a_run_is_no_second_run() -> None:
    one = replace(source("a", run(1)), digest="1")
    copied = replace(one, name="copy")
    assert couples_of([one, copied], []) == []
    with pytest.raises(TraceError, match="in a run of its own"):
        couples_of([one], [copied])


@pytest.mark.parametrize("column", ["input_tokens", "output_tokens", "arrival_time_us", "prefix_length"])
def test_what_differs_in_one_request_is_not_the_same_load(column: str) -> None:
    one = run(1)
    values = one.requests[column].copy()
    values[3] += 1
    assert same_requests(one, run(1, again=1))
    assert not same_requests(one, one.with_columns(**{column: values}))
