"""The memory that a cluster's run is said to take, against what it took; the logs that a run lets go of."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from replay.cluster.memory import bytes_needed
from replay.cluster.simulate import simulate_fleet
from replay.trace.pacing import pacing_of
from replay.twin.config_read import load_config
from traces import make_trace
from traces.header import Header

INSTANCES, REQUESTS = 300, 20_000
TWIN = f"""\
engine: {{max_model_len: 2048, max_num_batched_tokens: 2048, max_num_seqs: 64, num_gpu_blocks: 1000}}
latency: {{model: blackbox, coefficients: {{alpha0: 0, alpha1: 0, alpha2: 0, beta0: 6000, beta1: 20, beta2: 30}}}}
cluster: {{instances: {INSTANCES}, routing: {{policy: round-robin}}}}
"""
PEAK_OF_RUN = """
import sys, vtwin
code = vtwin.main({arguments})
peak = [line for line in open("/proc/self/status") if line.startswith("VmHWM:")]
sys.stderr.write(peak[0].split()[1])
sys.exit(code)
"""


@pytest.mark.skipif(not Path("/proc/self/status").is_file(), reason="Linux alone says what a process took")
def test_what_a_run_is_said_to_take_is_what_it_takes(tmp_path: Path) -> None:
    (tmp_path / "twin.yaml").write_text(TWIN)
    arguments = ["run", "--config", str(tmp_path / "twin.yaml"), "--rate", "6000"]
    arguments += ["--num-requests", str(REQUESTS), "--prompt-tokens", "200", "--output-tokens", "64"]
    arguments += ["--output", str(tmp_path / "out.parquet"), "--json"]
    code = PEAK_OF_RUN.format(arguments=arguments)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    took = int(done.stderr.splitlines()[-1]) * 1024
    config = load_config(tmp_path / "twin.yaml")
    said = bytes_needed(config.cluster, num_requests=REQUESTS)
    assert took / 1.3 < said < took * 1.3


def test_a_run_that_lets_go_of_its_logs_says_the_same_of_every_request(tmp_path: Path) -> None:
    (tmp_path / "twin.yaml").write_text(TWIN.replace(str(INSTANCES), "3"))
    config = load_config(tmp_path / "twin.yaml")
    rng = np.random.default_rng(3)
    columns = {
        "request_id": [str(number) for number in range(60)],
        "arrival_time_us": np.sort(rng.integers(0, 200_000, 60)),
        "input_tokens": rng.integers(1, 900, 60),
        "output_tokens": rng.integers(1, 30, 60),
    }
    trace = make_trace(Header(mode="generated"), columns)
    whole, light = (
        simulate_fleet(trace, config.cluster, pacing_of(trace, "auto"), keeps_logs=keeps)
        for keeps in (True, False)
    )
    for name in whole.trace.table.names:
        ours, theirs = whole.trace.cells(name), light.trace.cells(name)
        assert np.array_equal(ours.is_known, theirs.is_known)
        assert ours.known().tolist() == theirs.known().tolist()
    gaps, same = (run.simulation.inter_token_latencies() for run in (whole, light))
    assert np.array_equal(gaps.gaps_us, same.gaps_us)
    assert np.array_equal(gaps.counts, same.counts)
    logged = [sum(len(each.written.state.spans) for each in run.result.instances) for run in (whole, light)]
    assert logged[0] > logged[1] == 0
    with pytest.raises(RuntimeError, match="logs were freed"):
        light.simulation.written.of_requests(np.arange(3))  # type: ignore[attr-defined] # of a cluster
