"""Exports replayed by the tools they are for, a part of ``make live``: guidellm, aiperf and vllm bench.

Each tool is installed once, into an environment of its own in vtwin-live/; vllm bench runs where ``VLLM_PYTHON`` names
the Python of a vLLM. A trace is exported, the command that the export prints is run against ``vtwin serve``, and the
tool's results, read as any file of results is, are compared with the trace and with what the server measured.
The tools look for the tokenizer under the served model's name, in a cache of Hugging Face's that is made here.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.request import urlopen

import numpy as np

from tests.studies.live.make_words import write_tokenizer
from tests.studies.live.server import TORCH, call, say
from traces import Header, Trace, make_trace, write_trace
from traces.importers.recorded import read_recorded
from traces.metrics import has_failed, own_prompt_tokens, prompt_tokens, request_latencies, sent_or_due

FOLDER = Path("vtwin-live").resolve()
NUM, SPAN_MS, BLOCK = 16, 2000, 16
# Prefixes are not cached, so that a tool's prompts, alike or not, take the same time.
TWIN = """
engine:
  max_num_seqs: 16
  max_num_batched_tokens: 1024
  num_gpu_blocks: 2000
  max_model_len: 4096
  enable_prefix_caching: false
latency: {model: blackbox, coefficients: {alpha0: 500, alpha1: 0, alpha2: 0, beta0: 15000, beta1: 20, beta2: 50}}
"""
LATE_MS, OPENING = 50.0, 2
"""A request may be sent so much later or earlier than asked; the first ones wait for connections and may be later."""
TTFT_MS, TPOT_FRAC = 30.0, 0.15
"""The tool's mean may differ by this from the server's own."""
PROMPT_TOKENS = 16
"""A prompt may be so much longer by the server's count (its chat template), or shorter (blocks that meet in a word)."""
MODEL = "vtwin/words"
PATIENCE_S, TRIES = 300, 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """A tool: what pip installs (nothing: not installed here), what it reads, where its results are."""

    name: str
    packages: tuple[str, ...]
    target: str
    results: str


AIPERF = ("aiperf==0.13.0",)
# guidellm asks for torch; the build for the CPU is enough, and TORCH_SRC says where it is, as for vLLM.
GUIDELLM = (f"torch=={TORCH}", "guidellm==0.8.1")
TOOLS = (
    Tool(name="guidellm", packages=GUIDELLM, target="mooncake", results="benchmarks.json"),
    Tool(name="aiperf", packages=AIPERF, target="mooncake", results="profile_export.jsonl"),
    Tool(name="aiperf", packages=AIPERF, target="burstgpt", results="profile_export.jsonl"),
    Tool(name="vllm bench", packages=(), target="vllm-bench", results="*.json"),
)


def small_trace() -> Trace:
    """Return so many requests at uneven times within two seconds; half of them begin alike."""
    rng = np.random.default_rng(7)
    due = np.sort(rng.integers(0, SPAN_MS, NUM)) * 1000
    due -= due[0]
    grouped = [row % 2 == 0 for row in range(NUM)]
    return make_trace(
        Header(mode="generated", tool="vtwin", hash_block_size=BLOCK),
        {
            "request_id": [f"r{row}" for row in range(NUM)],
            "arrival_time_us": due,
            "input_tokens": rng.integers(70, 400, NUM),
            "output_tokens": rng.integers(4, 24, NUM),
            "prefix_group": ["a" if flag else None for flag in grouped],
            "prefix_length": [2 * BLOCK if flag else None for flag in grouped],
        },
    )


def printed_command(stem: Path, tool: Tool, out: Path) -> str:
    """Export the trace and return the command that the export prints for the tool. Raises AssertionError."""
    vtwin = str(Path(sys.executable).with_name("vtwin"))
    convert = [vtwin, "trace", "convert", str(stem), "--from", "tracev2", "--to", tool.target]
    done = subprocess.run(
        [*convert, "--output", str(out), "--overwrite"], capture_output=True, text=True, check=True
    )
    said = " ".join((done.stdout + done.stderr).split())
    found = re.search(rf"{tool.name}: `([^`]+)`", said)
    if found is None:
        raise AssertionError(
            f"trace convert --to {tool.target}: got {said!r}, expected a command of {tool.name}"
        )
    return found[1]


