"""A cluster over time: the JSON's series against the trace, and the page's pictures against the series."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from replay import load_config
from replay.cluster.over_time import (
    decode_peak_us,
    prefill_peak_us,
    stretches,
    summarize_over_time,
    under_way,
)
from replay.cluster.simulate import simulate_fleet
from replay.model.gpus import find_gpu
from replay.model.hf_config import read_model_config
from replay.model.model_peak import peak_times
from replay.trace.pacing import pacing_of
from sim.cluster.results.watching import Watch
from sim.records.looks import LooksTaken
from tests.examples import examples
from traces import Trace, read_trace
from traces.pages.spread import spread
from traces.workload import trace_from_options
from traces.workload.options import WorkloadOptions
from vtwin import main

TWIN = """\
engine: {max_num_seqs: 8, max_num_batched_tokens: 512, num_gpu_blocks: 200, max_model_len: 4096}
hardware: H100
latency:
  model: blackbox
  model_config: Qwen/Qwen3-0.6B
  coefficients: {alpha0: 800, alpha1: 1.0, alpha2: 3, beta0: 5000, beta1: 20, beta2: 31}
"""
CLUSTERS = {
    "alike": "cluster: {instances: 3, routing: {policy: least-loaded}}\n",
    "queue": "cluster:\n  instances: 3\n  flow_control: {detector: concurrency, max_concurrency: 4}\n",
    "pools": "cluster:\n  pools:\n    - {name: p, role: prefill}\n    - {name: d, role: decode, instances: 2}\n",
}
RUN = ("--rate", "40", "--num-requests", "200", "--prompt-tokens", "250", "--output-tokens", "25")


def run(
    folder: Path, capsys: pytest.CaptureFixture[str], text: str, *more: str
) -> tuple[Trace, dict[str, Any], str]:
    """Return the trace, the document and the page of a run."""
    (folder / "twin.yaml").write_text(text)
    capsys.readouterr()
    page = folder / "page.html"
    options = (
        "--config",
        str(folder / "twin.yaml"),
        "--output",
        str(folder / "out"),
        "--overwrite",
        "--json",
    )
    assert main(["run", *RUN, *more, *options, "--report", str(page)]) == 0
    return read_trace(folder / "out"), json.loads(capsys.readouterr().out), page.read_text()


@pytest.mark.parametrize("name", CLUSTERS)
def test_the_series_add_up_to_the_trace(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace, document, page = run(tmp_path, capsys, TWIN + CLUSTERS[name])
    found = document["over_time"]
    assert found["time_us"][-1] == document["duration_us"]
    assert 59 <= len(found["time_us"]) <= 121
    own = trace.column("instance").value_counts()
    for each in found["instances"]:
        if not each["name"].startswith("p"):
            assert sum(each["num_routed"]) == sum(each["num_completed"]) == own[each["name"]]
    assert sum(found["num_arrived"]) == len(trace)
    for pool in found["pools"]:
        own_name = f"{pool['name']}/" if name == "pools" else ""
        alike = [each for each in found["instances"] if each["name"].startswith(own_name)]
        for key in ("num_waiting", "num_running", "num_routed"):
            assert pool[key] == np.sum([each[key] for each in alike], axis=0).tolist()
    assert max(found["fleet"]["kv_usage_frac"]) > 0
    assert all(0 <= share <= 1 for share in found["fleet"]["busy_frac"])
    ended = [name for name in ("num_running", "num_waiting") if found["fleet"][name][-1]]
    assert ended == []
    assert (found["num_at_gateway"] is not None) == (name == "queue")
    assert (found["num_transfers"] is not None) == (name == "pools")
    assert "Instances over time" in page
    assert ("Pools over time" in page) == (name == "pools")
    assert ("KV transfers under way" in page) == (name == "pools")
    assert ("gateway&#39;s queue" in page or "gateway&#39;s queue" in page) == (name == "queue")


def test_the_page_s_cells_say_what_the_series_say_and_run_no_script(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, document, page = run(tmp_path, capsys, TWIN + CLUSTERS["alike"])
    found = document["over_time"]
    picture = page.split('id="instances"', 1)[1].split("KV cache in use", 2)[1]
    assert "<script" not in page
    assert re.findall(r'(?:src|href)="(?!#)', page) == []
    said = re.findall(r"<title>(\d) · [\d.,]+ to [\d.,]+ s · ([\d.e-]+) %</title>", picture)
    shares = [float(share) for name, share in said if name == "1"]
    per_cell = np.array_split(np.array(found["instances"][1]["kv_usage_frac"]), len(shares))
    assert len(shares) == min(60, len(found["time_us"]))
    lengths = np.array_split(np.diff(found["time_us"], prepend=0), len(shares))
    for share, values, widths in zip(shares, per_cell, lengths, strict=True):
        assert share == pytest.approx(100 * np.average(values, weights=widths), abs=0.06)


def test_a_fleet_on_an_unknown_gpu_has_no_mfu_and_its_table_has_the_kv_in_use(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "twin.yaml").write_text(TWIN.replace("hardware: H100\n", "") + CLUSTERS["alike"])
    arguments = ["run", *RUN, "--config", str(tmp_path / "twin.yaml")]
    assert main([*arguments, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["over_time"]["fleet"]["mfu_frac"] is None
    assert main(arguments) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines() if line[:1].isdigit()]
    used = [f"{each['kv_usage_frac']:.1%}" for each in found["instances"]]
    assert [row[5] for row in rows] == used
    series = found["over_time"]["instances"][1]["kv_usage_frac"]
    lengths = np.diff(found["over_time"]["time_us"], prepend=0)
    assert found["instances"][1]["kv_usage_frac"] == pytest.approx(
        np.average(series, weights=lengths), abs=1e-4
    )


@examples(30)
@given(st.integers(0, 1 << 30))
def test_what_is_spread_is_what_each_moment_gives(seed: int) -> None:
    rng = np.random.default_rng(seed)
    ends = np.cumsum(rng.integers(1, 50, rng.integers(1, 9))).astype(np.float64)
    n = int(rng.integers(0, 6))
    start = rng.integers(0, 120, n)
    end = start + rng.integers(0, 90, n)
    amount, where = rng.random(n), rng.integers(0, 2, n).astype(np.int32)
    expected = np.zeros((len(ends), 2))
    starts = np.append(0.0, ends[:-1])
    for i in range(n):
        last = max(end[i], start[i] + 1)
        for k in range(len(ends)):
            shared = max(0.0, min(last, ends[k]) - max(start[i], starts[k]))
            expected[k, where[i]] += amount[i] * shared / (last - start[i])
    found = spread(ends, start, end, amount, where=where, num_places=2)
    np.testing.assert_allclose(found, expected, atol=1e-9)


@pytest.mark.parametrize("window", [0, 7])
def test_peak_time_is_that_of_every_token_on_its_own(window: int) -> None:
    shape = read_model_config("Qwen/Qwen3-0.6B")
    peak = replace(
        peak_times(shape, find_gpu("H100")),
        window=window,
        windowed_prefill_pair=0.3 if window else 0.0,
        windowed_decode_entry=0.2 if window else 0.0,
    )
    prompt, cached, output = 23, 16, 9

    def seen(position: int) -> int:
        return min(position, window) if window else 0

    prefill = sum(
        peak.matmul + peak.prefill_pair * k + peak.windowed_prefill_pair * seen(k)
        for k in range(cached + 1, prompt + 1)
    )
    decode = sum(
        peak.matmul + peak.head_matmul + peak.decode_entry * k + peak.windowed_decode_entry * seen(k)
        for k in range(prompt + 1, prompt + output)
    )
    ours = prefill_peak_us(peak, np.array([float(prompt)]), np.array([float(cached)]))
    assert ours[0] == pytest.approx(prefill + peak.head_matmul)
    assert decode_peak_us(peak, np.array([float(prompt)]), np.array([float(output)]))[0] == pytest.approx(
        decode
    )


def test_what_is_under_way_has_begun_and_not_ended() -> None:
    times = np.array([10.0, 20.0, 30.0])
    start, end = np.array([5, 15, 20, -1]), np.array([20, 25, -1, -1])
    assert under_way(times, start, end) == [1, 2, 1]


def _without_guess(begin: Callable[..., None]) -> Callable[..., None]:
    return lambda looks, **given: begin(looks, **{**given, "last_arrival_us": 0})


@pytest.mark.parametrize(
    ("load", "max_concurrency"), [({"rate": 40.0}, None), ({"rate": 40.0}, 6), ({"concurrency": 12}, None)]
)
def test_one_server_over_time_is_a_cluster_of_one_that_goes_from_event_to_event(
    load: dict[str, Any], max_concurrency: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the times at which both were looked at, every series is the same."""
    (tmp_path / "one.yaml").write_text(TWIN)
    twin = load_config(tmp_path / "one.yaml")
    trace = trace_from_options(WorkloadOptions(num_requests=200, prompt_tokens=250, output_tokens=25, **load))
    pacing = pacing_of(trace, "auto", at="arrival", max_concurrency=max_concurrency)
    monkeypatch.setattr("sim.cluster.results.watching.LEAST_INTERVAL_US", 1)
    for each in (LooksTaken, Watch):  # their guesses at the run's length differ where clients wait
        monkeypatch.setattr(each, "__init__", _without_guess(each.__init__))
    documents = []
    for is_direct in (True, False):
        monkeypatch.setattr(
            "sim.cluster.cluster_simulation.is_direct", lambda *_, is_direct=is_direct: is_direct
        )
        done = simulate_fleet(trace, twin.cluster, pacing, points=60)
        found = stretches(done, twin.peaks)
        assert found is not None
        documents.append(summarize_over_time(found, done, twin.cluster))
    assert documents[0] == documents[1]
    assert 60 <= len(documents[0]["time_us"]) <= 120


def test_one_server_s_json_has_what_it_did_over_time(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace, document, page = run(tmp_path, capsys, TWIN)
    found = document["over_time"]
    assert found["time_us"][-1] == document["duration_us"]
    assert 60 <= len(found["time_us"]) <= 120
    assert [each["name"] for each in found["pools"] + found["instances"]] == ["0", "0"]
    assert found["num_at_gateway"] is found["num_transfers"] is None
    assert sum(found["num_arrived"]) == len(trace)
    assert sum(found["fleet"]["num_routed"]) == sum(found["fleet"]["num_completed"]) == len(trace)
    busy = np.average(found["fleet"]["busy_frac"], weights=np.diff(found["time_us"], prepend=0))
    assert 0.5 < busy <= 1
    assert "Instances over time" not in page
    _, sessions, page = run(tmp_path, capsys, TWIN, "--rounds", "2", "--think-time", "100ms")
    assert sum(sessions["over_time"]["fleet"]["num_completed"]) == 200
    assert "Instances over time" not in page
