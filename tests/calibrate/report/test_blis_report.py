"""The peer's fields: its own report of its own sample, recomputed."""

import json
from pathlib import Path

import numpy as np
import pytest

from calibrate.calibration_run import compare_with_twin
from calibrate.findings import Options
from calibrate.report.blis_report import blis_metric, blis_report, quality
from tests.calibrate.known_servers import GUESS, observed, source, workload
from traces import read_trace

DATA = Path(__file__).parents[1] / "data"
SAMPLE = Path(__file__).parents[2] / "traces" / "data" / "p.csv"
RTT_US = 1000  # the sample's header


def test_the_peers_own_report_is_reproduced_from_its_own_files() -> None:
    told = json.loads((DATA / "p.rep.json").read_text())["metrics"]
    rows = read_trace(SAMPLE).requests
    simulated = {row["request_id"]: row for row in json.loads((DATA / "p.json").read_text())}
    for name, last in (("ttft", "first_chunk_time_us"), ("e2e", "last_chunk_time_us")):
        real = (rows[last] - rows["send_time_us"]).to_numpy(float)
        there = np.array([simulated[int(i)][f"{name}_us"] for i in rows["request_id"]]) + RTT_US
        found = blis_metric(real, there)
        assert found["count"] == told[name]["count"]
        assert found["workload_level"] == pytest.approx(told[name]["workload_level"])
        for key in ("bias_direction", "quality"):
            assert found["request_level"][key] == told[name]["request_level"][key]
        for key in ("mape", "pearson_r"):
            assert found["request_level"][key] == pytest.approx(told[name]["request_level"][key])


def test_a_calibration_is_written_with_the_peers_keys() -> None:
    trace = observed(workload(40, rate=6, seed=1))
    found = compare_with_twin([source("a", trace)], GUESS, Options(replicates=60, slo_us={"e2e": 1e6}))
    report = blis_report(found)
    sample = json.loads((DATA / "p.rep.json").read_text())
    assert set(sample) <= set(report)
    assert set(sample["metrics"]) == set(report["metrics"])
    assert set(sample["metrics"]["e2e"]["workload_level"]) == set(report["metrics"]["e2e"]["workload_level"])
    assert report["trace_info"]["matched_pairs"] == 40
    assert report["goodput"]["default"]["count"] == 40
    json.dumps(report, allow_nan=False)


@pytest.mark.parametrize(
    ("mape", "r", "word"),
    [
        (0.05, 0.99, "excellent"),
        (0.05, 0.9, "good"),
        (0.3, 0.8, "fair"),
        (0.05, 0.5, "poor"),
        (0.5, 1.0, "poor"),
    ],
)
def test_the_words_are_the_peers(mape: float, r: float, word: str) -> None:
    assert quality(mape, r) == word
