"""What was measured is never replaced without a word: ``traces.files.overwrite`` and the commands that write traces."""

from __future__ import annotations

from pathlib import Path

import pytest

import vtwin
from tests.traces.made import small_trace
from traces import write_trace

SHORT = ["--rate", "5", "--num-requests", "3", "--prompt-tokens", "20", "--output-tokens", "5"]
TWIN = """\
latency: {model: blackbox, coefficients: {alpha0: 0, alpha1: 0, alpha2: 0, beta0: 5000, beta1: 10, beta2: 10}}
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("twin.yaml").write_text(TWIN)
    write_trace(small_trace().with_header(mode="real"), tmp_path / "real")
    return tmp_path


WRITERS = {
    "run": ["run", "--config", "twin.yaml", *SHORT],
    "replay": ["replay", "real", "--config", "twin.yaml"],
    "observe": ["observe", "--url", "http://127.0.0.1:1", *SHORT],
    "sweep": ["observe", "--url", "http://127.0.0.1:1", *SHORT[2:], "--sweep", "5"],
    "synth": ["trace", "synth", *SHORT],
    "convert": ["trace", "convert", "real", "--from", "tracev2"],
}


@pytest.mark.parametrize("name", WRITERS)
def test_a_measured_trace_is_not_replaced_unless_that_is_said(
    here: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    output = "real"
    if name == "sweep":
        output = "folder"
        write_trace(small_trace().with_header(mode="real"), here / "folder" / "rate-5")
    before = {path: path.read_bytes() for path in here.rglob("*") if path.is_file()}
    assert vtwin.main([*WRITERS[name], "--output", output]) == 2
    said = capsys.readouterr().err
    assert ("rate-5.yaml" if name == "sweep" else "real.yaml") in said.splitlines()[-1]
    assert "--overwrite" in said.splitlines()[-1]
    assert {path: path.read_bytes() for path in here.rglob("*") if path.is_file()} == before


@pytest.mark.usefixtures("here")
def test_overwrite_replaces_a_measured_trace_and_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert vtwin.main(["trace", "synth", *SHORT, "--output", "real", "--overwrite"]) == 0
    assert "replaces real.yaml, a measured trace" in capsys.readouterr().err


@pytest.mark.usefixtures("here")
def test_what_can_be_made_again_is_replaced_with_a_note(capsys: pytest.CaptureFixture[str]) -> None:
    draw = ["trace", "synth", *SHORT, "--output", "drawn"]
    assert vtwin.main(draw) == 0
    assert "replaces" not in capsys.readouterr().err
    assert vtwin.main(draw) == 0
    assert "note: replaces the drawn or converted trace drawn.yaml" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("file", "what"), [("twin.yaml", "no trace's header"), ("mine.csv", "a table without a header")]
)
def test_a_file_that_is_no_trace_of_ours_is_not_replaced(
    here: Path, capsys: pytest.CaptureFixture[str], file: str, what: str
) -> None:
    (here / "mine.csv").write_text("a,b\n1,2\n")
    before = (here / file).read_bytes()
    assert vtwin.main(["trace", "synth", *SHORT, "--output", Path(file).stem]) == 2
    assert what in capsys.readouterr().err
    assert (here / file).read_bytes() == before
