"""What a capacity costs: against its rate and the prices by hand, in capacity and in tune."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import vtwin
from tests.twins import LLAMA_ON_H100

LOAD = ["--prompt-tokens", "300", "--output-tokens", "60", "--num-requests", "3000", "--seeds", "1"]
SLO = ["--config", "twin.yaml", "--slo", "tpot_p99=40ms,ttft_p99=1s"]

NO_GPU = """\
engine: {num_gpu_blocks: 600, max_num_seqs: 8, max_num_batched_tokens: 512, max_model_len: 1024}
latency: {model: blackbox, coefficients: {alpha0: 500, alpha1: 2, alpha2: 0, beta0: 6000, beta1: 10, beta2: 20}}
"""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("twin.yaml").write_text(LLAMA_ON_H100)
    Path("prices.yaml").write_text("H100: 4\nL40S: 1\n")


def answer(capsys: pytest.CaptureFixture[str], *call: str) -> Any:  # noqa: ANN401 - a document
    capsys.readouterr()
    assert vtwin.main([*call, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_requests_for_the_price_are_the_rate_over_what_the_servers_cost(
    capsys: pytest.CaptureFixture[str],
) -> None:
    call = ["capacity", *SLO, *LOAD, "--no-binding", "--set", "hardware.tp=1,2", "--prices", "prices.yaml"]
    one, two = answer(capsys, *call)["variants"]
    assert (one["price_per_hour"], two["price_per_hour"]) == (4, 8)
    for each in (one, two):
        assert each["requests_per_price"] == pytest.approx(each["rate"] * 3600 / each["price_per_hour"])
        at = next(step for step in each["evaluations"] if step["rate"] == each["rate"])
        tokens = at["output_token_throughput"]
        assert each["price_per_million_output_tokens"] == pytest.approx(
            each["price_per_hour"] / (tokens * 3600) * 1e6
        )
    assert vtwin.main(call) == 0
    shown = capsys.readouterr().out
    best = "1" if one["requests_per_price"] > two["requests_per_price"] else "2"
    assert f"most for its price: tp {best} (" in shown
    assert vtwin.main([each for each in call if not each.startswith(("--set", "hardware"))]) == 0
    assert "requests per unit of currency " in capsys.readouterr().out


def test_tune_takes_the_server_with_the_most_for_its_price(capsys: pytest.CaptureFixture[str]) -> None:
    fixed = ["--max-num-seqs", "32", "--max-num-batched-tokens", "2048", "--chunked-prefill", "true"]
    call = ["tune", *SLO, *LOAD, *fixed, "--set", "hardware.gpu=H100,L40S", "--prices", "prices.yaml"]
    found = answer(capsys, *call)
    assert found["objective"] == "requests_per_price"
    assert found["own"]["price_per_hour"] == 4
    for each in (found["own"], *found["best"]):
        assert each["requests_per_price"] == pytest.approx(each["rate"] * 3600 / each["price_per_hour"])
    values = [each["requests_per_price"] for each in found["best"]]
    assert values == sorted(values, reverse=True)
    assert found["gain"] == pytest.approx(values[0] / found["own"]["requests_per_price"] - 1)


@pytest.mark.parametrize("command", ["capacity", "tune"])
def test_a_price_that_is_missing_is_said_in_a_line(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("prices.yaml").write_text("L40S: 1\n")
    assert vtwin.main([command, *SLO, *LOAD, "--prices", "prices.yaml"]) == 2
    assert "--prices: got none of H100, expected one" in capsys.readouterr().err


@pytest.mark.parametrize(
    "call",
    [
        ["capacity", *SLO, *LOAD],
        ["tune", *SLO, *LOAD],
        ["fleet", "size", "--profile", "twin.yaml", "--workload", "load", "--rate", "5", *SLO[2:]],
    ],
)
def test_prices_of_a_twin_that_names_no_gpu_are_refused(
    call: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    Path("twin.yaml").write_text(NO_GPU)
    assert vtwin.main(["trace", "synth", "--output", "load", "--rate", "5", *LOAD[:4]]) == 0
    assert vtwin.main([*call, "--prices", "prices.yaml"]) == 2
    assert "--prices: needs the GPU of the twin, expected hardware.gpu in its file" in capsys.readouterr().err


def test_the_option_that_gives_no_other_server_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    Path("twin.yaml").write_text(NO_GPU)
    few = ["--max-num-seqs", "8", "--max-num-batched-tokens", "512", "--chunked-prefill", "true"]
    assert vtwin.main(["tune", *SLO, *LOAD, "--tp", "1,2", *few]) == 2
    assert "--tp: got no server but the file's own" in capsys.readouterr().err
