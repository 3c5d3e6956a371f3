"""The functions of the package as a notebook calls them: a path is as good as a twin, and a run is a line."""

from __future__ import annotations

from pathlib import Path

import pytest

import replay
from tests.twins import THOUSAND_BLOCKS
from traces import ConfigError
from traces.workload import WorkloadOptions, trace_from_options

ASKED = WorkloadOptions(rate=4, num_requests=40, prompt_tokens=50, output_tokens=8, seed=1)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "twin.yaml").write_text(THOUSAND_BLOCKS)
    return tmp_path / "twin.yaml"


@pytest.mark.parametrize("kind", [Path, str])
def test_the_path_of_a_twin_answers_as_the_twin_does(kind: type, file: Path) -> None:
    asked = trace_from_options(ASKED)
    by_twin = replay.run(asked, replay.load_config(file))
    by_path = replay.run(asked, kind(file))
    for metric in ("ttft_us", "tpot_us", "e2e_us"):
        assert by_path.summary[metric] == by_twin.summary[metric]  # type: ignore[literal-required]


def test_a_path_without_a_twin_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.yaml"):
        replay.run(trace_from_options(ASKED), tmp_path / "none.yaml")


def test_a_run_shows_itself_in_a_line(file: Path) -> None:
    shown = repr(replay.run(trace_from_options(ASKED), file))
    assert shown.startswith("<Run: 40 requests on 1 server, TTFT p99 ")
    assert "\n" not in shown
    assert len(shown) < 120
