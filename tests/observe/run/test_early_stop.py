"""Runs that end early or are not to be trusted: a failing server, a changed one."""

from __future__ import annotations

from pathlib import Path

import pytest

import vtwin
from observe.run.early_stop import ErrorRateStop
from tests.observe.servers import Behaviour, observed, serving, serving_in_thread
from tests.observe.workloads import every, workload
from traces import check_trace


def test_the_brake_needs_enough_outcomes_and_looks_at_the_last_ones() -> None:
    said: list[str] = []
    brake = ErrorRateStop(0.5, said.append)
    for ok in [False] * 19:
        brake.note(ok)
    assert said == []
    brake.note(False)
    brake.note(False)
    assert said == ["stopped early: 20 of the last 20 requests failed (--max-error-rate)"]
    late = ErrorRateStop(0.5, said.append)
    for ok in [True] * 200 + [False] * 25:
        late.note(ok)
    assert len(said) == 1
    late.note(False)
    assert said[1:] == ["stopped early: 26 of the last 50 requests failed (--max-error-rate)"]


async def test_a_server_that_mostly_fails_is_left_early_with_a_readable_trace(tmp_path: Path) -> None:
    async with serving(Behaviour(fault="status 500")) as server:
        seen = await observed(server, workload(every(5000, 400)), max_error_frac=0.2, output=tmp_path / "run")
    assert 20 <= len(seen.trace) < 400
    assert seen.fault is not None
    assert seen.fault in seen.notes
    assert not seen.interrupted
    assert check_trace(tmp_path / "run") == []


def test_a_changed_fingerprint_is_exit_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with serving_in_thread(Behaviour(new_fingerprint_from=2)) as server:
        arguments = [
            "--rate",
            "100",
            "--num-requests",
            "4",
            "--output-tokens",
            "3",
            "--output-tokens-stdev",
            "0",
        ]
        assert (
            vtwin.main(["observe", "--url", server.url, *arguments, "--output", str(tmp_path / "run")]) == 1
        )
    assert "the server changed during the run: system_fingerprint fp-1 then fp-2" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("failed", "more", "code"),
    [
        (2, [], 1),  # 2 of 20: 10 %
        (1, [], 1),  # 5 %
        (0, [], 0),
        (2, ["--max-error-rate", "0.1"], 0),  # 10 % is not more
        (2, ["--max-error-rate", "0.09"], 1),
    ],
)
def test_too_large_a_share_of_failures_is_exit_1(
    failed: int, more: list[str], code: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    load = ["--rate", "400", "--num-requests", "20", "--prompt-tokens", "5", "--output-tokens", "2", *more]
    fault_on = frozenset(range(5, 5 + failed))
    with serving_in_thread(Behaviour(fault="status 500", fault_on=fault_on)) as server:
        assert vtwin.main(["observe", "--url", server.url, *load, "--output", str(tmp_path / "run")]) == code
    said = f"observe: {failed} of 20 requests failed ({failed / 20:.1%}, more than"
    assert (said in capsys.readouterr().err) == (code == 1)
