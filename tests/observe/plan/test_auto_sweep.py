"""``--sweep auto``: two loads, and rates between their throughputs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import vtwin
from observe.plan.auto_sweep import end_loads, num_rates, rate_loads
from tests.observe.servers import Behaviour, serving_in_thread
from traces import ConfigError, ServerError
from traces.workload import WorkloadOptions

SHORT = WorkloadOptions(num_requests=40, prompt_tokens=20, output_tokens=5)


@pytest.mark.parametrize(
    ("text", "number"),
    [("auto", 8), ("auto:3", 3), (" auto:100", 100), ("1,2", None), ("concurrency=4", None), (None, None)],
)
def test_auto_asks_for_eight_rates_or_as_many_as_it_says(text: str | None, number: int | None) -> None:
    assert num_rates(text) == number


@pytest.mark.parametrize("text", ["auto:", "auto:0", "auto:101", "auto:-1", "auto:many", "auto:1.5"])
def test_a_wrong_number_is_named(text: str) -> None:
    with pytest.raises(ConfigError, match=f"got '{text}', expected auto or auto:N, N rates from 1 to 100"):
        num_rates(text)


def test_the_ends_are_one_user_and_all_requests_at_once() -> None:
    alone, at_once = end_loads(SHORT)
    assert alone.requests.header.closed_loop is not None
    assert (alone.requests.header.closed_loop.concurrency, len(alone.requests)) == (1, 16)
    assert len(at_once.requests) == 40
    assert at_once.requests.cells("arrival_time_us").values.tolist() == [0] * 40


@pytest.mark.parametrize("options", [{"rate": 2.0}, {"concurrency": 3}])
def test_a_rate_or_users_of_ones_own_contradict_it(options: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match="cannot be combined with --rate or --concurrency"):
        end_loads(WorkloadOptions(num_requests=40, **options))  # type: ignore[arg-type] # one of two


@pytest.mark.parametrize(
    ("throughputs", "rates"),
    [
        ((2.0, 10.0), [4.0, 6.0, 8.0, 10.0]),
        ((1.0, 3.3333), [1.58, 2.17, 2.75, 3.33]),
        ((10.0, 2.0), [4.0, 6.0, 8.0, 10.0]),  # one request at a time is faster: all are late
        ((0.0012345, 0.0012346), [0.00123]),
    ],
)
def test_rates_lie_evenly_up_to_the_most(throughputs: tuple[float, float], rates: list[float]) -> None:
    loads = rate_loads(SHORT, throughputs, number=4)
    assert [each.rate_per_s for each in loads] == rates
    assert [each.name for each in loads] == [f"rate-{rate:g}" for rate in rates]


@pytest.mark.parametrize("throughputs", [(None, 3.0), (2.0, None), (2.0, 0.0)])
def test_no_answers_are_no_rates(throughputs: tuple[float | None, float | None]) -> None:
    with pytest.raises(ServerError, match="got no answers to its first loads"):
        rate_loads(SHORT, throughputs, number=4)


def test_a_sweep_that_chooses_its_rates_is_continued_with_the_same(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stem = str(tmp_path / "list")
    with serving_in_thread(Behaviour(itl_s=0.004)) as server:
        words = [
            "observe",
            "--url",
            server.url,
            "--sweep",
            "auto:2",
            "--num-requests",
            "20",
            "--output",
            stem,
        ]
        words += ["--prompt-tokens", "20", "--output-tokens", "4", "--json"]
        assert vtwin.main(words) == 0
        first = json.loads(capsys.readouterr().out)["loads"]
        assert vtwin.main([*words, "--resume"]) == 0
        out, err = capsys.readouterr()
    assert json.loads(out)["loads"] == first
    assert err.count("already there") == 4
    alone, at_once = sorted(first[name]["request_throughput"] for name in ("alone", "all-at-once"))
    rates = [float(name.removeprefix("rate-")) for name in first if name.startswith("rate-")]
    assert rates == [float(f"{rate:.3g}") for rate in ((alone + at_once) / 2, at_once)]


def test_a_server_that_answers_nothing_ends_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with serving_in_thread(Behaviour(fault="status 500")) as server:
        words = ["observe", "--url", server.url, "--sweep", "auto", "--num-requests", "3"]
        assert vtwin.main([*words, "--output", str(tmp_path / "list")]) == 4
    assert "--sweep auto: got no answers to its first loads" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--repeat", "2"], "--sweep auto: cannot be combined with --repeat"),
        (["--stop-over-saturated"], "expected one rate throughout"),
        (["--rate", "3"], "cannot be combined with --rate or --concurrency"),
    ],
)
def test_what_contradicts_it_is_refused_before_anything_is_sent(
    more: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["observe", "--url", "http://127.0.0.1:9", "--model", "m", "--sweep", "auto", *more]
    assert vtwin.main([*words, "--output", str(tmp_path / "list")]) == 2
    assert said in capsys.readouterr().err
