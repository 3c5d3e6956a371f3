"""What cannot be answered is refused at the start, with exit code 2: no page waits for it."""

from __future__ import annotations

from pathlib import Path

import pytest

import vtwin
from replay.explore.cli import _states
from tests.twins import SIXTY_FOUR_SEATS


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--prices", "nope.yaml"], "--prices: got nothing at this path"),
        (
            ["--num-requests", "50000"],
            "--num-requests: got a load of 50,000 requests, expected at most 20,000",
        ),
        (["--state", "rate=abc"], "--state rate: got 'abc', expected a number from 0.001 to 100,000"),
        (["--state", "#foo=1"], "--state foo: got a setting that this page does not have"),
        (["--state", "rate=5&pin=rate%3D-3"], "--state rate: got '-3', expected a number"),
        (
            ["--state", "max_num_batched_tokens=16&enable_chunked_prefill=false"],
            "engine.max_num_batched_tokens 16",
        ),
    ],
)
def test_a_wrong_start_is_refused(
    words: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "twin.yaml").write_text(SIXTY_FOUR_SEATS)
    asked = ["explore", "--config", str(tmp_path / "twin.yaml"), "--rate", "5", "--no-open", *words]
    assert vtwin.main(asked) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert said in " ".join(err.split())


def test_sessions_alone_are_told_what_they_need(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "twin.yaml").write_text(SIXTY_FOUR_SEATS)
    own = ["--config", str(tmp_path / "twin.yaml"), "--rounds", "3", "--sessions", "4"]
    for command in (["explore", *own, "--no-open"], ["run", *own]):
        assert vtwin.main(command) == 2
        assert "--sessions 4: needs sessions, expected --trace STEM, or --rate R with --rounds N" in " ".join(
            capsys.readouterr().err.split()
        )


def test_a_link_has_its_own_state_and_its_pins() -> None:
    link = "rate=5&slo_ttft=&pin=rate%3D7%26tp%3D2&pin="
    assert _states(link) == [{"rate": "5", "slo_ttft": ""}, {"rate": "7", "tp": "2"}, {}]
    assert _states("") == [{}]
