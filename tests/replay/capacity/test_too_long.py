"""Searches in which no prompt fits into an engine: an answer and a line that says why, and the exit code of ``run``."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

import vtwin
from traces import Header, make_trace, write_trace

TWIN = """\
engine: {max_num_seqs: 4, max_num_batched_tokens: 512, num_gpu_blocks: 400, max_model_len: 256}
latency: {model: blackbox, coefficients: {alpha0: 500, alpha1: 2, alpha2: 0, beta0: 6000, beta1: 10, beta2: 20}}
"""
TUNED = "--max-num-seqs 2,4 --max-num-batched-tokens 512 --chunked-prefill true"
SEARCHES = {
    "capacity": "capacity --num-requests 100 --no-binding",
    "capacity of a cluster": "capacity --num-requests 100 --no-binding --instances 2",
    "capacity of variants": "capacity --num-requests 100 --no-binding --set engine.max_num_seqs=4,8",
    "tune": f"tune --num-requests 1000 {TUNED}",
}
SAID = (
    "no request finishes at any rate: got prompts of at least {} tokens, expected fewer than "
    "engine.max_model_len, 256\n"
)


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder with the twin."""
    monkeypatch.chdir(tmp_path)
    Path("twin.yaml").write_text(TWIN)


@pytest.mark.parametrize(("budget", "is_too_long"), [(300, True), (256, False)])
def test_budgets_that_are_all_too_large_are_an_answer_with_its_reason(
    budget: int,
    is_too_long: bool,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The server refuses them, however short the answers were."""
    columns = {
        "request_id": list("abc"),
        "arrival_time_us": [0, 1, 2],
        "input_tokens": 50,
        "output_tokens": 5,
    }
    write_trace(make_trace(Header(mode="real"), {**columns, "max_tokens": budget, "status": "ok"}), "run")
    call = f"{SEARCHES['capacity']} --config twin.yaml --slo ttft_p99=100s --like run --seeds 1 --json"
    assert vtwin.main(shlex.split(call)) == (1 if is_too_long else 0)
    said = "got max_tokens of at least 300, expected at most engine.max_model_len, 256\n"
    assert (said in capsys.readouterr().err) is is_too_long


@pytest.mark.parametrize("search", SEARCHES)
@pytest.mark.parametrize(("tokens", "is_too_long"), [(5000, True), (256, True), (200, False)])
def test_prompts_that_are_all_too_long_are_an_answer_with_its_reason(
    search: str,
    tokens: int,
    is_too_long: bool,
    capsys: pytest.CaptureFixture[str],
) -> None:
    lengths = f"--prompt-tokens {tokens} --prompt-tokens-stdev 0 --output-tokens 5"
    call = f"{SEARCHES[search]} --config twin.yaml --slo ttft_p99=100s {lengths} --seeds 1 --json"
    assert vtwin.main(shlex.split(call)) == (1 if is_too_long else 0)
    said = capsys.readouterr()
    json.loads(said.out)
    assert (SAID.format(f"{tokens:,}") in said.err) is is_too_long


@pytest.mark.parametrize("instances", [1, 2])
@pytest.mark.parametrize("too_long", [10, 100, 590, 600])
def test_prompts_of_which_some_are_too_long_are_an_answer_for_any_number_of_servers(
    too_long: int, instances: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """Who is refused for its length is refused at every rate, and says nothing about the load."""
    columns = {
        "request_id": [f"r{number}" for number in range(600)],
        "arrival_time_us": [200_000 * number for number in range(600)],
        "input_tokens": [5000 if number >= 600 - too_long else 50 for number in range(600)],
        "output_tokens": 5,
    }
    write_trace(make_trace(Header(mode="generated"), columns), "some")
    call = (
        f"capacity --trace some --no-binding --config twin.yaml --slo ttft_p99=100s --instances {instances}"
    )
    assert vtwin.main(shlex.split(call)) == 1
    said = capsys.readouterr()
    assert "Warning" not in said.err
    assert "fail on an idle server" in said.out or "answers no request" in said.out
    assert vtwin.main([*shlex.split(call), "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert (document["rate"], document["ceiling"]) == (None, None)


def test_a_rate_is_found_where_one_prompt_of_two_hundred_is_too_long(
    capsys: pytest.CaptureFixture[str],
) -> None:
    columns = {
        "request_id": [f"r{number}" for number in range(2000)],
        "arrival_time_us": [200_000 * number for number in range(2000)],
        "input_tokens": [5000 if number % 200 == 0 else 50 for number in range(2000)],
        "output_tokens": 5,
    }
    write_trace(make_trace(Header(mode="generated"), columns), "some")
    call = "capacity --trace some --no-binding --config twin.yaml --slo ttft_p99=100s --instances 2 --json"
    assert vtwin.main(shlex.split(call)) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["ceiling"] == pytest.approx(document["rate"], rel=0.02)
