"""Requests that a client cuts, simulated: by time, by tokens, in each kind of load, and of a measured trace."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import vtwin
from replay.trace.request_columns import requests_from_trace
from sim import UNKNOWN_LIMIT
from tests.twins import EIGHT_SEATS
from traces import Header, Trace, make_trace, read_trace, request_metrics, write_trace

LOAD = [
    "--rate",
    "12",
    "--num-requests",
    "60",
    "--prompt-tokens",
    "40",
    "--output-tokens",
    "60",
    "--seed",
    "5",
]


def run(folder: Path, *options: str, name: str = "sim") -> Trace:
    (folder / "twin.yaml").write_text(EIGHT_SEATS)
    config = ["--config", str(folder / "twin.yaml"), "--output", str(folder / name), "--overwrite"]
    assert vtwin.main([*options[:1], *config, *options[1:]]) == 0
    return read_trace(folder / name)


def measured(**columns: list[object]) -> Trace:
    base: dict[str, list[object]] = {
        "request_id": ["a", "b", "c", "d"],
        "arrival_time_us": [0, 1000, 2000, 3000],
        "send_time_us": [0, 1100, 2100, 3100],
        "input_tokens": [10] * 4,
        "output_tokens": [50, 3, 7, 50],
        "max_tokens": [50] * 4,
        "status": ["ok", "cancelled", "cancelled", "ok"],
        "finish_reason": ["length", None, None, "length"],
    }
    return make_trace(Header(mode="real", tool="vtwin"), {**base, **columns})


def test_a_measured_cut_becomes_a_deadline_or_a_shorter_answer() -> None:
    by_time = requests_from_trace(measured(cancel_after_us=[None, 900, 500, None]), block_size=16)
    assert by_time.deadline_us is not None
    assert by_time.deadline_us.tolist() == [-1, 2000, 2600, -1]
    assert by_time.output_tokens.tolist() == [50] * 4
    assert by_time.max_tokens is None
    by_tokens = requests_from_trace(measured(cancel_after_tokens=[None, 3, 7, 50]), block_size=16)
    assert by_tokens.deadline_us is None
    assert by_tokens.output_tokens.tolist() == [50, 3, 7, 50]
    assert by_tokens.max_tokens is not None
    assert by_tokens.max_tokens.tolist() == [50] * 4
    assert max(by_tokens.max_tokens) < UNKNOWN_LIMIT


def test_the_earlier_of_a_deadline_and_a_cut_counts() -> None:
    trace = measured(cancel_after_us=[900, 900, None, None], deadline_us=[500, 5000, 7000, None])
    found = requests_from_trace(trace, block_size=16).deadline_us
    assert found is not None
    assert found.tolist() == [500, 2000, 7000, -1]


@pytest.mark.parametrize("after", ["100ms:250ms", "10:30tokens"])
@pytest.mark.parametrize("pace", [[], ["--concurrency", "6"], ["--rate", "4", "--rounds", "3"]])
def test_a_drawn_cut_ends_the_answer_then_in_every_kind_of_load(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], after: str, pace: list[str]
) -> None:
    load = LOAD if not pace else LOAD[2:]
    trace = run(tmp_path, "run", *load, *pace, "--cancel-share", "40%", "--cancel-after", after, "--json")
    cut = trace.cells("status").values == "cancelled"
    by_time, by_tokens = trace.cells("cancel_after_us"), trace.cells("cancel_after_tokens")
    asked = by_time.is_known | by_tokens.is_known
    assert (cut == asked).all()
    assert 10 < cut.sum() < 40
    assert (trace.cells("status").values[~cut] == "ok").all()
    took = trace.cells("cancel_time_us").values - trace.cells("send_time_us").values
    if "tokens" in after:
        assert (trace.cells("output_tokens").values == by_tokens.values)[cut].all()
    else:
        assert (took == by_time.values)[cut].all()
        assert (trace.cells("output_tokens").values[cut] < 60).all()
    assert np.isnan(request_metrics(trace)["e2e_us"].to_numpy(float)[cut]).all()
    found = json.loads(capsys.readouterr().out)
    assert found["num_by_status"]["cancelled"] == cut.sum()
    assert found["verdict"] in (None, "stable", "near saturation")


def test_a_cut_frees_seats_so_that_the_others_wait_less(tmp_path: Path) -> None:
    load = [*LOAD[:1], "30", *LOAD[2:]]
    whole = request_metrics(run(tmp_path, "run", *load))["ttft_us"].to_numpy(float)
    cut = run(tmp_path, "run", *load, "--cancel-share", "50%", "--cancel-after", "5tokens", name="cut")
    left = request_metrics(cut)["ttft_us"].to_numpy(float)
    others = np.isfinite(left)
    assert left[others].mean() < 0.7 * whole[others].mean()


def test_a_replay_draws_none_again_and_takes_them_away_where_asked(tmp_path: Path) -> None:
    cuts = ["--cancel-share", "40%", "--cancel-after", "10:30tokens"]
    first = run(tmp_path, "run", *LOAD, *cuts)
    again = run(tmp_path, "replay", str(tmp_path / "sim"), name="again")
    assert (again.cells("status").values == first.cells("status").values).all()
    assert (again.cells("output_tokens").values == first.cells("output_tokens").values).all()
    write_trace(measured(cancel_after_tokens=[None, 3, 7, None]), tmp_path / "real")
    none = run(tmp_path, "replay", str(tmp_path / "real"), "--cancel-share", "0", name="none")
    assert none.cells("status").values.tolist() == ["ok"] * 4
    assert none.cells("output_tokens").values.tolist() == [50] * 4
