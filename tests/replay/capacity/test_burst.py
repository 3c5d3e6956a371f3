"""The rate that survives a burst, beside a capacity that does not."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import vtwin
from replay.capacity import burst
from replay.capacity.burst import AfterBurst, after_a_burst_at, left_after_burst
from replay.search.load import Load, load_of
from replay.twin.config_read import load_config
from traces import Header, make_trace, write_trace

TWIN = """\
engine: {max_num_seqs: 128, max_num_batched_tokens: 2048, num_gpu_blocks: 1500, max_model_len: 8192}
latency: {model: blackbox, coefficients: {alpha0: 0, alpha1: 0, alpha2: 0, beta0: 11000, beta1: 40, beta2: 41}}
cluster:
  instances: 4
  routing: {policy: weighted, scorers: {prefix-affinity: 3, queue-depth: 2}}
  snapshot_interval_us: 50000
"""
"""A router that lives from caches: once there are queues, it spreads each prefix over all servers."""
PLAIN = TWIN.partition("cluster:")[0]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("twin.yaml").write_text(TWIN)
    number, draw = 6000, np.random.default_rng(3)
    columns = {
        "request_id": [str(each) for each in range(number)],
        "arrival_time_us": np.cumsum(draw.exponential(1e5, number)).astype(np.int64),
        "input_tokens": 100,
        "output_tokens": 50,
        "prefix_group": [f"app{each}" for each in draw.integers(0, 16, size=number)],
        "prefix_length": 3000,
    }
    write_trace(make_trace(Header(mode="generated"), columns), "asked")


def load_on(twin: str) -> Load:
    from traces import read_trace

    Path("other.yaml").write_text(twin)
    return load_of(read_trace(Path("asked")), load_config(Path("other.yaml")))


def test_the_rate_that_survives_a_burst_stands_beside_a_capacity_that_does_not(
    capsys: pytest.CaptureFixture[str],
) -> None:
    call = "capacity --trace asked --config twin.yaml --slo ttft_p99=2s --no-binding --report page.html"
    assert vtwin.main(shlex.split(call)) == 0
    shown = capsys.readouterr().out
    assert "after a burst" in shown
    assert "after a burst" in Path("page.html").read_text()
    assert vtwin.main([*shlex.split(call), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    survives, left = found["after_burst"]["survives"], found["after_burst"]["left"]
    assert survives < left < 0.98 * found["rate"]
    load = load_on(TWIN)
    assert left_after_burst(load, survives) is None
    assert left_after_burst(load, 1.03 * survives) is not None


def test_a_server_whose_caches_outlast_a_queue_survives_at_its_capacity() -> None:
    assert after_a_burst_at(load_on(PLAIN.replace("1500", "6000")), 40.0) is None


def test_the_rate_is_looked_for_downwards_and_then_between(monkeypatch: pytest.MonkeyPatch) -> None:
    load: Any = None
    monkeypatch.setattr(burst, "left_after_burst", lambda _load, rate: None if rate <= 50 else 0.7 * rate)
    found = after_a_burst_at(load, 100.0)
    assert found is not None
    assert found.left_per_s == 70.0
    assert found.survives_per_s == pytest.approx(50.0, rel=0.02)
    assert after_a_burst_at(load, 50.0) is None
    monkeypatch.setattr(burst, "left_after_burst", lambda _load, rate: 0.7 * rate)
    assert after_a_burst_at(load, 100.0) == AfterBurst(survives_per_s=None, left_per_s=70.0)
