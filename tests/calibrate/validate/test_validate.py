"""`vtwin validate`: the loop against a live endpoint, interrupted once and gone on with, in CI's size."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

import vtwin
from calibrate import Options, calibrate_twin, write_config
from calibrate.report.warnings import warnings_of
from calibrate.validate.emulated import serving
from calibrate.validate.plan import FITTED_LOADS, _enough_for_capacity
from observe.plan.loads import calibration_loads
from replay import load_config
from tests.calibrate.known_servers import GUESS, observed, source
from tests.examples import THOROUGH
from traces import read_trace, write_trace
from traces.workload import WorkloadOptions

SERVER = """\
engine: {max_num_seqs: 32, max_num_batched_tokens: 512, max_model_len: 512, async_scheduling: false}
latency: {model: blackbox, coefficients: {alpha0: 1000, alpha1: 2, alpha2: 0, beta0: 4000, beta1: 20, beta2: 150}}
"""
SERVE = "vllm serve m --max-num-seqs 32 --max-num-batched-tokens 512 --max-model-len 512"
LENGTHS = ["--prompt-tokens", "100", "--prompt-tokens-stdev", "60", "--output-tokens", "12"]
LOAD = [*LENGTHS, "--output-tokens-stdev", "6", "--num-requests", "20"]
VTWIN = (sys.executable, "-P", "-m", "vtwin")
LAST_BEFORE = "load 3 of 8"
MODEL = "auto" if THOROUGH else "blackbox"
"""``auto`` fits a dozen candidates: 40 CPU seconds, which each night has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Loop:
    """The folder, the exit codes of the run that was interrupted and of the one that went on, what that one said."""

    folder: Path
    codes: tuple[int, int]
    said: str
    printed: str


def wait_for_a_row(table: Path) -> None:
    """Wait until a request of this load has been answered: there is no other sign of it from outside."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        if table.exists() and len(table.read_text().splitlines()) > 1:
            return
        time.sleep(0.02)
    raise AssertionError(f"{table}: no row within 30 s")


@pytest.fixture(scope="module")
def loop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loop]:
    """What validate leaves of a server with known coefficients, having been interrupted in the middle of its plan."""
    folder = tmp_path_factory.mktemp("validate")
    (folder / "server.yaml").write_text(SERVER)
    with serving(folder / "server.yaml") as url:
        command = [
            *VTWIN,
            "validate",
            "--url",
            url,
            "--output",
            str(folder / "v"),
            *LOAD,
            "--serve",
            SERVE,
            "--latency-model",
            MODEL,
        ]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as first:
            assert first.stderr is not None
            for line in first.stderr:
                if LAST_BEFORE in line:
                    wait_for_a_row(folder / "v" / "plan" / "decode-heavy.csv")
                    first.send_signal(signal.SIGINT)
                    break
            first.stderr.read()
        again = subprocess.run(command, capture_output=True, text=True, check=False)
        yield Loop(
            folder=folder / "v",
            codes=(first.returncode, again.returncode),
            said=again.stderr,
            printed=again.stdout,
        )


def test_an_interrupted_loop_ends_with_130_and_goes_on_where_it_was(loop: Loop) -> None:
    assert loop.codes == (130, 0), loop.said
    there = [line for line in loop.said.splitlines() if line.endswith("already there")]
    assert [line.split(", ")[1].split(":")[0] for line in there] == [
        "concurrency-32",
        "singles",
        "prefill-heavy",
    ]


def test_the_end_is_in_sight_and_the_twin_says_what_it_serves_at_most(loop: Loop) -> None:
    steps = [line for line in loop.said.splitlines() if line.startswith("step ")]
    assert [line[:11] for line in steps] == [f"step {number} of 4" for number in (1, 2, 3, 4)]
    (line,) = [
        line for line in loop.printed.splitlines() if line.startswith("capacity: the twin serves at most ")
    ]
    assert 20 < float(line.split("at most ")[1].split()[0]) < 400
    assert "vtwin capacity --config" in line
    assert "to trust it at higher rates: the same call with --rate " in loop.printed


def test_the_loop_leaves_every_trace_a_twin_and_a_report(loop: Loop) -> None:
    names = [path.stem for path in (loop.folder / "plan").glob("*.yaml")]
    assert sorted(names) == sorted(FITTED_LOADS)
    for name in names:
        trace = read_trace(loop.folder / "plan" / name)
        assert set(trace.requests["status"]) == {"ok"}
    assert (loop.folder / "twin.yaml").exists()
    assert (loop.folder / "report" / "report.html").exists()


def test_the_twin_trusts_itself_at_the_loads_that_it_was_fitted_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The plan's loads, on the server's own clock: simulated, so that no machine's speed is in their times."""
    (tmp_path / "server.yaml").write_text(SERVER)
    server = load_config(tmp_path / "server.yaml")
    options = WorkloadOptions(
        rate=80.0, num_requests=60, prompt_tokens=100, prompt_tokens_stdev=60, output_tokens=12,
        output_tokens_stdev=6,
    )  # fmt: skip
    loads = calibration_loads(options, max_model_len=512)
    assert [each.name for each in loads] == list(FITTED_LOADS)
    runs = {each.name: observed(each.requests, server, noise=0.02) for each in loads}
    found = calibrate_twin(
        [source(name, trace) for name, trace in runs.items()],
        replace(server, latency=GUESS.latency),
        Options(latency_model="blackbox", replicates=20),
    )
    warned = warnings_of(found)
    for probe in ("singles", "prefill-heavy", "decode-heavy"):
        assert not any(f"{probe}: the twin misses" in line for line in warned)
    write_config(found, tmp_path / "twin.yaml")
    fitted = load_config(tmp_path / "twin.yaml").fitted
    assert fitted is not None
    assert fitted.rate_per_s is not None
    assert fitted.concurrency is not None
    assert fitted.concurrency[1] > 5
    assert fitted.output_tokens is not None
    assert fitted.output_tokens[1] < 64  # decode-heavy sends 77 to 179
    write_trace(runs["high"], tmp_path / "high")
    command = ["run", "--config", str(tmp_path / "twin.yaml"), "--trace", str(tmp_path / "high")]
    assert vtwin.main(command) in (0, 1)
    assert "extrapolated" not in "".join(capsys.readouterr())


