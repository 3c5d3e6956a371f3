"""``make wheel-check``: the wheel in clean environments, one per Python that is there, used from an empty folder."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).parent.parent
PYTHONS = ("3.11", "3.12", "3.13")
TWIN = """\
engine: {max_num_seqs: 16, max_num_batched_tokens: 512, num_gpu_blocks: 400, max_model_len: 2048}
latency:
  model: blackbox
  coefficients: {alpha0: 500, alpha1: 2, alpha2: 0, beta0: 6000, beta1: 10, beta2: 20}
"""
USES = (
    ("vtwin", "--version"),
    ("vtwin", "config", "show", "twin.yaml"),
    ("vtwin", "trace", "synth", "--rate", "2", "--num-requests", "20", "--output", "drawn"),
    ("vtwin", "replay", "drawn", "--config", "twin.yaml", "--output", "simulated", "--report", "run.html"),
    ("vtwin", "run", "--config", "twin.yaml", "--rate", "2", "--num-requests", "20", "--instances", "2"),
    ("vtwin", "model", "info", "--model-config", "Qwen/Qwen3-14B", "--gpu", "H100"),
    ("vtwin", "compare", "simulated", "simulated"),
)


def interpreter(version: str) -> str | None:
    """Return a Python of this version, None where there is none that runs."""
    found = shutil.which(f"python{version}")
    if found is None:
        return None
    done = subprocess.run([found, "-c", "import venv"], capture_output=True, check=False)
    return found if done.returncode == 0 else None


def run(command: list[str], *, folder: Path, path: Path | None = None) -> None:
    """Run a command in a folder; AssertionError with what it printed where it fails."""
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL"))
    }
    if path is not None:
        environment["PATH"] = f"{path}{os.pathsep}{environment['PATH']}"
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(command)}: exit {done.returncode}\n{done.stdout}{done.stderr}"


def check(python: str, wheel: Path, folder: Path) -> None:
    """Install the wheel into a new environment and use it from an empty folder."""
    environment, empty = folder / "venv", folder / "empty"
    run([python, "-m", "venv", str(environment)], folder=folder)
    programs = environment / "bin"
    pip = [str(programs / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    run([*pip, str(wheel)], folder=folder)
    empty.mkdir()
    (empty / "twin.yaml").write_text(TWIN)
    for use in USES:
        run([str(programs / use[0]), *use[1:]], folder=empty, path=programs)


def main() -> int:
    """Build the wheel, check it under every Python, print a line each; exit code 1 where one fails or none is there."""
    checked = 0
    with TemporaryDirectory() as place:
        folder = Path(place)
        run(
            [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder)], folder=ROOT
        )
        (wheel,) = folder.glob("*.whl")
        for version in PYTHONS:
            python = interpreter(version)
            if python is None:
                print(f"Python {version}: not here")
                continue
            own, started = folder / version, time.monotonic()
            own.mkdir()
            try:
                check(python, wheel, own)
            except AssertionError as error:
                print(f"Python {version}: FAILED\n{error}")
                return 1
            print(f"Python {version}: installed and used in {time.monotonic() - started:.0f} s")
            checked += 1
    return 0 if checked else 1


if __name__ == "__main__":
    sys.exit(main())
