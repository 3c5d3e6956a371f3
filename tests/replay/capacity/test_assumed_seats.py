"""A capacity where the fitted server's seats are assumed: the interval holds the truth, and the way out is said."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import vtwin

SEATS = 48
TWIN = """\
engine: {{{seats} max_num_batched_tokens: 2048, num_gpu_blocks: 8000, max_model_len: 2048}}
latency:
  model: blackbox
  coefficients: {{alpha0: 500, alpha1: 2, alpha2: 0, beta0: 12000, beta1: 25, beta2: 60}}
{fitted}"""
FITTED = "  fitted_range: {rate_per_s: [5.0, 10.0], concurrency: [3.0, 24.0]}\n"
LOAD = ["--prompt-tokens", "300", "--output-tokens", "200", "--num-requests", "4000", "--seeds", "2"]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def capacity(
    capsys: pytest.CaptureFixture[str], *more: str, seats: str = "", fitted: str = FITTED
) -> dict[str, object]:
    Path("twin.yaml").write_text(TWIN.format(seats=seats, fitted=fitted))
    call = [
        "capacity",
        "--config",
        "twin.yaml",
        "--slo",
        "ttft_p99=1s",
        "--no-binding",
        *LOAD,
        "--json",
        *more,
    ]
    assert vtwin.main(call) == 0
    found: dict[str, object] = json.loads(capsys.readouterr().out)
    return found


def test_the_interval_holds_the_capacity_of_a_server_with_other_seats_than_assumed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    truth = capacity(capsys, seats=f"max_num_seqs: {SEATS},")
    assert truth["assumed_seats"] is None
    found = capacity(capsys)
    assert found["rate"] > 1.2 * truth["rate"]  # type: ignore[operator] # 256 seats are assumed
    assert found["low"] < truth["rate"] < found["high"]  # type: ignore[operator]
    assert found["assumed_seats"]["assumed"] == 256  # type: ignore[index]
    (told,) = [each for each in found["warnings"] if "seats" in each]  # type: ignore[attr-defined]
    assert "--set engine.max_num_seqs=N" in told
    said = capacity(capsys, "--set", f"engine.max_num_seqs={SEATS}")
    assert (said["assumed_seats"], said["rate"]) == (None, truth["rate"])


def test_seats_that_a_server_never_fills_and_those_of_no_fit_do_not_matter(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert capacity(capsys, "--slo", "tpot_p99=13ms")["assumed_seats"] is None
    assert capacity(capsys, fitted="")["assumed_seats"] is None


def test_tune_names_the_seats_that_it_takes_for_known_nowhere(capsys: pytest.CaptureFixture[str]) -> None:
    Path("twin.yaml").write_text(TWIN.format(seats="", fitted=FITTED))
    options = ["--max-num-seqs", "128,256", "--max-num-batched-tokens", "2048", "--chunked-prefill", "true"]
    call = [
        "tune",
        "--config",
        "twin.yaml",
        "--slo",
        "ttft_p99=1s",
        *LOAD,
        *options,
        "--json",
        "--num-requests",
        "13000",
    ]
    assert vtwin.main(call) == 0
    found = json.loads(capsys.readouterr().out)
    assert all("max_num_seqs" in str(each["set"]) for each in found["best"] if each["set"])
    assert found["best"][0]["set"]
    assert any("how many seats" in each for each in found["warnings"])