def programs(tool: Tool) -> Path | None:
    """Return the folder of the tool's programs, installed where they are missing; None, with a line, without one."""
    if not tool.packages:
        python = os.environ.get("VLLM_PYTHON")
        if python is None:
            say(f"{tool.name}: skipped, VLLM_PYTHON names no Python with vLLM")
        return None if python is None else Path(python).parent
    place = FOLDER / tool.name
    python = str(place / "bin" / "python")
    if not Path(python).exists():
        venv.create(place, with_pip=True)
    pip = (python, "-m", "pip", "--quiet", "--disable-pip-version-check", "install")
    try:
        call(*pip, *os.environ.get("TORCH_SRC", "").split(), *tool.packages)
    except subprocess.CalledProcessError:
        say(f"{tool.name}: skipped, pip cannot install {' '.join(tool.packages)} (its reason is above)")
        return None
    return place / "bin"


@contextmanager
def emulated() -> Iterator[str]:
    """Serve a twin; yield its URL."""
    with tempfile.TemporaryDirectory() as folder:
        twin = Path(folder) / "twin.yaml"
        twin.write_text(TWIN)
        vtwin = str(Path(sys.executable).with_name("vtwin"))
        command = [vtwin, "serve", "--config", str(twin), "--port", "0", "--model", MODEL]
        server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        try:
            assert server.stdout is not None
            yield next(word for line in server.stdout for word in line.split() if word.startswith("http"))
        finally:
            server.terminate()
            server.wait()


def run_tool(tool: Tool, command: str, *, where: Path, place: Path) -> Path:
    """Run the command in the empty folder ``place``; return its results. Raises AssertionError."""
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    program, *rest = shlex.split(command)
    offline = {"HF_HOME": str(FOLDER / "tokenizer"), "HF_HUB_OFFLINE": "1", "PYTHONUNBUFFERED": "1"}
    search = f"{where}{os.pathsep}{os.environ.get('PATH', '')}"
    log = place / "log.txt"
    say(f"$ {command} > {log}")
    with log.open("wb") as sink:
        done = subprocess.run(
            [str(where / program), *rest],
            cwd=place,
            stdout=sink,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            env=os.environ | offline | {"PATH": search},
            timeout=PATIENCE_S,
            check=False,
        )
    found = sorted(place.rglob(tool.results))
    if done.returncode != 0 or len(found) != 1:
        last = " | ".join(log.read_text(errors="replace").split("\n")[-12:])
        raise AssertionError(
            f"{tool.name}: got exit code {done.returncode} and {len(found)} results, expected 0 and 1: {last}"
        )
    return found[0]


def server_sums(url: str) -> dict[str, tuple[float, float]]:
    """Return (sum in s, count) of the server's TTFT and TPOT so far, by ``ttft_us`` and ``tpot_us``."""
    with urlopen(f"{url}/metrics", timeout=10) as reply:  # noqa: S310 - this machine's own server
        text = reply.read().decode()
    names = {"ttft_us": "time_to_first_token_seconds", "tpot_us": "request_time_per_output_token_seconds"}

    def number(name: str) -> float:
        return sum(
            float(value) for value in re.findall(rf"^vllm:{name}(?:{{.*}})? (\S+)$", text, re.MULTILINE)
        )

    return {key: (number(f"{name}_sum"), number(f"{name}_count")) for key, name in names.items()}


class LostError(AssertionError):
    """A report has fewer requests than the server answered: the tool lost some."""


def known_tokenizer() -> None:
    """Write the tokenizer where Hugging Face's readers look for the one of ``MODEL`` before they ask a hub."""
    commit = f"{1:040d}"
    place = FOLDER / "tokenizer" / "hub" / f"models--{MODEL.replace('/', '--')}"
    write_tokenizer(place / "snapshots" / commit)
    (place / "refs").mkdir(exist_ok=True)
    (place / "refs" / "main").write_text(commit)


def by_time(trace: Trace) -> Trace:
    """Return the requests in the order in which they were due."""
    order = np.argsort(trace.cells("arrival_time_us").values, kind="stable")
    return make_trace(trace.header, trace.requests.iloc[order].reset_index(drop=True), events=None)


def lateness_ms(tool: Tool, asked: Trace, found: Trace) -> float:
    """Return the most that a request was sent off its time, the first ones left out. Raises AssertionError.

    Both in the order of sending. The tool's clock starts at its first due time, else at its first send.
    """
    due, planned = (trace.cells("arrival_time_us").values / 1000 for trace in (asked, found))
    sent = sent_or_due(found).values / 1000
    off = np.abs(sent - due - planned[0])[OPENING:]
    if off.max() > LATE_MS:
        raise AssertionError(
            f"{tool.name}: got requests sent at {sent.round().tolist()} ms, expected {due.round().tolist()} "
            f"to within {LATE_MS:g} ms"
        )
    return float(off.max())


