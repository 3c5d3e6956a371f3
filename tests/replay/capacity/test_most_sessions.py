"""How many sessions at once: against ``replay --sessions`` of every number, and as a user calls it."""

from __future__ import annotations

import itertools
import json
import math
from pathlib import Path
from typing import Any

import pytest

import vtwin
from replay.capacity.sessions import _answered_per_s, _most, _near
from traces import Header, make_trace

TWIN = """\
engine: {max_num_seqs: 8, max_num_batched_tokens: 512, num_gpu_blocks: 700, max_model_len: 4096}
latency: {model: blackbox, coefficients: {alpha0: 500, alpha1: 2, alpha2: 0, beta0: 8000, beta1: 30, beta2: 100}}
"""
SESSIONS = "--rate 1 --num-requests 120 --rounds 4 --prompt-tokens 300 --output-tokens 40 --context-growth accumulate"
ASK = ["--config", "twin.yaml", "--slo", "ttft_p99=120ms"]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("twin.yaml").write_text(TWIN)
    assert vtwin.main(["trace", "synth", "--output", "agents", *SESSIONS.split()]) == 0


def answer(capsys: pytest.CaptureFixture[str], *call: str) -> Any:  # noqa: ANN401 - a document
    capsys.readouterr()
    assert vtwin.main([*call, "--json"]) in (0, 1)
    return json.loads(capsys.readouterr().out)


