"""What is logged of a run, and how the libraries of MLflow and Weights & Biases are asked; stand-ins take their places.

``python -m tests.studies.live.trackers`` asks the libraries themselves.
"""

from __future__ import annotations

import sys
import types
from pathlib import Path
from typing import Any

import pytest

import vtwin
from observe import report_runs
from observe.measured.logged_run import LoggedRun, logged_run
from tests.calibrate.known_servers import observed, workload
from traces import ClientInfo, ClosedLoop, ServerInfo, summarize_trace, without_warmup, write_trace

KEY = "sk-of-the-environment"


@pytest.fixture
def stem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A measured run whose header holds a key that should not be there."""
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.delenv("MLFLOW_EXPERIMENT_NAME", raising=False)
    server = ServerInfo(model="tiny", gpu="H100", max_num_seqs=8, sources={"gpu": "given by the user"})
    trace = observed(workload(40, rate=4, seed=3)).with_header(
        command=f"vtwin observe --url http://me:secret@host --api-key other-key --header x={KEY}",
        server=server,
        client=ClientInfo(api="chat", num_sent=40, limited=False),
        closed_loop=ClosedLoop(concurrency=4),
        start_unix_us=1_700_000_000_123_456,
        seed=7,
    )
    write_trace(trace, tmp_path / "calm")
    (tmp_path / "calm.gauges.csv").write_text("time_us,gauge,value\n")
    (tmp_path / "calm.other.csv").write_text("of another run\n")
    return tmp_path / "calm"


def logged(stem: Path) -> LoggedRun:
    [load] = report_runs([stem], slo_us={"ttft": 60_000}).loads
    return logged_run(load, page=stem.with_name("page.html"))


def test_parameters_are_what_was_asked_and_of_which_server_without_keys(stem: Path) -> None:
    run = logged(stem)
    assert run.name == "calm"
    assert run.start_ms == 1_700_000_000_123
    expected = {
        "server.model": "tiny",
        "server.gpu": "H100",
        "server.max_num_seqs": "8",
        "client.api": "chat",
        "client.limited": "False",
        "closed_loop.concurrency": "4",
        "seed": "7",
        "mode": "replayed",  # by a simulated server
    }
    assert {name: run.params[name] for name in expected} == expected
    assert "client.num_sent" not in run.params  # measured, not asked
    assert not any(name.startswith("server.sources") for name in run.params)
    said = " ".join(run.params.values())
    assert not [word for word in (KEY, "secret", "other-key") if word in said]
    assert "--url http://***@host" in run.params["command"]


def test_metrics_are_the_numbers_of_the_document(stem: Path) -> None:
    run = logged(stem)
    [load] = report_runs([stem], slo_us={"ttft": 60_000}).loads
    summary = summarize_trace(without_warmup(load.trace))
    assert summary.ttft_us is not None
    assert run.metrics["ttft_us.p99"] == summary.ttft_us.p99
    assert run.metrics["num_by_status.ok"] == 40
    assert 0 <= run.metrics["goodput.good_frac"] <= 1
    assert run.metrics["request_throughput"] == summary.request_throughput
    assert all(isinstance(value, float) for value in run.metrics.values())
    assert "mode" not in run.metrics


def test_files_are_the_traces_own_and_the_page(stem: Path) -> None:
    names = [file.name for file in logged(stem).files]
    assert names[:2] == ["calm.yaml", "calm.csv"]
    assert names[-2:] == ["calm.gauges.csv", "page.html"]
    assert "calm.other.csv" not in names


class Recorded:
    """Stands in for MLflow's client, or W&B's run: notes what it is asked; ``breaks`` at one of its calls."""

    def __init__(self, breaks: str = "") -> None:
        self.asked: list[tuple[Any, ...]] = []
        self.breaks = breaks

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - any call
        def ask(*given: Any, **named: Any) -> Any:  # noqa: ANN401
            self.asked.append((name, given, named))
            if name == self.breaks:
                raise OSError("no space left")
            answers = {"create_experiment": "7", "get_experiment_by_name": None}
            run = types.SimpleNamespace(info=types.SimpleNamespace(run_id="abc", start_time=5))
            return answers.get(name, run)

        return ask

    def calls(self, name: str) -> list[tuple[Any, ...]]:
        return [each[1:] for each in self.asked if each[0] == name]


def put_mlflow(monkeypatch: pytest.MonkeyPatch, client: Recorded) -> list[str]:
    """Put a stand-in in the place of ``mlflow``; return the places that it is opened with."""
    places: list[str] = []

    def opened(tracking_uri: str) -> Recorded:
        places.append(tracking_uri)
        return client

    module: Any = types.ModuleType("mlflow")
    module.MlflowClient = opened
    module.exceptions = types.SimpleNamespace(MlflowException=RuntimeError)
    entities: Any = types.ModuleType("mlflow.entities")
    entities.Metric = lambda name, value, when, step: (name, value, when, step)
    entities.Param = lambda name, value: (name, value)
    monkeypatch.setitem(sys.modules, "mlflow", module)
    monkeypatch.setitem(sys.modules, "mlflow.entities", entities)
    for name in ("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "MLFLOW_HTTP_REQUEST_TIMEOUT", "MLFLOW_ALLOW_FILE_STORE"):
        monkeypatch.setenv(name, "")
    return places


def test_mlflow_gets_a_run_with_all_of_it(
    stem: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    client = Recorded()
    places = put_mlflow(monkeypatch, client)
    monkeypatch.chdir(stem.parent)
    assert vtwin.main(["report", "calm", "--output", "page.html", "--mlflow", "runs"]) == 0
    assert "logged to mlflow: abc\n" in capsys.readouterr().err
    assert places == [(stem.parent / "runs").as_uri()]
    assert client.calls("create_experiment") == [(("vtwin",), {})]
    [(_, batch)] = client.calls("log_batch")
    assert ("server.gpu", "H100") in batch["params"]
    assert {when for _, _, when, _ in batch["metrics"]} == {1_700_000_000_123}
    files = [Path(given[1]).name for given, _ in client.calls("log_artifact")]
    assert files[-1] == "page.html"
    assert client.calls("set_terminated") == [(("abc",), {"status": "FINISHED"})]


def test_a_run_that_breaks_off_is_marked_and_one_line(
    stem: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    client = Recorded(breaks="log_artifact")
    put_mlflow(monkeypatch, client)
    assert vtwin.main(["report", str(stem), "--mlflow", "http://me:pw@store"]) == 4
    said = capsys.readouterr().err
    assert said == (
        "ServerError: --mlflow http://***@store: got no space left, expected a store that takes runs\n"
    )
    assert client.calls("set_terminated") == [(("abc",), {"status": "FAILED"})]


def test_wandb_gets_a_run_with_all_of_it(
    stem: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    begun: list[dict[str, Any]] = []
    summary: dict[str, float] = {}

    class Run(Recorded):
        url = None
        dir = str(stem.parent / "offline" / "files")

        def __enter__(self) -> Run:
            self.summary = summary
            return self

        def __exit__(self, *_: object) -> None:
            self.asked.append(("finish", (), {}))

    run = Run()

    def init(**named: Any) -> Run:  # noqa: ANN401 - as the library has it
        begun.append(named)
        return run

    module: Any = types.ModuleType("wandb")
    module.init, module.Error, module.Settings = init, RuntimeError, lambda **named: named
    monkeypatch.setitem(sys.modules, "wandb", module)
    Path(run.dir).mkdir(parents=True)
    assert vtwin.main(["report", str(stem), "--wandb", "team/speed"]) == 0
    assert f"logged to wandb: {stem.parent / 'offline'}\n" in capsys.readouterr().err
    [named] = begun
    assert (named["entity"], named["project"], named["name"]) == ("team", "speed", "calm")
    assert named["config"]["server.gpu"] == "H100"
    assert named["settings"]["x_disable_meta"] is True
    assert summary["num_by_status.ok"] == 40
    kept = sorted(file.name for file in Path(run.dir).iterdir())
    assert {"calm.csv", "calm.yaml", "calm.report.html"} <= set(kept)
    assert run.asked[-1][0] == "finish"


@pytest.mark.parametrize(("tool", "value"), [("mlflow", "runs"), ("wandb", "speed")])
def test_a_library_that_is_not_there_is_one_line(
    tool: str,
    value: str,
    stem: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setitem(sys.modules, tool, None)
    assert vtwin.main(["report", str(stem), f"--{tool}", value]) == 2
    line = f"--{tool}: got no library {tool}, expected the extra: pip install 'vtwin[{tool}]'"
    assert capsys.readouterr().err.splitlines()[-1] == f"ConfigError: {line}"
    assert vtwin.main(["report", str(stem), f"--{tool}", "/"]) == 2
    assert capsys.readouterr().err.splitlines()[-1] == (
        f"ConfigError: --{tool}: got '/', expected the name of a place"
    )
