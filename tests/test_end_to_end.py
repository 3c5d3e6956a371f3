"""All steps with real processes and real sockets: serve, observe, fit, compare, replay."""

from __future__ import annotations

import io
import json
import math
import select
import signal
import socket
import subprocess
import sys
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import pytest

import vtwin
from calibrate.validate import demo
from traces import read_trace, request_metrics

NUM_REQUESTS = {"low": 15, "high": 36, "holdout": 24}


@dataclass(frozen=True, slots=True, kw_only=True)
class Loop:
    """What `vtwin demo` leaves with loads of three seconds, and what it printed on stdout."""

    folder: Path
    shown: str


@pytest.fixture(scope="module")
def loop(tmp_path_factory: pytest.TempPathFactory) -> Loop:
    folder = tmp_path_factory.mktemp("loop")
    shown = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(shown):
        patch.setattr(demo, "SECONDS", 3)
        patch.setattr(demo, "RATES", {"low": 5.0, "high": 12.0, "holdout": 8.0})
        assert vtwin.main(["demo", "--output", str(folder)]) == 0
    return Loop(folder=folder, shown=shown.getvalue())


@pytest.fixture(scope="module")
def folder(loop: Loop) -> Path:
    """The demo's folder, with the held-out trace as its twin replays it."""
    folder = loop.folder
    stem, config = str(folder / "holdout"), str(folder / "twin.yaml")
    command = ["replay", stem, "--config", config, "--output", str(folder / "replayed"), "--json"]
    done = subprocess.run(
        [sys.executable, "-P", "-m", "vtwin", *command], capture_output=True, text=True, check=True
    )
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

    truth = {name: float(value) for name, value in demo.TRUTH.items()}
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


def test_the_demo_shows_what_the_fit_found_next_to_the_truth(loop: Loop) -> None:
    shown = loop.shown
    assert [name for name in demo.TRUTH if name not in shown] == []
    assert f"{demo.TRUTH['beta0']:,}" in shown


def test_a_server_that_does_not_start_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(demo, "ENGINE", "engine: {max_num_seqs: 0}\n")
    assert vtwin.main(["demo", "--output", str(tmp_path)]) == 4
    assert "Traceback" not in capfd.readouterr().err


def test_the_demos_server_ends_with_it(folder: Path) -> None:
    url = urlsplit(read_trace(folder / "low").header.server.url or "")
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((url.hostname or "", url.port or 0), timeout=1)


@pytest.mark.usefixtures("heeds_hang_up")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGHUP, signal.SIGINT])
def test_the_demos_server_ends_however_the_demo_ends(tmp_path: Path, number: signal.Signals) -> None:
    command = [sys.executable, "-P", "-m", "vtwin", "demo", "--output", str(tmp_path)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        announced = next(line for line in process.stderr if line.startswith("serving on "))
        process.send_signal(number)
        code = process.wait(30)
        process.stderr.read()
    assert code == (-number if number == signal.SIGKILL else 130)
    url = urlsplit(announced.split()[-1])
    for _ in range(200):  # the server of a killed demo notices by itself
        try:
            socket.create_connection((url.hostname or "", url.port or 0), timeout=1).close()
        except ConnectionRefusedError:
            return
        select.select([], [], [], 0.05)
    pytest.fail("the server still listens")
