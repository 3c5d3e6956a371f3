"""A stranger's trace through every command that reads one: no text of it ends a line, and no key is shown.

Its names and its files' names have line ends, escape sequences and markup; the environment has the keys.
"""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import typer

import vtwin
from tests.docs.commands import commands_of
from traces import ServerInfo, write_trace
from traces.workload import trace_from_options
from traces.workload.options import WorkloadOptions

NASTY = "a\n::error::b\r\x1b[31m\u2028<img src=x>[/red] c"
MARKER = "hush-7f3a9c-marker"
SECRETS = {
    "OPENAI_API_KEY": MARKER,
    "VLLM_API_KEY": MARKER,
    "VTWIN_API_KEY": MARKER,
    "HTTPS_PROXY": f"http://me:{MARKER}@proxy:3128",
}
TWIN = """\
engine: {max_num_seqs: 8, max_num_batched_tokens: 512, num_gpu_blocks: 400, max_model_len: 2048}
latency: {model: blackbox, coefficients: {alpha0: 500, alpha1: 2, alpha2: 0, beta0: 6000, beta1: 10, beta2: 20}}
"""
CALLS = {
    # command: a call of it and its exit code; A and B are traces
    "trace check": ("trace check A", 0),
    "trace info": ("trace info A", 0),
    "trace convert": ("trace convert A --from tracev2 --to mooncake --output m.jsonl", 0),
    "trace export": ("trace export A --output a.csv", 0),
    "replay": ("replay A --config twin.yaml --report r.html --output simulated", 0),
    "run": ("run --config twin.yaml --lengths-from A --rate 5 --num-requests 3", 0),
    "calibrate": ("calibrate A --simulated B --report report --thresholds gate.yaml", 1),
    "compare": ("compare A B", 0),
    "report": ("report A B --output page.html", 0),
    "capacity": ("capacity --config twin.yaml --like A --seeds 1 --num-requests 100 --slo ttft_p99=9s --no-binding", 0),
    "tune": ("tune --config twin.yaml --like A --seeds 1 --num-requests 1000 --slo ttft_p99=9s --max-num-seqs 4,8 "
             "--max-num-batched-tokens 512 --chunked-prefill true", 0),
    "config from-serve": ("config from-serve --from-trace A", 0),
    "trace synth": ("trace synth --lengths-from A --rate 5 --num-requests 3 --output drawn", 0),
    "sweep": ("sweep grid.yaml --jobs 1 --output table.parquet", 0),
    "fleet size": ("fleet size --workload A --rate 1 --slo ttft_p99=2s --profile A100 --no-verify", 0),
}  # fmt: skip
OTHERS = {
    *("observe", "validate", "selfcheck", "demo", "serve"),  # talk to servers: test_secrets.py, test_serve.py
    *("config show", "predictor train", "model info", "model compare"),  # read no trace
    *("fleet profile", "fleet split", "fleet routers", "fleet disagg", "fleet whatif", "fleet flex"),
    *("fleet reserve", "fleet pools"),  # read of a trace what `fleet size` does: its lengths
}


def test_every_command_is_called_or_said_to_read_no_trace() -> None:
    root = typer.main.get_command(vtwin.build_app(vtwin.COMMANDS))
    names = {path.removeprefix("vtwin ") for path, _ in commands_of(root, "vtwin")}
    assert names == set(CALLS) | OTHERS


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two measured traces of nasty names, and what the calls read besides."""
    folder = tmp_path_factory.mktemp("nasty")
    drawn = trace_from_options(WorkloadOptions(rate=5, num_requests=40, prompt_tokens=20, output_tokens=5))
    number = np.arange(len(drawn))
    send = drawn.column("arrival_time_us").to_numpy(dtype=np.int64)
    for name, slower in (("A", 1), ("B", 2)):
        first = send + slower * (9_000 + number % 7 * 100)
        trace = drawn.with_columns(
            request_id=[f"{NASTY}{i}" for i in number],
            model=[NASTY] * len(drawn),
            tenant=[NASTY] * len(drawn),
            status=["ok"] * (len(drawn) - 1) + ["error"],
            error=[None] * (len(drawn) - 1) + [NASTY],
            send_time_us=send,
            first_token_time_us=first,
            last_token_time_us=first + slower * 40_000,
            finish_reason=["length"] * len(drawn),
        )
        info = ServerInfo(model=NASTY, version=NASTY, gpu=NASTY, system_fingerprint=NASTY)
        header = replace(trace.header, mode="real", tool=NASTY, server=info)
        write_trace(replace(trace, header=header), folder / f"{name}{NASTY.replace('/', '')}")
    (folder / "twin.yaml").write_text(TWIN)
    (folder / "gate.yaml").write_text("metrics: {e2e_us: {mape: {fail: 0.5}}}\n")
    (folder / "grid.yaml").write_text(
        "config: twin.yaml\nworkloads: {one: {rate: 4, prompt_tokens: 5, output_tokens: 2, num_requests: 5}}\n"
    )
    return folder


@pytest.mark.parametrize("command", CALLS)
def test_no_text_of_a_trace_is_more_than_text(
    command: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)
    call, code = CALLS[command]
    named = {name: str(folder / f"{name}{NASTY.replace('/', '')}") for name in "AB"}
    arguments = [named.get(word, word) for word in shlex.split(call)]
    monkeypatch.setattr("sys.argv", ["vtwin", *arguments])
    assert vtwin.main(arguments) == code, capsys.readouterr().err
    said = capsys.readouterr()
    text = said.out + said.err
    assert not set("\r\x1b\u2028") & set(text)
    assert [line for line in text.splitlines() if line.startswith("::error::b")] == []
    for path in folder.rglob("*"):
        if path.is_file() and path.suffix != ".parquet":
            assert MARKER not in path.read_text(errors="replace")
    assert MARKER not in text
