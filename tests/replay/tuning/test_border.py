"""A best server is not at the border of the grid, or it is said: against a wide grid searched in full."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import vtwin
from replay.capacity.capacity import capacity_of_draws
from replay.tuning.candidate_search import search
from replay.tuning.candidates import Border, BorderValue, border_text, candidates_of
from tests.examples import few_or_all
from traces import Trace
from traces.run_slo import parse_run_slo
from traces.workload import WorkloadOptions, trace_from_options

TWIN = """\
engine: {{max_num_seqs: {seats}, max_num_batched_tokens: {tokens}, num_gpu_blocks: {blocks}, max_model_len: {most}}}
latency:
  model: blackbox
  coefficients: {{alpha0: 500, alpha1: 2, alpha2: 0, beta0: {beta0}, beta1: 25, beta2: {beta2}}}
"""
LIMITS = parse_run_slo("ttft_p99=2s,tpot_p99=100ms")
LENGTHS = ["--prompt-tokens", "200", "--output-tokens", "60"]


def drawn(number: int = 1500) -> Trace:
    options = WorkloadOptions(rate=1.0, prompt_tokens=200, output_tokens=60, num_requests=number, seed=1)
    return trace_from_options(options)


def write(folder: Path, **given: int) -> Path:
    usual = {"seats": 4, "tokens": 2048, "blocks": 4000, "most": 1024, "beta0": 6000, "beta2": 400}
    (folder / "twin.yaml").write_text(TWIN.format(**{**usual, **given}))
    return folder / "twin.yaml"


def tuned_rate(path: Path, *asked: str) -> tuple[float, str]:
    found = candidates_of(path, None, asked)
    tuned = search([drawn()], found.tried, LIMITS, keep=1, border=Border(found, path))
    (candidate, capacity) = tuned.best[0]
    assert capacity.rate_per_s is not None
    return capacity.rate_per_s, candidate.name


@pytest.mark.parametrize("number", range(few_or_all(1, 2)))
def test_the_best_is_within_two_per_cent_of_the_best_of_a_wide_grid(number: int, tmp_path: Path) -> None:
    draw = np.random.default_rng(40 + number)
    seats, tokens = (int(draw.choice(each)) for each in ((2, 4, 8, 1024), (256, 512, 8192)))
    path = write(
        tmp_path,
        seats=min(seats, tokens),
        tokens=tokens,
        blocks=int(draw.integers(500, 6000)),
        beta0=int(draw.integers(3000, 12_000)),
        beta2=int(draw.integers(50, 600)),
    )
    rate, _ = tuned_rate(path)
    wide = candidates_of(
        path,
        None,
        [
            f"engine.max_num_seqs={','.join(str(2**power) for power in range(1, 11))}",
            "engine.max_num_batched_tokens=256,1024,8192",
            "engine.enable_chunked_prefill=true",
        ],
    )
    rates = [
        capacity_of_draws([drawn()], each.twin, LIMITS, with_binding=False, with_curve=False).rate_per_s
        or 0.0
        for each in wide.tried
    ]
    assert rate >= 0.975 * max(rates) > 0  # two per cent, and the tolerance of a search


def test_a_server_of_a_few_seats_is_told_more_than_four_times_as_many(tmp_path: Path) -> None:
    path = write(tmp_path, seats=2)
    rate, name = tuned_rate(path)
    only, _ = tuned_rate(path, "engine.max_num_seqs=1,2,4,8")
    assert rate > 1.5 * only
    assert int(name.rpartition("max_num_seqs=")[2].partition(",")[0]) > 8


def test_values_of_the_users_own_are_kept_and_an_end_among_them_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path)
    options = ["--max-num-seqs", "2,4,8", "--max-num-batched-tokens", "2048", "--chunked-prefill", "true"]
    call = ["tune", "--config", str(path), "--slo", "ttft_p99=2s", "--num-requests", "1000", "--seeds", "1"]
    assert vtwin.main([*call, *LENGTHS, *options]) == 0
    shown = capsys.readouterr().out
    assert "max_num_seqs 8 is the largest that was tried: values beyond may be better" in shown
    assert vtwin.main([*call, *LENGTHS, *options, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    border = {"key": "engine.max_num_seqs", "value": "8", "end": "largest", "refused": None}
    assert (found["at_border"], found["num_tried"]) == ([border], 3)


def test_settings_that_are_the_same_in_all_are_so_beyond_the_border(tmp_path: Path) -> None:
    path = write(tmp_path)
    found = candidates_of(path, None, ["engine.num_gpu_blocks=900", "engine.enable_chunked_prefill=true"])
    border = Border(found, path)
    most = max(found.tried, key=lambda each: each.twin.engine.max_num_seqs)
    more = border.beyond(most)
    assert more
    assert {each.twin.engine.num_gpu_blocks for each in more} == {900}
    assert {each.twin.engine.max_num_seqs for each in more} >= {32}


def test_what_vllm_would_not_start_ends_an_axis_and_is_said_why(tmp_path: Path) -> None:
    """A step has room for a token of every sequence: of 16 seats at most."""
    path = write(tmp_path, seats=4, tokens=16, most=1024)
    asked = ["engine.max_num_batched_tokens=16", "engine.enable_chunked_prefill=true"]
    found = candidates_of(path, None, asked)
    border = Border(found, path)
    most = next(each for each in found.tried if each.values["engine.max_num_seqs"] == "16")
    assert border.beyond(most) == []
    (at,) = border.of(most)
    assert (at.value, at.end) == ("16", "largest")
    assert "max_num_batched_tokens" in (at.refused or "")
    assert border_text([at]).startswith("max_num_seqs 16 is the largest that was tried: beyond it, ")


def test_open_and_closed_ends_are_told_apart() -> None:
    one = BorderValue(key="engine.max_num_seqs", value="8", end="largest")
    two = BorderValue(key="hardware.tp", value="1", end="smallest", refused="no such GPU")
    assert border_text([one]) == "max_num_seqs 8 is the largest that was tried: values beyond may be better"
    assert border_text([one, two]).endswith("; tp 1 is the smallest that was tried: beyond it, no such GPU")
