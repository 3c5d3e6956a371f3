"""The whole loop with real processes and real sockets: serve, observe, fit, judge, replay."""

from __future__ import annotations

import json
import math
import socket
import subprocess
from pathlib import Path
from urllib.parse import urlsplit

import pytest

import vtwin
from traces import read_trace, request_metrics

NUM_REQUESTS = {"low": 15, "high": 36, "holdout": 24}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `vtwin demo` leaves with loads of three seconds, and the held-out trace as its twin replays it."""
    folder = tmp_path_factory.mktemp("loop")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(vtwin, "DEMO_SECONDS", 3)
        patch.setattr(vtwin, "DEMO_RATES", {"low": 5.0, "high": 12.0, "holdout": 8.0})
        assert vtwin.main(["demo", "--output", str(folder)]) == 0
    stem, config = str(folder / "holdout"), str(folder / "twin.yaml")
    command = ["replay", stem, "--config", config, "--output", str(folder / "replayed"), "--json"]
    done = subprocess.run([*vtwin.VTWIN, *command], capture_output=True, text=True, check=True)
    (folder / "replayed.json").write_text(done.stdout)
    return folder


@pytest.mark.parametrize("name", NUM_REQUESTS)
def test_every_request_that_was_planned_is_in_the_trace_and_was_answered(folder: Path, name: str) -> None:
    trace = read_trace(folder / name)
    assert trace.requests["status"].tolist() == ["ok"] * NUM_REQUESTS[name]
    assert (trace.requests["output_tokens"] == trace.requests["max_tokens"]).all()


def test_the_twin_finds_the_servers_step_time(folder: Path) -> None:
    fitted = json.loads((folder / "report" / "report.json").read_text())["fit"]["coefficients"]

    def step_us(coefficient: dict[str, float]) -> float:
        return coefficient["beta0"] + 4 * coefficient["beta2"]  # four sequences decode

    truth = {name: float(value) for name, value in vtwin.DEMO_TRUTH.items()}
    found = {name: entry["value"] for name, entry in fitted.items()}
    assert math.isclose(step_us(found), step_us(truth), rel_tol=0.15)


def test_a_load_that_was_not_fitted_is_predicted(folder: Path) -> None:
    observed, replayed = (request_metrics(read_trace(folder / name)) for name in ("holdout", "replayed"))
    for metric in ("ttft_us", "e2e_us", "tpot_us"):
        assert math.isclose(replayed[metric].median(), observed[metric].median(), rel_tol=0.2), metric


def test_the_replay_is_of_the_same_requests(folder: Path) -> None:
    observed, replayed = (read_trace(folder / name).requests for name in ("holdout", "replayed"))
    assert replayed["request_id"].tolist() == observed["request_id"].tolist()
    assert replayed["output_tokens"].tolist() == observed["output_tokens"].tolist()
    summary = json.loads((folder / "replayed.json").read_text())
    assert summary["num_by_status"] == {"ok": NUM_REQUESTS["holdout"]}


def test_the_report_is_one_page_that_asks_for_nothing_else(folder: Path) -> None:
    page = (folder / "report" / "report.html").read_text()
    assert "<svg" in page
    for outside in ('src="http', "src='http", "<link ", "@import", "url(http"):
        assert outside not in page


def test_the_demo_says_what_the_fit_found_beside_the_truth(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    vtwin._show_recovery(folder / "report" / "report.json")
    shown = capsys.readouterr().out
    assert [name for name in vtwin.DEMO_TRUTH if name not in shown] == []
    assert f"{vtwin.DEMO_TRUTH['beta0']:,}" in shown


def test_a_server_that_does_not_start_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(vtwin, "DEMO_ENGINE", "engine: {max_num_seqs: 0}\n")
    assert vtwin.main(["demo", "--output", str(tmp_path)]) == 4
    assert "Traceback" not in capfd.readouterr().err


def test_the_demos_server_ends_with_it(folder: Path) -> None:
    url = urlsplit(read_trace(folder / "low").header.server.url or "")
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((url.hostname or "", url.port or 0), timeout=1)
