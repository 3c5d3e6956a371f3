"""``make wheel-check``: the wheel in clean environments, one per Python that is there, used from an empty folder.

Nothing is to be compiled: a new user's first run takes no more CPU time than ``MOST_CPU_S``, and leaves no cache.
"""

from __future__ import annotations

import os
import resource
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.twins import SIXTEEN_SEATS
from tests.wheel import PYTHONS, build, interpreter, run

MOST_CPU_S = 5.0
"""Until the first replay's result, user and system."""
FLEET = """\
cluster:
  instances: 2
  routing: {policy: vllm-dp}
  autoscaler:
    policy: schedule
    drain: requeue
    schedule: [{at_us: 0, instances: 2}, {at_us: 5000000, instances: 1}]
  failures: {mtbf_us: 8000000, mttr_us: 1000000}
"""
"""Instances that are drained and that fail: functions that no other run calls."""
FIRST = ("vtwin", "run", "--config", "twin.yaml", "--rate", "2", "--num-requests", "1000")
USES = (
    ("vtwin", "--version"),
    ("vtwin", "config", "show", "twin.yaml"),
    ("vtwin", "trace", "synth", "--rate", "2", "--num-requests", "20", "--output", "drawn"),
    ("vtwin", "replay", "drawn", "--config", "twin.yaml", "--output", "simulated", "--report", "run.html"),
    ("vtwin", "run", "--config", "twin.yaml", "--rate", "2", "--num-requests", "20", "--instances", "2"),
    ("vtwin", "run", "--config", "fleet.yaml", "--rate", "20", "--num-requests", "300"),
    ("vtwin", "model", "info", "--model-config", "Qwen/Qwen3-14B", "--gpu", "H100"),
    ("vtwin", "compare", "simulated", "simulated"),
)


def children_cpu_s() -> float:
    """Return the CPU time of all processes that this one has waited for, s."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def check(python: str, wheel: Path, folder: Path) -> float:
    """Install the wheel into a new environment, use it from an empty folder; return the first run's CPU s."""
    environment, empty, home = folder / "venv", folder / "empty", folder / "home"
    run([python, "-m", "venv", str(environment)], folder=folder)
    programs = environment / "bin"
    pip = [str(programs / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    run([*pip, str(wheel)], folder=folder)
    empty.mkdir()
    home.mkdir()
    (empty / "twin.yaml").write_text(SIXTEEN_SEATS)
    (empty / "fleet.yaml").write_text(SIXTEEN_SEATS + FLEET)
    new_user = {
        "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
        "HOME": str(home),
        "XDG_CACHE_HOME": str(home / "cache"),
        "VTWIN_CACHE_DIR": "",
    }
    before = children_cpu_s()
    for number, use in enumerate((FIRST, *USES)):
        told = run([str(programs / use[0]), *use[1:]], folder=empty, **new_user).stderr
        if number == 0:
            first_cpu_s = children_cpu_s() - before
        assert "compiling" not in told, f"{' '.join(use)}: expected nothing to compile\n{told}"
    compiled = sorted(path.name for path in home.rglob("*.nbc"))
    assert compiled == [], f"got compiled: {', '.join(compiled)}; expected all of it in the wheel"
    assert first_cpu_s <= MOST_CPU_S, (
        f"got {first_cpu_s:.1f} CPU s until the first result, expected {MOST_CPU_S}"
    )
    return first_cpu_s


def main() -> int:
    """Build the wheel, check it under every Python, print a line each; exit code 1 where one fails or none is there."""
    checked = 0
    with TemporaryDirectory() as place:
        folder = Path(place)
        wheel = build(folder)
        print(f"{wheel.name}: {wheel.stat().st_size / 1e6:.1f} MB", flush=True)
        for version in PYTHONS:
            python = interpreter(version)
            if python is None:
                print(f"Python {version}: not here")
                continue
            own, started = folder / version, time.monotonic()
            own.mkdir()
            try:
                first_cpu_s = check(python, wheel, own)
            except AssertionError as error:
                print(f"Python {version}: FAILED\n{error}")
                return 1
            used_s = time.monotonic() - started
            print(
                f"Python {version}: installed and used in {used_s:.0f} s; first run {first_cpu_s:.1f} CPU s",
                flush=True,
            )
            checked += 1
    return 0 if checked else 1


if __name__ == "__main__":
    sys.exit(main())
