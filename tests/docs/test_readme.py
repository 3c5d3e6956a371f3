"""The README's commands, one after another, against a server that says of itself what a vLLM says."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import shlex
import shutil
import signal
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import vtwin
from replay import load_config
from tests import recorded_vllm
from tests.calibrate.few_resamples import draw_few_resamples, fit_with_few_points
from tests.docs.pages import FILE_NAME, ROOT, blocks_of
from traces import Trace, read_trace, request_metrics

SERVER = """\
engine: {max_num_seqs: 128, max_num_batched_tokens: 2048, num_gpu_blocks: 512, block_size: 128, max_model_len: 4096}
latency: {model: blackbox, coefficients: {alpha0: 800, alpha1: 1, alpha2: 0, beta0: 3000, beta1: 4, beta2: 30}}
"""
TENTH = 10
"""The loads of the page take ten minutes: here each has a tenth of the requests, sent ten times as fast."""
LENGTHS = "--prompt-tokens 60 --output-tokens 12"
SHORT_PLAN = f"{LENGTHS} --num-requests 8 --rate 100 --latency-model blackbox"
"""Options that make `vtwin validate` short, whose plan sends tens of loads."""
FEW_DRAWS = "--num-requests 2000 --seeds 2"
"""Options that make a search for a capacity short, which takes as many requests as it needs."""
GRID = """\
config: twin.yaml
set: {engine.max_num_seqs: [16, 64]}
workloads: {chat: {rate: [4, 8], prompt_tokens: 80, output_tokens: 20, num_requests: 50}}
"""


def commands(heading: str) -> list[str]:
    """Return the lines of the shell blocks of a section, continued ones joined, remarks left out."""
    page = (ROOT / "README.md").read_text()
    first = page.count("\n", 0, page.index(f"## {heading}\n"))
    following = page.find("\n## ", page.index(f"## {heading}\n"))
    last = page.count("\n", 0, following)
    blocks = [
        each for each in blocks_of(ROOT / "README.md") if each.language == "sh" and first < each.line < last
    ]
    lines = "".join(re.sub(r"\\\n\s*", " ", each.text) for each in blocks).splitlines()
    return [re.sub(r"\s{2,}#.*", "", line) for line in lines if line.startswith("vtwin ")]


def shortened(command: str) -> str:
    """Return a command of the page with a tenth of its load."""
    if command.startswith("vtwin validate"):
        return f"{command} {SHORT_PLAN}"
    if command.startswith("vtwin calibrate low high --config"):
        return f"{command} --latency-model blackbox"
    if command.startswith("vtwin tune"):
        return f"{command} --max-num-seqs 64,128 --set engine.enable_chunked_prefill=true"
    if command.startswith(("vtwin capacity", "vtwin model compare")):
        return f"{command} {FEW_DRAWS}"
    if not command.startswith("vtwin observe"):
        return command.replace("--num-requests 10000", "--num-requests 1000")
    command = re.sub(r"--rate (\d+)", lambda found: f"--rate {TENTH * int(found[1])}", command)
    command = re.sub(
        r"--num-requests (\d+)", lambda found: f"--num-requests {int(found[1]) // TENTH}", command
    )
    return f"{command} {LENGTHS}"


def end_once_it_answers(printed: io.StringIO) -> None:
    """End this process' page as Ctrl-C does, as soon as its link is printed."""
    while "exploring" not in printed.getvalue():
        time.sleep(0.05)
    os.kill(os.getpid(), signal.SIGINT)


def done(command: str, *, url: str = "") -> tuple[int, str]:
    """Run a command of the page here; return its exit code and what it said on stderr."""
    words = shlex.split(shortened(command).replace("http://localhost:8000", url))
    words, target = (words[:-2], words[-1]) if words[-2] == ">" else (words, None)
    printed, said = io.StringIO(), io.StringIO()
    if words[1] == "explore":  # until somebody ends it
        words.append("--no-open")
        threading.Thread(target=end_once_it_answers, args=(printed,), daemon=True).start()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(said):
        code = vtwin.main(words[1:])
    if target is not None:
        Path(target).write_text(printed.getvalue())
    return code, said.getvalue()


def unhurried(command: str, *, url: str) -> tuple[int, str]:
    """Do it; once more from the beginning where this machine was too busy to read answers as they came."""
    code, said = done(command, url=url)
    if code and "without the time of their first token" in said and "--output" in command:
        shutil.rmtree(shlex.split(command)[-1], ignore_errors=True)
        return done(command, url=url)
    return code, said


@dataclass(frozen=True, slots=True, kw_only=True)
class Flow:
    """The folder in which the page's first commands were run, and what each said, by its line."""

    folder: Path
    codes: dict[str, int]
    said: dict[str, str]


@pytest.fixture(scope="module")
def flow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Flow]:
    folder = tmp_path_factory.mktemp("readme")
    (folder / "server.yaml").write_text(SERVER)
    with (
        contextlib.chdir(folder),
        recorded_vllm.serving(folder / "server.yaml") as url,
        pytest.MonkeyPatch.context() as patch,
    ):
        draw_few_resamples(patch)
        fit_with_few_points(patch)
        told = {line: unhurried(line, url=url) for line in commands("On your own endpoint")}
    codes = {line: code for line, (code, _) in told.items()}
    yield Flow(folder=folder, codes=codes, said={line: said for line, (_, said) in told.items()})


