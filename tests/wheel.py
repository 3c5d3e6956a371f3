"""``make wheel``: a wheel with machine code for every Python that is there; installed from it, vtwin compiles nothing.

Python by Python the code is compiled with the locked numba, in a copy of the tree, from which the wheel is built. It is
one wheel for all: where its code does not fit, vtwin compiles as in a clone. ``python -m build`` makes it without code.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
BUILD = ROOT / "build"
PYTHONS = ("3.11", "3.12", "3.13")
LOCK = ROOT / "requirements-run.lock"
PARTS = ("pyproject.toml", "README.md", "LICENSE", "NOTICE", "vtwin.py", "lazy_dataclasses.py")
ROOMS = ("calibrate", "observe", "replay", "sim", "traces")


def interpreter(version: str) -> str | None:
    """Return a Python of this version, None where there is none that runs."""
    found = shutil.which(f"python{version}")
    if found is None:
        return None
    done = subprocess.run([found, "-c", "import venv"], capture_output=True, check=False)
    return found if done.returncode == 0 else None


def run(command: list[str], *, folder: Path, **more: str) -> subprocess.CompletedProcess[str]:
    """Run a command in a folder; AssertionError with what it printed where it fails."""
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PYTHON", "VIRTUAL", "NUMBA_"))
    }
    environment |= more
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(command)}: exit {done.returncode}\n{done.stdout}{done.stderr}"
    return done


def locked_environment(python: str, version: str) -> str:
    """Return the Python of an environment with what vtwin needs, as locked; it is kept until the lock changes."""
    if version == f"{sys.version_info.major}.{sys.version_info.minor}":
        return sys.executable  # of .venv
    folder = BUILD / f"python{version}"
    stamp, locked = folder / "locked", hashlib.sha256(LOCK.read_bytes()).hexdigest()
    if not stamp.is_file() or stamp.read_text() != locked:
        run([python, "-m", "venv", "--clear", str(folder)], folder=ROOT)
        pip = [
            str(folder / "bin" / "python"),
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
        ]
        run([*pip, "--require-hashes", "-r", str(LOCK)], folder=ROOT)
        stamp.write_text(locked)
    return str(folder / "bin" / "python")


def build(output: Path) -> Path:
    """Return the wheel, built in ``output``; print what code it has."""
    tree = BUILD / "wheel"
    shutil.rmtree(tree, ignore_errors=True)
    tree.mkdir(parents=True)
    for part in PARTS:
        shutil.copy(ROOT / part, tree)
    for room in ROOMS:
        shutil.copytree(
            ROOT / room, tree / room, ignore=shutil.ignore_patterns("__pycache__", "machine_code")
        )
    for version in PYTHONS:
        python = interpreter(version)
        if python is None:
            print(f"Python {version}: not here, so no code for it", flush=True)
            continue
        print(f"Python {version}: compiling …", flush=True)
        run([locked_environment(python, version), "-m", "sim.cluster.ship"], folder=tree)
    new = BUILD / "new"
    shutil.rmtree(new, ignore_errors=True)
    run([sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(new)], folder=tree)
    (wheel,) = new.glob("*.whl")
    output.mkdir(parents=True, exist_ok=True)
    return Path(shutil.copy(wheel, output))


def main() -> None:
    """Build it into a folder."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=ROOT / "dist")
    print(build(parser.parse_args().output))


if __name__ == "__main__":
    main()