def test_the_most_sessions_are_those_up_to_which_replay_keeps_the_limit(
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = answer(capsys, "capacity", "--sessions", "--trace", "agents", "--max-think-time", "2s", *ASK)
    most = found["sessions"]
    assert 1 < most < 29
    numbers = ",".join(str(each) for each in range(1, most + 2))
    told = answer(
        capsys,
        *f"replay agents --config twin.yaml --max-think-time 2s --warmup-frac 0.1 --sessions {numbers}".split(),
    )
    tails = [each["ttft_us"]["p99"] for each in told["variants"]]
    assert [each["set"]["sessions"] for each in told["variants"]] == numbers.split(",")
    assert [each <= 120_000 for each in tails][-2:] == [True, False]
    by_number = dict(zip(numbers.split(","), tails, strict=True))
    for each in found["evaluations"]:
        if str(each["sessions"]) in by_number:
            assert each["values_us"]["ttft_p99"] == pytest.approx(by_number[str(each["sessions"])], rel=1e-6)
    assert found["limiting"] == "ttft_p99"


def test_drawn_sessions_are_searched_variant_by_variant(capsys: pytest.CaptureFixture[str]) -> None:
    load = "--num-requests 200 --rounds 4 --prompt-tokens 300 --output-tokens 40"
    call = ["capacity", "--sessions", *load.split(), *ASK]
    several = answer(capsys, *call, "--set", "engine.max_num_seqs=2,8")
    few, many = (each["sessions"] for each in several["variants"])
    assert few < many
    assert vtwin.main(call) == 0
    shown = capsys.readouterr().out
    assert f"{many} sessions at once" in shown


def test_the_number_has_an_interval_around_it_where_sessions_are_enough(
    capsys: pytest.CaptureFixture[str],
) -> None:
    call = [
        "capacity",
        "--sessions",
        "--rounds",
        "4",
        "--prompt-tokens",
        "300",
        "--output-tokens",
        "40",
        *ASK,
    ]
    found = answer(capsys, *call, "--num-requests", "200")
    assert found["low"] <= found["sessions"] <= found["high"]
    assert vtwin.main([*call, "--num-requests", "200"]) == 0
    said = f"{found['sessions']} sessions at once (90 % interval: {found['low']} to {found['high']})"
    assert said in capsys.readouterr().out
    few = answer(capsys, *call, "--num-requests", "40")
    assert few["low"] is None
    assert few["high"] is None


def test_sessions_that_are_all_alike_are_called_so(capsys: pytest.CaptureFixture[str]) -> None:
    call = ["capacity", "--sessions", *ASK, "--rounds", "3", "--num-requests", "60", "--prompt-tokens", "300"]
    for more, are_alike in (([], True), (["--prompt-tokens-stdev", "90"], False)):
        found = answer(capsys, *call, "--output-tokens", "40", *more)
        assert found["are_alike"] is are_alike
        assert any("move in step" in each for each in found["warnings"]) is are_alike
        assert vtwin.main([*call, "--output-tokens", "40", *more]) == 0
        assert ("move in step" in capsys.readouterr().out.splitlines()[1]) is are_alike


def test_the_rate_of_rounds_does_not_depend_on_how_few_sessions_are_left_for_the_last_of_them(
    capsys: pytest.CaptureFixture[str],
) -> None:
    load = "--rounds 4 --prompt-tokens 300 --output-tokens 40 --think-time 1 --num-requests"
    few, many = (
        {each["sessions"]: each for each in answer(capsys, *call.split(), *ASK)["evaluations"]}
        for call in (f"capacity --sessions {load} 200", f"capacity --sessions {load} 1000")
    )
    both = few.keys() & many.keys()
    assert max(both) > 15
    for number in both:
        assert few[number]["rounds_per_s"] == pytest.approx(many[number]["rounds_per_s"], rel=0.05), number
        assert few[number]["sessions_per_hour"] == pytest.approx(few[number]["rounds_per_s"] * 900, rel=0.001)


def test_the_interval_of_alike_sessions_holds_those_that_differ_a_little(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """In step they meet in every round; those that do not are more at once."""
    Path("twin.yaml").write_text(TWIN.replace("max_num_seqs: 8", "max_num_seqs: 64").replace("700", "2000"))
    ask = ["--config", "twin.yaml", "--slo", "ttft_p95=300ms", "--think-time", "1s"]
    call = [
        "capacity",
        "--sessions",
        *ask,
        "--rounds",
        "4",
        "--prompt-tokens",
        "300",
        "--output-tokens",
        "60",
    ]
    alike = answer(capsys, *call, "--num-requests", "400")
    spread = ["--prompt-tokens-stdev", "30", "--output-tokens-stdev", "6"]
    unlike = answer(capsys, *call, "--num-requests", "1600", *spread)
    assert alike["are_alike"]
    assert alike["low"] <= alike["sessions"] < unlike["sessions"] <= alike["high"]


def test_rounds_that_outgrow_the_server_are_shown_and_count_against_the_limit(
    capsys: pytest.CaptureFixture[str],
) -> None:
    Path("twin.yaml").write_text(TWIN.replace("4096", "900"))
    load = "--rounds 6 --num-requests 60 --prompt-tokens 300 --output-tokens 40 --context-growth accumulate"
    assert vtwin.main(["capacity", "--sessions", *load.split(), *ASK]) == 1
    out = capsys.readouterr().out
    assert "of the rounds fail at 1 at once, at most 1% may" in out
    head, row = next(
        (line.split(), below.split())
        for line, below in itertools.pairwise(out.splitlines())
        if "rounds/s" in line
    )
    assert float(row[-4].rstrip("%")) > 10
    assert head[-4] == "failed"


@pytest.mark.parametrize("most", [0, 1, 5, 17, 20])
@pytest.mark.parametrize("start", [0, 1, 4, 5, 6, 30])
def test_a_number_is_found_from_any_other(most: int, start: int) -> None:
    asked: list[int] = []
    assert _near(lambda number: asked.append(number) or number <= most, start, most=20) == most  # type: ignore[func-returns-value]
    assert all(1 <= number <= 20 for number in asked)
    assert len(set(asked)) == len(asked)


def test_a_limit_that_one_session_breaks_is_exit_1_and_one_that_none_breaks_is_or_more(
    capsys: pytest.CaptureFixture[str],
) -> None:
    call = ["capacity", "--sessions", "--trace", "agents", "--config", "twin.yaml", "--slo"]
    assert vtwin.main([*call, "ttft_p99=1ms"]) == 1
    assert "none: one session breaks the limits" in capsys.readouterr().out
    assert vtwin.main([*call, "ttft_p99=1000s"]) == 0
    assert "or more: the trace has no more (give a longer --trace)" in capsys.readouterr().out
    call = ["capacity", "--sessions", "--rounds", "2", "--num-requests", "8", *ASK[:2], "--slo"]
    assert vtwin.main([*call, "ttft_p99=1000s"]) == 0
    assert "the workload has no more (give more: --num-requests 32)" in capsys.readouterr().out


def test_sessions_are_drawn_until_they_are_enough(capsys: pytest.CaptureFixture[str]) -> None:
    """Of the 100 requests that a load has by default, all sessions at once would be within the limit."""
    Path("twin.yaml").write_text(TWIN.replace("max_num_seqs: 8", "max_num_seqs: 64").replace("700", "2000"))
    load = "--rounds 4 --prompt-tokens 50 --output-tokens 8 --think-time 5s"
    found = answer(capsys, "capacity", "--sessions", *load.split(), *ASK)
    assert found["limiting"] == "ttft_p99"
    assert 100 / 4 < found["sessions"] <= found["num_sessions"] / 2


def test_rounds_that_take_more_memory_than_there_is_are_refused(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("traces.strict.free_memory.free_memory", lambda: 1 << 30)
    for more in ([], ["--num-requests", "100"]):
        assert vtwin.main(["capacity", "--sessions", "--rounds", "1000000", *ASK, *more]) == 2
        assert "--rounds: got 1,000,000 rounds in each of up to" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--sessions", "--rate", "2", "--rounds", "2"], "--rate: cannot be combined"),
        (["--sessions", "--num-requests", "9"], "without sessions"),
        (["--max-think-time", "9s"], "--max-think-time: needs --sessions"),
        (["--sessions", "--seeds", "2"], "--seeds: cannot be combined"),
    ],
)
def test_what_is_no_search_for_sessions_is_refused(
    more: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert vtwin.main(["capacity", *ASK, *more]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("text", ["0", "two", "2,2", "1,", "-3"])
def test_numbers_of_sessions_are_whole_and_different(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert vtwin.main(["replay", "agents", "--config", "twin.yaml", f"--sessions={text}"]) == 2
    assert "--sessions: got" in capsys.readouterr().err


def test_numbers_of_sessions_without_a_load_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert vtwin.main(["run", "--config", "twin.yaml", "--sessions", "25"]) == 2
    assert "--sessions 25: needs sessions, expected --trace STEM" in capsys.readouterr().err


def test_a_server_is_observed_with_one_number_of_sessions_at_a_time(
    capsys: pytest.CaptureFixture[str],
) -> None:
    call = ["observe", "--url", "http://localhost:9", "--model", "m", "--trace", "agents", "--output", "seen"]
    assert vtwin.main([*call, "--sessions", "2,4"]) == 2
    assert "--sessions: got 2,4, expected one number" in capsys.readouterr().err


@pytest.mark.parametrize("true", [0, 1, 2, 3, 7, 8, 29, 30, 99])
def test_the_search_finds_every_number(true: int) -> None:
    asked: list[int] = []

    def is_met(number: int) -> bool:
        asked.append(number)
        return number <= true

    assert _most(is_met, 30) == min(true, 30)
    assert max(asked) <= 30
    assert len(asked) <= 3 + 2 * math.log2(30)


def test_rows_of_no_session_and_sessions_that_never_begin_are_in_no_rate() -> None:
    columns = {
        "request_id": range(5),
        "session_id": ["a", "a", "b", None, "c"],
        "input_tokens": [1] * 5,
        "output_tokens": [1] * 5,
        "arrival_time_us": [0, 1_000_000, 2_000_000, 9_000_000, None],
        "first_chunk_time_us": [500_000, 1_500_000, 2_500_000, 9_500_000, None],
        "last_chunk_time_us": [500_000, 1_500_000, 2_500_000, 9_500_000, None],
        "status": ["ok"] * 4 + ["error"],
    }
    rounds_per_s, sessions_per_s = _answered_per_s(make_trace(Header(), columns))
    assert rounds_per_s == pytest.approx(2 / 2)  # a's two, in the two seconds until b begins
    assert sessions_per_s == pytest.approx(rounds_per_s * 2 / 4)
