"""Prefill and decode pools beside one pool: both as a direct ``run`` of the same fleets has them; in one sentence."""

from __future__ import annotations

import inspect
import json
from dataclasses import replace
from pathlib import Path

import pytest

import vtwin
from replay import disaggregate_fleet, size_fleet
from replay.fleet.plans.beside import ComparedFleet, FleetsCompared
from replay.fleet.told.beside_text import beside_sentence
from tests.studies.validation.fleet_traces import CASES, trace_at, twin_at

(PLAIN,) = (each for each in CASES if each.name == "prefix groups")
BYTES = 131072
RATE = 90
ASKED = ["--rate", str(RATE), "--slo", "ttft_p99=300ms", "--num-requests", "16000", "--json"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    trace_at(PLAIN, tmp_path / "trace")
    twin_at(PLAIN, tmp_path / "twin.yaml")
    return tmp_path


def told(capsys: pytest.CaptureFixture[str], *words: str) -> dict:  # type: ignore[type-arg] # a document
    capsys.readouterr()
    assert vtwin.main(list(words)) == 0
    return json.loads(capsys.readouterr().out)  # type: ignore[no-any-return]


def run_of(capsys: pytest.CaptureFixture[str], folder: Path, config: str, *more: str) -> dict:  # type: ignore[type-arg] # a document
    words = ["--config", str(folder / config), "--like", str(folder / "trace"), "--rate", str(RATE)]
    words += ["--num-requests", "16000", "--seed", "8", "--measure", "8s:170s", "--json", *more]
    return told(capsys, "run", *words)


def test_both_fleets_are_what_run_makes_of_them(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The same engines, sent the same trace at the same rate by ``vtwin run`` with another seed."""
    words = ["--workload", str(folder / "trace"), "--profile", str(folder / "twin.yaml"), *ASKED]
    found = told(capsys, "fleet", "size", "--layout", "disagg", *words, "--kv-bytes-per-token", str(BYTES))[
        "beside"
    ]
    one, split = found["one_pool"], found["disaggregated"]
    direct = run_of(capsys, folder, "twin.yaml", "--instances", one["engines"], "--routing", "least-loaded")
    prefill, decode = split["engines"].split(" + ")
    pools = f"""cluster:
  pools:
    - {{name: prefill, role: prefill, instances: {prefill}}}
    - {{name: decode, role: decode, instances: {decode}}}
  routing: {{policy: least-loaded}}
  disaggregation: {{decider: always, kv_bandwidth_gbps: 25, kv_bytes_per_token: {BYTES}}}
"""
    (folder / "split.yaml").write_text((folder / "twin.yaml").read_text() + pools)
    both = ((one, direct), (split, run_of(capsys, folder, "split.yaml")))
    for side, seen in both:
        for name, key in (("ttft", "ttft_us"), ("e2e", "e2e_us"), ("tpot", "tpot_us")):
            assert side["verified"][f"{name}_p99_us"] == pytest.approx(seen[key]["p99"], rel=0.2), name
    assert one["gpus"] == int(one["engines"])
    assert split["gpus"] == int(prefill) + int(decode)


def test_both_layouts_are_sized_by_runs_of_the_same_length() -> None:
    size, disagg = (
        inspect.signature(each).parameters["check"].default for each in (size_fleet, disaggregate_fleet)
    )
    assert size == disagg


def test_a_run_that_is_too_short_to_tell_is_said_below_the_rows(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--workload", str(folder / "trace"), "--profile", str(folder / "twin.yaml"), *ASKED[:-1]]
    words[words.index("16000")] = "1000"
    assert vtwin.main(["fleet", "size", "--layout", "disagg", *words]) == 0
    said = capsys.readouterr().out
    assert "one pool: TTFT p99 is known to ±" in said or "one pool: the intervals are from" in said


def test_the_screen_begins_with_the_sentence_and_both_rows(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--workload", str(folder / "trace"), "--profile", str(folder / "twin.yaml"), *ASKED[:-1]]
    assert vtwin.main(["fleet", "size", "--layout", "disagg", *words]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "E2E p99" in lines[0]
    assert "in one pool" in lines[0]
    assert lines[2].startswith("one pool")
    assert lines[3].startswith("prefill + decode")
    assert vtwin.main(["fleet", "size", "--layout", "disagg", *words, "--no-beside", "--no-verify"]) == 0
    assert "one pool" not in capsys.readouterr().out


def test_a_split_that_takes_more_gpus_stands_beside_one_pool_of_as_many(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--workload", str(folder / "trace"), "--profile", str(folder / "twin.yaml"), *ASKED]
    words[words.index("--rate") + 1] = "12"
    words[words.index("--num-requests") + 1] = "4000"
    found = told(capsys, "fleet", "size", "--layout", "disagg", *words, "--kv-bytes-per-token", str(BYTES))[
        "beside"
    ]
    one, split, equal = found["one_pool"], found["disaggregated"], found["one_pool_of_as_many"]
    assert one["gpus"] < split["gpus"] == equal["gpus"]
    assert equal["verified"]["e2e_p99_us"] < one["verified"]["e2e_p99_us"]
    assert f"One pool of {split['gpus']}: E2E p99" in found["sentence"]


def test_the_sentence_says_which_takes_fewer_gpus_and_which_is_not_there() -> None:
    one = ComparedFleet(
        name="one pool", engines="3", gpus=3, cost_per_hour=0, ttft_p99_s=0.2, tpot_s=0.01, seen=None
    )
    split = replace(one, name="prefill + decode", engines="1 + 2", ttft_p99_s=0.1)
    times = "TTFT p99 100 ms split, 200 ms in one pool, by formula"
    assert beside_sentence(FleetsCompared(one=one, split=split)) == (
        f"3 GPUs either way; prefill and decode pools answer faster. {times}"
    )
    larger = replace(split, gpus=4)
    assert beside_sentence(FleetsCompared(one=one, split=larger)) == (
        f"one pool needs fewer GPUs: 3, prefill and decode pools 4. {times}"
    )
    dear, cheap = replace(one, cost_per_hour=3.0), replace(larger, cost_per_hour=2.0)
    assert beside_sentence(FleetsCompared(one=dear, split=cheap, currency="USD")) == (
        f"prefill and decode pools cost less: 17,532 USD a year on 4 GPUs, one pool 26,298 USD a year on 3. {times}"
    )
    assert beside_sentence(FleetsCompared(one=one, split=None)).startswith(
        "only one pool meets the SLO: 3 GPUs"
    )
    assert beside_sentence(FleetsCompared(one=None, split=split)).startswith(
        "only prefill and decode pools meet the SLO: 3 GPUs"
    )
    assert beside_sentence(FleetsCompared(one=None, split=None)).startswith("neither")