def test_the_report_is_of_an_unseen_load_with_the_noise_floor(loop: Loop) -> None:
    report = json.loads((loop.folder / "report" / "report.json").read_text())
    assert report["held_out_by"] == "traces that the fit has not seen"
    assert [each["name"].split("-")[0] for each in report["traces"] if each["role"] == "held out"] == [
        "holdout/rate"
    ]
    if MODEL == "auto":
        assert {each["name"] for each in report["fit"]["candidates"]} > {"blackbox"}
    assert report["noise_floor"]["e2e_us"]["mape"]["value"] > 0
    found = {name: each["value"] for name, each in report["fit"]["coefficients"].items()}
    assert found["beta0"] + found.get("floor", 0) + 4 * found["beta2"] == pytest.approx(
        4000 + 4 * 150, rel=0.2
    )


def test_if_nothing_is_said_the_fit_chooses_the_model_and_async_scheduling_is_as_configured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[tuple[str, list[str]]] = []
    monkeypatch.setattr(vtwin, "_run", lambda command, arguments: ran.append((command, arguments)))
    monkeypatch.setattr("calibrate.validate.validation.served_at_most", lambda *_: "")
    (tmp_path / "twin.yaml").write_text(SERVER)
    asked = ["validate", "--url", "http://x", "--rate", "5", "--config", str(tmp_path / "twin.yaml")]
    assert vtwin.main([*asked, "--output", str(tmp_path / "v")]) == 0
    assert [command for command, _ in ran] == ["observe", "observe", "observe", "calibrate"]
    arguments = ran[-1][1]
    assert arguments[arguments.index("--latency-model") + 1] == "auto"
    assert "--infer-async" not in arguments


def test_the_gpu_is_asked_for_before_anything_is_measured_and_what_is_named_goes_where_it_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ran: list[tuple[str, list[str]]] = []
    monkeypatch.setattr(vtwin, "_run", lambda command, arguments: ran.append((command, arguments)))
    monkeypatch.setattr("calibrate.validate.validation.served_at_most", lambda *_: "")
    asked = ["validate", "--url", "http://x", "--rate", "5", "--output", str(tmp_path / "v")]
    asked += ["--serve", "vllm serve Qwen/Qwen3-14B"]
    assert vtwin.main(asked) == 0
    first = capsys.readouterr().err.lstrip().splitlines()[0]
    assert first.startswith("note: the server's GPU is not named")
    named = ["--gpu", "H100", "--tp", "2"]
    ran.clear()
    assert vtwin.main([*asked, *named, "--model-config", "Qwen/Qwen3-8B"]) == 0
    assert "is not named" not in capsys.readouterr().err
    for command, arguments in ran:
        at = arguments.index("--gpu")
        assert arguments[at : at + 2] == ["--gpu", "H100"]
        assert arguments[arguments.index("--tp") + 1] == "2"
        assert ("--model-config" in arguments) is (command == "calibrate")
    guess = (tmp_path / "v" / "guess.yaml").read_text()
    assert 'gpu: "H100"\n  tp: 2' in guess
    assert 'model_config: "Qwen/Qwen3-8B"' in guess
    ran.clear()
    for unknown in (["--gpu", "H1000"], ["--gpu", "H100", "--model-config", "nobody/knows"]):
        assert vtwin.main([*asked, *unknown]) == 2
    assert ran == []


def test_a_server_that_is_not_there_is_exit_code_4(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    assert vtwin.main(["validate", "--url", f"http://127.0.0.1:{port}", "--output", str(tmp_path / "v")]) == 4
    assert "ServerError" in capfd.readouterr().err


def test_an_option_that_observe_does_not_know_is_refused_by_it(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert (
        vtwin.main(["validate", "--url", "http://x", "--output", str(tmp_path / "v"), "--prompt-token", "5"])
        == 2
    )
    assert "No such option '--prompt-token'" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("load", "more"),
    [
        (["--rounds", "2"], ["--num-requests", "160"]),
        (["--num-requests", "40"], ["--num-requests", "160"]),
        (["--num-requests=40"], ["--num-requests", "160"]),
        (["--num-requests", "400"], []),
        (["--duration", "20s"], []),
    ],
)
def test_capacity_is_measured_with_several_requests_per_user(load: list[str], more: list[str]) -> None:
    assert _enough_for_capacity(load) == [*load, *more]
