"""A run over time as CSV."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest

import vtwin

TWIN = """\
engine: {max_num_seqs: 8, max_num_batched_tokens: 512, num_gpu_blocks: 900, max_model_len: 8192}
latency:
  model: blackbox
  coefficients: {alpha0: 500, alpha1: 2, alpha2: 0, beta0: 6000, beta1: 30, beta2: 20}
"""
LOAD = ("--rate", "20", "--num-requests", "300", "--prompt-tokens", "600", "--output-tokens", "60")


@pytest.mark.parametrize("more", [(), ("--instances", "2")], ids=["one server", "two"])
def test_the_series_add_up_to_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], more: tuple[str, ...]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("twin.yaml").write_text(TWIN)
    assert vtwin.main(["run", "--config", "twin.yaml", *LOAD, *more, "--series", "s.csv", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    rows = list(csv.DictReader(Path("s.csv").read_text().splitlines()))
    assert len({row["instance"] for row in rows}) == (2 if more else 1)
    for column, total in (("num_routed", 300), ("num_completed", 300), ("prompt_tokens", 300 * 600)):
        assert sum(int(row[column]) for row in rows) == total
    assert sum(int(row["cached_tokens"]) for row in rows) == found["prefix_hit_frac"] * 300 * 600
    series = found["over_time"]["fleet"]["num_running"]
    by_time: dict[str, int] = {}
    for row in rows:
        by_time[row["until_us"]] = by_time.get(row["until_us"], 0) + int(row["num_running"])
    assert list(by_time.values()) == series


def test_tokens_of_steps_are_within_the_budget_and_their_means_exact(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("twin.yaml").write_text(TWIN)
    assert vtwin.main(["run", "--config", "twin.yaml", *LOAD, "--steps", "steps.jsonl", "--json"]) == 0
    steps = json.loads(capsys.readouterr().out)["steps"]
    tokens = steps["num_tokens"]
    assert tokens["max"] == tokens["p99"] == 512
    lines = [json.loads(line) for line in Path("steps.jsonl").read_text().splitlines()]
    busy = [line for line in lines if line["P"] + line["D"]]
    assert steps["num_seqs"]["n"] == len(busy)
    assert steps["num_prefill_tokens_mean"] == pytest.approx(np.mean([line["P"] for line in busy]))
    assert steps["num_decode_tokens_mean"] == pytest.approx(np.mean([line["D"] for line in busy]))
    assert tokens["mean"] == pytest.approx(np.mean([line["P"] + line["D"] for line in busy]))
    assert steps["duration_us"]["mean"] == pytest.approx(np.mean([line["dur"] for line in busy]))
