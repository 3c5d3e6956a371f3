"""Commands without a document: their functions write the same files, and answer the same."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.request import Request, urlopen

import pytest

import observe
import replay
import replay.twin
import traces
import vtwin
from observe.selfcheck.report import MeasuredFigure, Report
from tests.functions.small_questions import DRAWN, LOAD
from tests.observe.receive.test_receive import PROTOBUF, now_spans
from tests.observe.servers import Behaviour, serving_in_thread
from traces.facts import say_json
from traces.strict.secrets import redact_command
from traces.workload import WorkloadOptions, trace_from_options

WRITTEN: dict[str, tuple[str, str, Callable[[], str | bytes]]] = {
    "report": (
        "report a b --output page.html",
        "page.html",
        lambda: observe.report_runs([Path("a"), Path("b")]).html(called()),
    ),
    "config show": ("config show twin.yaml", "", lambda: replay.dump_config(replay.load_config("twin.yaml"))),
    "config from-serve": (
        "config from-serve 'vllm serve Qwen/Qwen3-14B --max-num-seqs 128' --gpu H100",
        "",
        lambda: replay.start_twin("vllm serve Qwen/Qwen3-14B --max-num-seqs 128", gpu="H100").text,
    ),
    "trace convert": (
        "trace convert load --from tracev2 --output load.jsonl --to mooncake",
        "load.jsonl",
        lambda: traces.export(traces.convert("tracev2", "load"), "mooncake", "other.jsonl").read_bytes(),
    ),
    "trace synth": (
        f"trace synth {DRAWN} --output drawn",
        "drawn.csv",
        lambda: written("other.csv", lambda: traces.write_trace(trace_from_options(LOAD), "other")),
    ),
    "trace export": (
        "trace export a --metrics --output table.csv",
        "table.csv",
        lambda: written(
            "other.csv",
            lambda: traces.write_table(traces.read_trace("a"), Path("other.csv"), metrics=True),
        ),
    ),
}
"""By command: its line, the file that it writes ("": stdout), and what the function makes of the same."""


def called() -> str:
    """Return the command line as a page of the command shows it."""
    return redact_command(["vtwin", *sys.argv[1:]], os.environ)


def written(path: str, write: Callable[[], object]) -> bytes:
    """Return what a function writes to ``path``."""
    write()
    return Path(path).read_bytes()


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("command", WRITTEN)
def test_the_function_writes_what_the_command_writes(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words, file, ask = WRITTEN[command]
    capsys.readouterr()
    assert vtwin.main(shlex.split(words)) == 0
    printed: str | bytes = capsys.readouterr().out
    ours = ask()
    if file:
        printed = Path(file).read_bytes() if isinstance(ours, bytes) else Path(file).read_text()
    assert ours.strip() == printed.strip()
    assert words.startswith(command)


# -- what takes time, or serves -------------------------------------------------------------------------------


def test_observe_s_function_tells_what_the_command_prints(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    load = trace_from_options(WorkloadOptions(rate=100, num_requests=10, prompt_tokens=20, output_tokens=5))
    traces.write_trace(load, "few")
    with serving_in_thread(Behaviour(itl_s=0.005)) as server:
        assert vtwin.main(["observe", "--url", server.url, "--trace", "few", "--output", "o", "--json"]) == 0
        printed = json.loads(capsys.readouterr().out)
        settings = observe.Settings(endpoint=observe.parse_endpoint(server.url))
        read = trace_from_options(WorkloadOptions(trace=Path("few")))
        found = asyncio.run(observe.observe_with(read, settings))
    assert printed == json.loads(json.dumps(observe.summarize_observed(traces.read_trace(here / "o"))))
    ours = observe.summarize_observed(found.trace)
    assert list(ours) == list(printed)
    assert ours["num_by_status"] == printed["num_by_status"] == {"ok": 10}
    assert ours["client"]["rate_asked_per_s"] == printed["client"]["rate_asked_per_s"]


def test_selfcheck_s_function_measures_what_the_command_prints(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def examine(_: object, *, quick: bool, processes: int, **__: object) -> Report:
        cost = MeasuredFigure(name=f"cost of {processes}", value=10.0 + quick, unit="µs", bar=25)
        return Report(figures=(cost,), clock="mono", notes=())

    monkeypatch.setattr("observe.selfcheck.question.examine", examine)
    here = {"cpu": "one", "num_cpus": 1, "load": 0.0, "loop_s": 0.1, "system": "here", "python": "3"}
    monkeypatch.setattr("observe.selfcheck.report.machine", lambda: here)
    assert vtwin.main(["selfcheck", "--quick", "--processes", "2", "--json"]) == 0
    printed = capsys.readouterr().out
    say_json(observe.check_client(quick=True, processes=2).document())
    assert capsys.readouterr().out == printed
    assert json.loads(printed)["figures"][0]["value"] == 11


@contextmanager
def started(*words: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Start Python with ``words``, yield it with the address that it prints, and end it as Ctrl-C does."""
    command = [sys.executable, "-P", *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process, process.stdout.readline().split()[-1]
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=60)
        finally:
            process.kill()


SERVING = """
import replay
replay.run_server("twin.yaml", announce=lambda it: print(it.url, flush=True), port=0)
"""


@pytest.mark.usefixtures("here")
def test_serve_s_function_answers_as_the_command_does() -> None:
    answers = []
    for words in (("-m", "vtwin", "serve", "--config", "twin.yaml", "--port", "0"), ("-c", SERVING)):
        with started(*words) as (process, url):
            body = json.dumps({"prompt": [1, 2, 3], "max_tokens": 4}).encode()
            answer = json.load(
                urlopen(Request(f"{url}/v1/completions", body, {"Content-Type": "application/json"}))  # noqa: S310 - a server of this test
            )
            answers.append((list(answer), answer["choices"], answer["usage"]))
        assert process.returncode == 0
    assert answers[0] == answers[1]
    assert answers[0][2]["completion_tokens"] == 4


EXPLORING = """
import asyncio, signal
import replay
from traces.workload import WorkloadOptions

async def until_told():
    told = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGINT, told.set)
    async with replay.exploring("twin.yaml", WorkloadOptions(rate=5, num_requests=20)) as page:
        print(page.link, flush=True)
        await told.wait()

asyncio.run(until_told())
"""


@pytest.mark.usefixtures("here")
def test_explore_s_function_serves_the_command_s_page() -> None:
    load = ("--rate", "5", "--num-requests", "20")
    pages = []
    for words in (("-m", "vtwin", "explore", "--config", "twin.yaml", *load, "--no-open"), ("-c", EXPLORING)):
        with started(*words) as (process, url):
            pages.append([urlopen(f"{url}{name}").read() for name in ("", "page.js", "page.css")])  # noqa: S310 - a server of this test
        assert process.returncode == 0
    assert pages[0] == pages[1]


RECEIVING = """
import observe
observe.receive_spans("of_function", port=0)
"""


@pytest.mark.usefixtures("here")
def test_receive_s_function_writes_what_the_command_writes() -> None:
    spans = now_spans(1, 2, 3)
    commands = {
        "of_command": ("-m", "vtwin", "receive", "--port", "0", "--output", "of_command"),
        "of_function": ("-c", RECEIVING),
    }
    for words in commands.values():
        with started(*words) as (process, url):
            urlopen(Request(url, spans, PROTOBUF)).close()  # noqa: S310 - a server of this test
        assert process.returncode == 0
    tables = [[path.read_bytes() for path in sorted(Path().glob(f"{name}-*.csv"))] for name in commands]
    assert tables[0] == tables[1]
    assert len(tables[0]) == 1
