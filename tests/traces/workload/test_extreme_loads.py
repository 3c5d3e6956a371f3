"""Loads whose product is enormous are refused in one line, before anything is allocated."""

from __future__ import annotations

import pytest

from traces.errors import ConfigError
from traces.workload import trace_from_options
from traces.workload.options import WorkloadOptions


@pytest.mark.parametrize(
    "options",
    [
        WorkloadOptions(rate=1e6, duration=1e6),
        WorkloadOptions(rate=1, num_requests=100_000_000),
        WorkloadOptions(concurrency=8, num_requests=100_000_000),
        WorkloadOptions(rate=1e-13),
        WorkloadOptions(batch=10**7, waves=10**7),
        WorkloadOptions(stages="1e300:1e300s"),
        WorkloadOptions(stages="1000000000:1s,1:1000000001s"),
        WorkloadOptions(stages="1000000:100000s"),
        WorkloadOptions(rate=1, prompt_tokens=2**31),
    ],
    ids=str,
)
def test_a_load_beyond_all_measure_is_refused(options: WorkloadOptions) -> None:
    with pytest.raises(ConfigError, match="expected"):
        trace_from_options(options)
