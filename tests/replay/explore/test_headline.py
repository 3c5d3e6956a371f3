"""The headline: what a run's page says, or why there are no answers to tell of."""

from __future__ import annotations

from pathlib import Path

import pytest

from replay.explore.knobs import turned
from replay.explore.state_answers import _title
from tests.replay.explore.test_as_the_command import beginning, printed


def title(name: str, folder: Path, state: dict[str, str]) -> tuple[str, str]:
    """Return the headline of a state, and its command."""
    asked = turned(beginning(name, folder).begin, {"num_requests": "200", **state})
    return _title(asked.run()), asked.command()


@pytest.mark.parametrize("name", ["drawn", "fleet"])
def test_a_run_without_answers_says_so_in_the_command_s_words(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said, command = title(name, tmp_path, {"max_model_len": "10"})
    assert said.startswith("No request finished: 200 re")
    code, _, err = printed(command, capsys)
    assert code == 1
    assert said[1:-1] in err


def test_a_run_with_few_answers_says_how_many_are_lost(tmp_path: Path) -> None:
    said, _ = title("like", tmp_path, {"max_model_len": "100", "num_requests": "1000"})
    assert "of the requests are not answered (" in said
    assert said.endswith(
        "the prompt is too long for engine.max_model_len 100, which must hold a token of output, too."
    )


def test_an_overloaded_server_says_what_it_is_sent_and_what_it_answers(tmp_path: Path) -> None:
    said, command = title("drawn", tmp_path, {"rate": "90", "max_num_seqs": "4", "num_requests": "1000"})
    assert said.startswith("The server is overloaded at 90 requests per second: it answers ")
    answered = float(said.rpartition(" ")[2].removesuffix("."))
    assert 0 < answered < 20, command
