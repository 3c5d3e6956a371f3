"""A vLLM at work: the recording program in a process of its own, asked for one case after another."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.studies.live.server import installation

ROOT = Path(__file__).resolve().parents[2]


PROGRAM = ("record.py", "vllm_engine.py", "vllm_versions.py", "offload_engine.py", "conventions.py")


class RecorderFailed(RuntimeError):  # noqa: N818 - the name says what happened
    """The recording program ended; the message names its log."""


def vllm_command() -> tuple[str, str]:
    """Return (Python that has vLLM, directory of a small model).

    ``VLLM_PYTHON`` and ``VLLM_MODEL`` name them; otherwise they are `make live`'s, installed where missing.
    """
    python, model = os.environ.get("VLLM_PYTHON"), os.environ.get("VLLM_MODEL")
    if python and model:
        return python, model
    place = installation()
    return python or place.python, str(place.model)


def digest_of_recorder() -> str:
    """Return a digest of the recording program: another one may record other things."""
    sources = (ROOT / "tests" / "conformance" / name for name in PROGRAM)
    return hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()[:16]


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorder:
    """A running recording program. ``version`` is its vLLM's."""

    process: subprocess.Popen[str]
    log: Path
    version: str

    @property
    def name(self) -> str:
        """What decides what is recorded: vLLM's version and the recording program."""
        return f"vLLM {self.version}, recorder {digest_of_recorder()}"

    def record(self, case: Path, *, with_blocks: bool = False) -> dict[str, Any]:
        """Record a case; return its summary, or ``{"error": …}`` where vLLM would not run it."""
        return ask(self.process, self.log, wish={"case": str(case), "blocks": with_blocks})


def ask(process: subprocess.Popen[str], log: Path, *, wish: dict[str, Any] | None = None) -> dict[str, Any]:
    """Send a wish, if any, and return the next answer; RecorderFailed when the program has ended."""
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        if wish is not None:
            process.stdin.write(json.dumps(wish) + "\n")
            process.stdin.flush()
        line = process.stdout.readline()
    except BrokenPipeError:
        line = ""
    if not line:
        raise RecorderFailed(f"recorder: ended with exit code {process.wait()}, expected an answer ({log})")
    answer: dict[str, Any] = json.loads(line)
    return answer


@contextmanager
def recording(log: Path) -> Iterator[Recorder]:
    """Start the recording program, yield it once vLLM is imported, and end it on leaving."""
    python, model = vllm_command()
    with log.open("w") as sink:
        process = subprocess.Popen(
            [python, "-m", "tests.conformance.record", "-"],
            cwd=ROOT,
            env=os.environ | {"VLLM_MODEL": model},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=sink,
            text=True,
        )
    try:
        yield Recorder(process=process, log=log, version=ask(process, log)["vllm_version"])
    finally:
        if process.stdin is not None:
            process.stdin.close()  # the program ends when nobody asks any more
        if process.stdout is not None:
            process.stdout.close()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