def test_the_first_flow_of_the_page_ends_well(flow: Flow) -> None:
    kinds = [line.split()[1] for line in flow.codes]
    assert kinds == ["observe", "observe", "observe", "calibrate", "config", "calibrate", "validate"]
    failed = {line: flow.said[line] for line, code in flow.codes.items() if code}
    assert failed == {}


def test_what_the_server_says_and_the_command_line_does_not_is_in_the_twin(flow: Flow) -> None:
    engine = load_config(flow.folder / "twin.yaml").engine
    assert (engine.num_gpu_blocks, engine.block_size, engine.max_model_len) == (512, 128, 4096)
    assert engine.max_num_seqs == 128
    said = (flow.folder / "guess.yaml").read_text()
    assert "num_gpu_blocks not given" not in said  # the header of low says it
    assert "max_num_batched_tokens not given: 8192, vLLM's default on H100" in said


def test_each_observation_ends_with_what_the_server_does_not_tell_and_what_helps(flow: Flow) -> None:
    observed = [said for line, said in flow.said.items() if line.startswith("vtwin observe")]
    assert len(observed) == 3
    for said in observed:
        told = " ".join(said[said.index("observe: model tiny") :].split())
        assert "model tiny (from /v1/models) does not ship with vtwin; the GPU is H100." in told
        assert "Add --gpu H100 --model-config CONFIG.json" in told
        assert said.count("--model-config") == 1


def test_the_fit_knows_the_gpu_by_the_header_and_the_model_by_the_option(flow: Flow) -> None:
    (said,) = (said for line, said in flow.said.items() if line.startswith("vtwin calibrate low high --fit"))
    assert "not among the latency models" not in said
    start = load_config(flow.folder / "report" / "start.yaml")
    assert [gpu for gpu, _ in start.gpus_of_pools] == ["H100"]
    assert start.shape is not None
    assert start.shape.name == "meta-llama/Llama-3.1-8B"


def test_the_server_says_of_itself_only_what_a_vllm_says(flow: Flow) -> None:
    server = read_trace(flow.folder / "low").header.server
    assert (server.type, server.version, server.num_gpu_blocks) == ("vllm", "0.32.0", 512)
    assert (server.max_num_seqs, server.max_num_batched_tokens, server.async_scheduling) == (None, None, None)
    trace = read_trace(flow.folder / "low")
    (counted,) = (
        reading
        for key, reading in trace.header.metrics_delta.items()
        if "vllm:generation_tokens_total" in key
    )
    assert counted.after - counted.before == trace.requests["output_tokens"].sum()


def bench_result(trace: Trace) -> dict[str, object]:
    """Return a trace as `vllm bench serve --save-detailed` writes what it has measured."""
    latencies = request_metrics(trace)
    return {
        "model_id": recorded_vllm.MODEL,
        "input_lens": trace.requests["server_input_tokens"].tolist(),
        "output_lens": trace.requests["output_tokens"].tolist(),
        "ttfts": (
            latencies["ttft_us"].fillna(latencies["e2e_us"]) / 1e6
        ).tolist(),  # not measured: as vllm bench
        "itls": [
            [mean / 1e6] * (n - 1)
            for mean, n in zip(
                latencies["itl_mean_us"].fillna(0), trace.requests["output_tokens"], strict=True
            )
        ],
        "start_times": (trace.requests["send_time_us"] / 1e6).tolist(),
        "errors": [""] * len(trace),
    }


@pytest.fixture(scope="module")
def asked(flow: Flow) -> Path:
    """The same folder, with what the page's questions read."""
    folder = flow.folder
    head, *rows = (ROOT / "traces" / "samples" / "azure_code_200.csv").read_text().splitlines()
    fitting = [
        row
        for row in rows
        if sum(map(int, row.split(",")[1:])) <= load_config(folder / "twin.yaml").engine.max_model_len
    ]
    (folder / "azure.csv").write_text("\n".join([head, *fitting]) + "\n")
    (folder / "gate.yaml").write_text("metrics: {e2e_us: {mape: {fail: 0.9}}}\n")
    (folder / "grid.yaml").write_text(GRID)
    for name, source in (("before", "low"), ("after", "high"), ("today", "middle")):
        for path in folder.glob(f"{source}.*"):
            shutil.copy(path, folder / path.name.replace(source, name))
    (folder / "vllm_bench.json").write_text(json.dumps(bench_result(read_trace(folder / "today"))))
    return folder


@pytest.mark.parametrize("command", commands("Ask the twin"), ids=lambda line: " ".join(line.split()[1:3]))
def test_the_twin_is_asked_as_the_page_asks(
    asked: Path, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw_few_resamples(monkeypatch)
    with contextlib.chdir(asked):
        code, said = done(command)
    assert code in {0, 5} if "--thresholds" in command else code == 0, said


@pytest.mark.parametrize(
    "command", commands("Before you measure anything"), ids=lambda line: " ".join(line.split()[1:3])
)
def test_what_the_page_asks_before_a_measurement_has_an_answer(tmp_path: Path, command: str) -> None:
    for block in blocks_of(ROOT / "README.md"):
        if block.language == "yaml" and (named := FILE_NAME.match(block.text)):
            (tmp_path / named[1]).write_text(block.text)
    with contextlib.chdir(tmp_path):
        code, said = done(command)
    assert code == 0, said
