"""The command ``vtwin observe``: exit codes, what is on which stream, and what an interrupted run leaves."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import Callable, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

import vtwin
from tests.observe.servers import Behaviour, FakeServer, serving, serving_in_thread
from traces import Trace, read_trace

SHORT = [
    "--prompt-tokens",
    "20",
    "--prompt-tokens-stdev",
    "0",
    "--output-tokens",
    "5",
    "--output-tokens-stdev",
    "0",
]


def observe(url: str, *arguments: str, stem: Path) -> int:
    return vtwin.main(["observe", "--url", url, "--output", str(stem), *SHORT, *arguments])


def test_a_run_ends_well_with_the_document_on_stdout_and_the_rest_on_stderr(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with serving_in_thread(Behaviour(itl_s=0.005)) as server:
        code = observe(server.url, "--rate", "100", "--num-requests", "10", "--json", stem=tmp_path / "run")
    out, err = capsys.readouterr()
    assert code == 0
    document = json.loads(out)
    assert document["num_by_status"] == {"ok": 10}
    assert document["ttft_us"]["p50"] > 0
    assert document["itl_us"]["p50"] == pytest.approx(5500, rel=0.8)
    client = document["client"]
    assert client["rate_per_s"] == 100
    assert client["rate_asked_per_s"] == pytest.approx(100, abs=0.01)  # the gaps are scaled to it
    assert "100/s scheduled\n" in err
    assert document["metrics_delta"]['vllm:generation_tokens_total{engine="0"}'] == 50
    assert "TTFT, ms" in err
    trace = read_trace(tmp_path / "run")
    assert len(trace) == 10
    assert trace.header.seed == 42
    last_s = float(trace.column("send_time_us").max()) / 1e6
    assert client["rate_achieved_per_s"] == pytest.approx(10 / last_s, rel=1e-3)


def test_without_json_the_table_is_on_stdout_and_progress_on_stderr(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with serving_in_thread(Behaviour(extras=False)) as server:
        assert observe(server.url, "--rate", "100", "--num-requests", "3", stem=tmp_path / "run") == 0
    out, err = capsys.readouterr()
    assert out.startswith("requests    3 ok")
    assert "TTFT from scheduled send, ms" in out
    assert err
    assert all(line.startswith("observe: ") for line in err.splitlines())


def test_keys_on_the_command_line_are_stars_in_the_header(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    command = [
        "--concurrency",
        "2",
        "--num-requests",
        "2",
        "--api-key",
        "sk-1",
        "--header=Authorization: Bearer 2",
    ]
    monkeypatch.setattr(sys, "argv", ["vtwin", "observe", *command])
    with serving_in_thread() as server:
        assert observe(server.url, *command, stem=tmp_path / "run") == 0
        assert server.requests[0].headers["authorization"] == "Bearer 2"
    shown = read_trace(tmp_path / "run").header.command or ""
    assert "--api-key '***'" in shown
    assert "Authorization: ***" in shown
    assert "sk-1" not in shown + capsys.readouterr().err


def test_a_url_with_a_wrong_path_is_blamed_by_its_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with serving_in_thread() as server:
        assert (
            observe(f"{server.url}/foo", "--rate", "100", "--num-requests", "3", stem=tmp_path / "run") == 4
        )
    said = capsys.readouterr().err.splitlines()[-1]
    assert f"{server.url}/foo/v1/models: HTTP 404" in said


def test_no_finished_request_is_exit_1_and_the_trace_says_why(tmp_path: Path) -> None:
    with serving_in_thread(Behaviour(fault="status 500")) as server:
        assert observe(server.url, "--rate", "100", "--num-requests", "3", stem=tmp_path / "run") == 1
    trace = read_trace(tmp_path / "run")
    assert list(trace.column("status")) == ["error"] * 3
    assert trace.column("error_message").iloc[0].startswith("HTTP 500")


def test_a_client_that_sets_the_pace_is_exit_1_only_when_strict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(
        "observe.result.client_verdict.BOUNDS", {"own_lag_p99_us": -1, "loop_lag_p99_us": -1, "cpu_frac": -1}
    )
    load = ["--rate", "200", "--num-requests", "3"]
    with serving_in_thread() as server:
        assert observe(server.url, *load, stem=tmp_path / "a") == 0
        assert "LIMITED THE RUN" in capsys.readouterr().out
        assert observe(server.url, *load, "--strict", stem=tmp_path / "b") == 1
    client = read_trace(tmp_path / "b").header.client
    assert client is not None
    assert client.limited
    assert "CPU use of its core: " in (client.reason or "")


def test_a_client_that_is_late_and_sends_at_the_rate_is_told_to_be_late(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("observe.result.client_verdict.LATE_US", -1.0)
    patient = {
        "own_lag_p99_us": 1e9,
        "loop_lag_p99_us": 1e9,
        "cpu_frac": 1e9,
    }  # whatever else the machine does
    monkeypatch.setattr("observe.result.client_verdict.BOUNDS", patient)
    with serving_in_thread() as server:
        assert observe(server.url, "--rate", "50", "--num-requests", "3", stem=tmp_path / "a") == 0
    (line,) = (line for line in capsys.readouterr().out.splitlines() if line.startswith("client "))
    assert "LATE by up to " in line
    assert "ms (p99), at the load's pace" in line
    assert read_trace(tmp_path / "a").header.client.late is True  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (
            ["--rate", "1", "--header", "nonsense"],
            2,
            "--header: got a text without a colon, expected 'Name: value'",
        ),
        (["--rate", "1", "--timeout", "-3"], 2, "expected a time > 0, or none"),
        (["--rate", "1", "--timeout", "1e300"], 2, "'--timeout': got '1e300', expected a time > 0, or none"),
        (["--rate", "1", "--warmup", "9" * 5000], 2, "expected at most 50,000,000 requests"),
        (["--rate", "1", "--retries", "9" * 18], 2, "'--retries': got"),
        ([], 2, "workload: got none"),
        (["--trace", "nowhere"], 3, "nowhere"),
        (["--rate", "1"], 4, "cannot connect to 127.0.0.1:1"),
    ],
)
def test_bad_input_is_one_line_and_its_exit_code(
    arguments: list[str], code: int, said: str, *, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url = ["--url", "http://127.0.0.1:1", "--output", str(tmp_path / "run")]
    assert vtwin.main(["observe", *url, *arguments]) == code
    err = capsys.readouterr().err
    assert said in err
    assert len(err.strip().splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("ftp://host", "expected http://HOST:PORT or https://HOST"),
        ("http://host:99999", "expected http://HOST:PORT"),
        ("http://host/?a=b", "expected no query"),
    ],
)
def test_a_bad_url_is_a_configuration_error(
    url: str, said: str, *, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert observe(url, "--rate", "1", stem=tmp_path / "run") == 2
    assert said in capsys.readouterr().err


async def interrupted(
    stem: Path,
    send: Callable[[asyncio.subprocess.Process], None],
    *,
    after: int,
    behaviour: Behaviour | None = None,
    more: Sequence[str] = (),
) -> tuple[int, str, FakeServer]:
    """Run observe in a process of its own, tamper with it once ``after`` requests were answered."""
    async with serving(behaviour or Behaviour(itl_s=0.02)) as server:
        command = [
            "-m",
            "vtwin",
            "observe",
            "--url",
            server.url,
            "--output",
            str(stem),
            *SHORT,
            "--rate",
            "50",
        ]
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, *command, *more, "--num-requests", "2000"),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        await asyncio.wait_for(server.received(after), 30)
        send(process)
        out, err = await asyncio.wait_for(process.communicate(), 30)
    assert process.returncode is not None
    return process.returncode, (out + err).decode(), server


def finished(trace: Trace) -> bool | None:
    assert trace.header.client is not None
    return trace.header.client.finished


async def test_one_ctrl_c_finishes_what_is_under_way_and_writes_the_trace(tmp_path: Path) -> None:
    code, err, server = await interrupted(tmp_path / "run", lambda p: p.send_signal(signal.SIGINT), after=20)
    assert code == 130, err
    trace = read_trace(tmp_path / "run")
    assert len(trace) == len(server.requests) >= 20
    assert set(trace.column("status")) == {"ok"}
    assert finished(trace) is False
    assert trace.header.client is not None
    assert trace.header.client.interrupted
    assert "not sent" in err


async def test_a_second_ctrl_c_drops_what_is_under_way(tmp_path: Path) -> None:
    def twice(process: asyncio.subprocess.Process) -> None:
        process.send_signal(signal.SIGINT)
        asyncio.get_running_loop().call_later(0.3, process.send_signal, signal.SIGINT)

    code, err, server = await interrupted(tmp_path / "run", twice, after=20, behaviour=Behaviour(itl_s=2))
    assert code == 130, err
    trace = read_trace(tmp_path / "run")
    assert len(trace) == len(server.requests)
    assert set(trace.column("status")) == {"aborted"}
    assert set(trace.column("error_message")) == {"aborted by the client before the answer was complete"}


@pytest.mark.usefixtures("heeds_hang_up")
async def test_a_hang_up_ends_a_run_as_sigterm_does_and_its_key_is_not_in_the_process_list(
    tmp_path: Path,
) -> None:
    """A hang-up is passed on as SIGTERM: both drop what is under way, and the trace is written."""
    seen: list[bytes] = []

    def hang_up(process: asyncio.subprocess.Process) -> None:
        seen.append(Path(f"/proc/{process.pid}/cmdline").read_bytes())
        process.send_signal(signal.SIGHUP)

    secrets = ["--api-key", "sk-marker-1", "--header=X-Team: hush-marker"]
    code, err, server = await interrupted(tmp_path / "run", hang_up, after=20, more=secrets)
    assert code == 130, err
    assert b"--api-key\0***" in seen[0]
    assert b"marker" not in seen[0]
    assert server.requests[0].headers["authorization"] == "Bearer sk-marker-1"
    trace = read_trace(tmp_path / "run")
    assert len(trace) == len(server.requests)
    assert set(trace.column("status")) == {"ok", "aborted"}
    aborted = trace.requests[trace.column("status") == "aborted"]
    assert (aborted["max_tokens"] == 5).all()


async def test_kill_9_leaves_a_trace_of_everything_finished(tmp_path: Path) -> None:
    code, err, server = await interrupted(tmp_path / "run", lambda p: p.kill(), after=20)
    assert code == -9, err
    trace = read_trace(tmp_path / "run")
    assert 5 < len(trace) <= len(server.requests)
    assert set(trace.column("status")) == {"ok"}
    assert trace.events is not None
    assert len(trace.events) >= 6 * (len(trace) - 1)
    assert finished(trace) is False


async def test_kill_9_before_the_first_answer_leaves_an_empty_trace(tmp_path: Path) -> None:
    code, err, server = await interrupted(
        tmp_path / "run", lambda p: p.kill(), after=1, behaviour=Behaviour(fault="stall before the head")
    )
    assert code == -9, err
    assert len(server.requests) >= 1
    trace = read_trace(tmp_path / "run")
    assert len(trace) == 0
    assert finished(trace) is False
    assert "request_id" in (tmp_path / "run.csv").read_text().splitlines()[0]


def test_https_to_a_port_that_speaks_http_names_the_cure(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler)
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        url = f"https://127.0.0.1:{server.server_port}"
        load = ["--rate", "5", "--num-requests", "2", "--output", str(tmp_path / "t")]
        assert vtwin.main(["observe", "--url", url, *load]) == 4
    finally:
        server.shutdown()
        server.server_close()
    assert "the port does not speak TLS, http:// instead of https:// may be meant" in capsys.readouterr().err


def told_of_the_server(err: str) -> str:
    """Return the line on model and GPU, which the terminal may have broken; empty where there is none."""
    joined = " ".join(line.strip() for line in err.splitlines())
    return joined.partition("observe: model ")[2]


def test_a_run_ends_with_what_the_server_does_not_tell_and_the_options_that_help(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with serving_in_thread(Behaviour(model="Qwen/Qwen3-14B")) as server:
        load = ["--rate", "100", "--num-requests", "3"]
        assert observe(server.url, *load, "--json", stem=tmp_path / "run") == 0
        out, err = capsys.readouterr()
        assert json.loads(out)["num_by_status"] == {"ok": 3}
        said = told_of_the_server(err)
        assert said.startswith("Qwen/Qwen3-14B (from /v1/models) ships with vtwin; the GPU is not known.")
        assert "--gpu H100 --model-config Qwen/Qwen3-14B" in said
        assert observe(server.url, *load, "--gpu", "H100", "--tp", "2", stem=tmp_path / "named") == 0
        assert told_of_the_server(capsys.readouterr().err) == ""
    info = read_trace(tmp_path / "named").header.server
    assert (info.model, info.gpu, info.tensor_parallel) == ("Qwen/Qwen3-14B", "H100", 2)
    assert (info.sources["gpu"], info.sources["tensor_parallel"]) == (
        "given by the user",
        "given by the user",
    )


def test_a_list_of_loads_says_so_once_and_a_run_that_ends_badly_says_so_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with serving_in_thread(Behaviour()) as server:
        assert observe(server.url, "--sweep", "50,100", "--num-requests", "3", stem=tmp_path / "list") == 0
        said = told_of_the_server(capsys.readouterr().err)
        assert said.startswith("tiny (from /v1/models) does not ship with vtwin")
        assert "observe: model " not in said
        again = [
            "--url",
            server.url,
            "--rate",
            "100",
            "--num-requests",
            "2",
            "--output",
            str(tmp_path / "nested"),
        ]
        vtwin._run("observe", again)  # as `validate` calls it, many times: that has said so itself
        assert told_of_the_server(capsys.readouterr().err) == ""
    with serving_in_thread(Behaviour(fault="status 500")) as server:
        assert observe(server.url, "--rate", "100", "--num-requests", "2", stem=tmp_path / "bad") == 1
        assert told_of_the_server(capsys.readouterr().err)


def test_gauges_of_the_trace_that_stood_there_before_do_not_stay(tmp_path: Path) -> None:
    load = ["--rate", "100", "--num-requests", "3"]
    gauges = tmp_path / "run.gauges.csv"
    with serving_in_thread() as server:
        assert observe(server.url, *load, "--scrape", "1s", stem=tmp_path / "run") == 0
        assert gauges.is_file()
        assert observe(server.url, *load, "--overwrite", "--no-scrape", stem=tmp_path / "run") == 0
    assert not gauges.exists()