def check_lengths(tool: Tool, asked: Trace, found: Trace) -> int:
    """Return the most that the server counted more or fewer prompt tokens than asked. Raises AssertionError.

    Answers must be as long as asked; so must prompts, by the tool's own count where the file has it, too.
    """
    want = own_prompt_tokens(asked).astype(int)
    own, served = own_prompt_tokens(found).astype(int), prompt_tokens(found).astype(int)
    both = bool(found.cells("server_input_tokens").is_known.all())
    answers = [trace.column("output_tokens").tolist() for trace in (asked, found)]
    if answers[0] != answers[1]:
        raise AssertionError(f"{tool.name}: got answers of {answers[1]} tokens, expected {answers[0]}")
    off = int(np.abs(served - want).max())
    if off > PROMPT_TOKENS or (both and own.tolist() != want.tolist()):
        raise AssertionError(
            f"{tool.name}: got prompts of {own.tolist()} tokens, by the server's count {served.tolist()}, "
            f"expected {want.tolist()}"
        )
    return off


def compared(tool: Tool, asked: Trace, found: Trace, *, server: dict[str, float]) -> str:
    """Return what came out, in a line. ``server``: the means that it measured, µs. Raises AssertionError."""
    if (len(found), failed := int(has_failed(found).sum())) != (len(asked), 0):
        raise AssertionError(
            f"{tool.name}: got {len(found)} requests, {failed} failed, expected {len(asked)}, none failed"
        )
    found = by_time(found)
    late, off = lateness_ms(tool, asked, found), check_lengths(tool, asked, found)
    means = {name: float(np.nanmean(request_latencies(found)[name])) for name in server}
    apart = {name: means[name] - server[name] for name in server}
    if abs(apart["ttft_us"]) > TTFT_MS * 1000 or abs(apart["tpot_us"]) > TPOT_FRAC * server["tpot_us"]:
        raise AssertionError(f"{tool.name}: got mean latencies of {means} µs, expected the server's {server}")
    said = ", ".join(
        f"mean {name[:4].upper()} {means[name] / 1000:.1f} ms (server {server[name] / 1000:.1f})"
        for name in server
    )
    version = found.header.tool_version or (tool.packages[-1] if tool.packages else "of VLLM_PYTHON")
    return (
        f"{tool.name} {version.rpartition('=')[2]}, {tool.target}: {len(found)} requests, sent within {late:.1f} ms of "
        f"their times, answers as asked, prompts within {off} tokens, {said}"
    )


def round_trip(tool: Tool, asked: Trace, *, url: str, where: Path) -> str:
    """Export, run the printed command, read the results, compare; return what came out. Raises AssertionError."""
    place = FOLDER / "round-trips" / f"{tool.name} {tool.target}".replace(" ", "-")
    stem, out = (
        FOLDER / "asked",
        FOLDER / f"asked.{tool.target}.{'csv' if tool.target == 'burstgpt' else 'jsonl'}",
    )
    write_trace(asked, stem)
    command = re.sub(r"\bURL\b", url, printed_command(stem, tool, out))
    command = re.sub(r"\bMODEL\b", MODEL, command)
    before = server_sums(url)
    results = run_tool(tool, command, where=where, place=place)
    found, after = read_recorded(results), server_sums(url)
    answered = round(after["ttft_us"][1] - before["ttft_us"][1])
    if len(found) < len(asked) <= answered:
        raise LostError(f"{tool.name}: the server answered {answered} requests, the report has {len(found)}")
    server = {
        name: 1e6 * (after[name][0] - before[name][0]) / max(after[name][1] - before[name][1], 1.0)
        for name in after
    }
    return compared(tool, asked, found, server=server)


def tried(tool: Tool, asked: Trace, *, where: Path) -> str:
    """Return what a round trip came to, of up to three: guidellm 0.8.1 now and then loses a request."""
    for left in reversed(range(TRIES)):
        with emulated() as url:
            try:
                return round_trip(tool, asked, url=url, where=where)
            except LostError as error:
                if not left:
                    raise
                say(f"{error}; once more")
    raise AssertionError("no try")


def main() -> int:
    """Try each tool that is there, and say what came out; return 1 where one does not fit."""
    FOLDER.mkdir(exist_ok=True)
    known_tokenizer()
    asked, failed = small_trace(), 0
    for tool in TOOLS:
        where = programs(tool)
        if where is None:
            continue
        try:
            say(tried(tool, asked, where=where))
        except AssertionError as error:
            failed += 1
            say(f"FAILED: {error}")
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
