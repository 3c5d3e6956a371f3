import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from calibrate.calibration_run import calibrate, compare_with_simulated, compare_with_twin
from calibrate.findings import Calibration, Options
from calibrate.report.document import document_of
from calibrate.report.report_folder import write_report
from calibrate.verdict_text import parted
from tests.calibrate.known_servers import GUESS, observed, source, workload

VOID = {"meta", "br", "hr", "img", "link", "input"}


class Page(HTMLParser):
    """What a browser would ask for, and whether every element is closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.asked: list[str] = []
        self.open: list[str] = []
        self.headings: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.asked += [
            value or "" for name, value in attrs if name in ("src", "href", "srcset", "data", "action")
        ]
        if tag in ("script", "iframe", "object", "embed", "link", "base"):
            self.asked.append(tag)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        pass

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] in ("h1", "h2"):
            self.headings.append(data.strip())


@pytest.fixture(scope="module")
def calibration() -> Calibration:
    trace = observed(workload(90, rate=6, seed=1), noise=0.05)
    return calibrate([source("a <b>", trace)], GUESS, Options(replicates=60))


@pytest.fixture(scope="module")
def folder(calibration: Calibration, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made") / "report"
    write_report(calibration, folder, command="vtwin calibrate 'a <b>'")
    return folder


def test_the_document_has_the_keys_that_others_rely_on(folder: Path) -> None:
    document = json.loads((folder / "report.json").read_text())
    expected = {
        "schema_version", "verdict", "fit", "in_sample", "holdout", "noise_floor", "excluded", "strata", "traces",
        "config", "provenance",
    }  # fmt: skip
    assert expected <= set(document)
    assert {"model", "coefficients", "correlation", "condition_number"} <= set(document["fit"])
    for coefficient in document["fit"]["coefficients"].values():
        assert {"value", "low", "high", "unit", "identifiable", "reason"} <= set(coefficient)
    for errors in (document["in_sample"], document["holdout"]):
        assert {"ttft_us", "itl_us", "tpot_us", "e2e_us"} <= set(errors)
        for metric in errors.values():
            assert set(metric["observed"]) == set(metric["simulated"]) == {"mean", "p50", "p90", "p95", "p99"}
            for estimate in (metric["mape"], metric["bias"], metric["pearson_r"], metric["ks"]):
                assert set(estimate) == {"value", "low", "high"}
            assert set(metric["rel_error"]["p99"]) == {"value", "low", "high"}


def test_the_page_asks_for_nothing_from_outside_and_is_well_formed(folder: Path) -> None:
    text = (folder / "report.html").read_text()
    page = Page(text)
    assert page.asked == []
    assert page.open == []
    assert re.findall(r"(?:https?:)?//[a-z]", text) == []
    assert "url(" not in text
    assert "@import" not in text
    assert len(text) < 1_500_000


def test_the_page_begins_with_the_verdict_and_draws_before_it_counts(folder: Path) -> None:
    headings = Page((folder / "report.html").read_text()).headings
    assert headings[0] == parted(json.loads((folder / "report.json").read_text())["verdict_text"])[0]
    assert headings[1:5] == ["The server", "Distributions", "Held-out errors", "Request by request"]
    assert "Coefficients" in headings


def test_what_a_trace_is_called_cannot_become_markup(folder: Path) -> None:
    text = (folder / "report.html").read_text()
    assert "a <b>" not in text
    assert "a &lt;b&gt;" in text


def test_the_page_tells_where_the_error_comes_from_and_draws_the_worst_requests(folder: Path) -> None:
    text = (folder / "report.html").read_text()
    headings = Page(text).headings
    order = [
        "Request by request",
        "Where the error comes from",
        "Load over time",
        "Coefficients",
        "By kind of request",
    ]
    assert [name for name in headings if name in order] == order
    worst = json.loads((folder / "report.json").read_text())["worst"]
    assert len(worst) == 10
    assert text.count('class="bars"') == 11  # and the mean request


def test_a_coefficient_that_cannot_be_seen_comes_with_a_command_wherever_the_report_is_read(
    tmp_path: Path,
) -> None:
    lonely = observed(workload(40, rate=0.02, seed=1, prompt=(200, 0.0), output=(8, 0.0)), noise=0.05)
    found = calibrate([source("lonely", lonely)], GUESS, Options(replicates=60))
    document = write_report(found, tmp_path / "r", command="vtwin")
    commands = [each["command"] for each in document["reveals"]]  # type: ignore[index,attr-defined]
    assert commands
    for name in ("report.md", "report.html"):
        text = (tmp_path / "r" / name).read_text()
        assert [command for command in commands if command not in text] == []


def test_a_repeated_run_puts_a_band_around_every_curve(tmp_path: Path) -> None:
    trace = workload(40, rate=6, seed=2)
    one, other = (source(name, observed(trace, noise=0.1, seed=i)) for i, name in enumerate("ab"))
    found = compare_with_twin([one], GUESS, Options(replicates=60), repeats=[other])
    write_report(found, tmp_path / "r", command="vtwin")
    text = (tmp_path / "r" / "report.html").read_text()
    assert text.count('class="band noise"') == 4
    assert text.count("noise floor") > 4


def test_the_page_is_of_the_traces_that_judge_whether_or_not_anything_was_fitted(tmp_path: Path) -> None:
    low, high = (
        source(name, observed(workload(30, rate=6, seed=s))) for s, name in enumerate(("low", "high"))
    )
    found = compare_with_twin([low], GUESS, Options(replicates=60), holdout=[high])
    assert [each.source.name for each in found.held_out_traces] == ["high"]
    write_report(found, tmp_path / "r", command="vtwin")
    assert "30 requests of <b>high</b>" in (tmp_path / "r" / "report.html").read_text()


def test_the_markdown_holds_the_same_numbers(folder: Path, calibration: Calibration) -> None:
    text = (folder / "report.md").read_text()
    assert "## Held-out errors" in text
    value = calibration.holdout["e2e_us"].mape.value
    assert value is not None
    assert f"| E2E | {calibration.holdout['e2e_us'].n} |" in text
    assert text.count("| beta0 |") == 1


def test_a_report_without_a_fit_has_no_coefficients(tmp_path: Path) -> None:
    trace = workload(30, rate=6, seed=2)
    found = compare_with_simulated(
        source("a", observed(trace)), source("b", observed(trace, GUESS)), Options(replicates=60)
    )
    document = write_report(found, tmp_path / "report", command="vtwin")
    assert document["fit"] is None
    assert document["config"] is None
    assert "Coefficients" not in Page((tmp_path / "report" / "report.html").read_text()).headings


def test_a_handful_of_requests_still_makes_a_report(tmp_path: Path) -> None:
    trace = workload(2, rate=6, seed=3)
    found = compare_with_simulated(source("a", observed(trace)), source("b", observed(trace)), Options())
    document = write_report(found, tmp_path / "report", command="vtwin")
    assert document["holdout"]["e2e_us"]["mape"] == {"value": 0.0, "low": None, "high": None}  # type: ignore[index]


def test_the_same_calibration_is_the_same_document(calibration: Calibration) -> None:
    first, second = (document_of(calibration, command="x") for _ in range(2))
    for document in (first, second):
        document["provenance"].pop("created_at")
    assert first == second
