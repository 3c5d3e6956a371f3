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


FLEET = "--workload cdf.json --slo ttft_p99=2s --profile A100"
DAY = "--diurnal 5:1 --burst-price 2x"
PAGES = {
    "run": ["run", "--config", "twin.yaml", *SHORT, "--report", "page.html"],
    "run variants": ["run", "--config", "twin.yaml", *SHORT, "--set", "seed=1,2", "--report", "page.html"],
    "replay": ["replay", "real", "--config", "twin.yaml", "--report", "page.html"],
    "report": ["report", "real", "--output", "page.html"],
    "sweep": ["sweep", "grid.yaml", "--jobs", "1", "--output", "t.parquet", "--report", "page.html"],
    "fleet size": ["fleet", "size", *FLEET.split(), "--rate", "5", "--no-verify", "--report", "page.html"],
    "fleet reserve": ["fleet", "reserve", *FLEET.split(), *DAY.split(), "--report", "page.html"],
    "calibrate": ["calibrate", "real", "--simulated", "real", "--report", "."],
}  # fmt: skip


@pytest.fixture
def with_inputs(here: Path) -> Path:
    Path("cdf.json").write_text("[[512, 0.4], [2048, 1.0]]")
    Path("grid.yaml").write_text("config: twin.yaml\nworkloads: {one: {rate: 4, num_requests: 5}}\n")
    return here


@pytest.mark.usefixtures("with_inputs")
@pytest.mark.parametrize("name", PAGES)
def test_a_page_replaces_a_page_and_nothing_else_not_through_a_link_either(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    page = Path("report.html" if name == "calibrate" else "page.html")
    dear = Path("dear.txt")
    dear.write_text("<html>a thesis")
    page.symlink_to(dear)
    assert vtwin.main(PAGES[name]) == 2
    assert f"{page} is there and no page of vtwin's, expected another place" in capsys.readouterr().err
    assert dear.read_text() == "<html>a thesis"
    page.unlink()
    page.mkdir()
    assert vtwin.main(PAGES[name]) == 2
    assert f"got {page}, expected a file" in capsys.readouterr().err
    page.rmdir()
    for _ in range(2):  # what is not there, then its own
        assert vtwin.main(PAGES[name]) == 0
        assert page.read_text().startswith("<!doctype html>")


@pytest.mark.usefixtures("with_inputs")
@pytest.mark.parametrize("name", ["run", "run variants", "replay"])
def test_overwrite_replaces_what_report_names(name: str) -> None:
    Path("page.html").write_text("a thesis")
    assert vtwin.main(PAGES[name]) == 2
    assert vtwin.main([*PAGES[name], "--overwrite"]) == 0
    assert Path("page.html").read_text().startswith("<!doctype html>")


@pytest.mark.usefixtures("with_inputs")
def test_a_report_is_not_written_through_a_link(capsys: pytest.CaptureFixture[str]) -> None:
    Path("dear.txt").write_text("a thesis")
    Path("report.json").symlink_to("dear.txt")
    assert vtwin.main(PAGES["calibrate"]) == 2
    assert "--report: got the link report.json, expected a file or none" in capsys.readouterr().err
    assert Path("dear.txt").read_text() == "a thesis"


@pytest.mark.parametrize("name", [name for name in WRITERS if name != "sweep"])
def test_no_trace_is_written_beside_a_folder_of_traces_of_its_name(
    here: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    write_trace(small_trace(), here / "bench" / "low")
    assert vtwin.main([*WRITERS[name], "--output", "bench"]) == 2
    assert "--output: got bench, a folder that has traces or settings in it" in capsys.readouterr().err
    assert not (here / "bench.yaml").exists()
