"""``make release-check``: what a release has, built into dist/ and tried from an empty folder.

The wheel under every Python that is there (``tests.install``), the source distribution under one, the names that the
packages bring beside everything they need, a bill of materials and the hashes of all files.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.install import FIRST, check, children_cpu_s
from tests.sbom import bill_of_materials
from tests.studies.bench.engine import reference_loop_s
from tests.twins import SIXTEEN_SEATS
from tests.wheel import BUILD, LOCK, PARTS, PYTHONS, ROOMS, ROOT, build, interpreter, run

DIST = ROOT / "dist"
MOST_FROM_SOURCE_CPU_S = 20.0
"""Until the first result of an installation that compiles, user and system,"""
AVERAGE_LOOP_S = 0.10
"""on a machine that takes so long for the bench's reference loop; a slower one may take longer by as much."""
STRANGERS = """
import sys
from importlib.metadata import packages_distributions
ours = {name for name, owners in packages_distributions().items() if "vtwin" in owners}
assert {"vtwin", "sim", "traces", "replay", "observe", "calibrate"} <= ours, ours
all_owners = packages_distributions().items()
shared = {name: owners for name, owners in all_owners if name in ours and set(owners) != {"vtwin"}}
sys.exit(f"names that other packages bring, too: {shared}" if shared else 0)
"""
"""Fails where another installed package has a top-level module of ours."""


def build_source(output: Path) -> Path:
    """Return the source distribution, built in ``output`` from a copy without machine code."""
    tree, new = BUILD / "sdist", BUILD / "new-sdist"
    for folder in (tree, new):
        shutil.rmtree(folder, ignore_errors=True)
    tree.mkdir(parents=True)
    for part in PARTS:
        shutil.copy(ROOT / part, tree)
    for room in ROOMS:
        shutil.copytree(
            ROOT / room, tree / room, ignore=shutil.ignore_patterns("__pycache__", "machine_code")
        )
    run([sys.executable, "-m", "build", "--sdist", "--no-isolation", "--outdir", str(new)], folder=tree)
    (source,) = new.glob("*.tar.gz")
    output.mkdir(parents=True, exist_ok=True)
    return Path(shutil.copy(source, output))


def check_names(python: Path, folder: Path) -> None:
    """Find that no package beside ours has a module of our names, and that all needs are met."""
    run([str(python), "-c", STRANGERS], folder=folder)
    run([str(python), "-m", "pip", "check", "--disable-pip-version-check"], folder=folder)


def check_source(source: Path, folder: Path) -> float:
    """Install the source distribution, run it from an empty folder; return the first run's CPU s, compiling too."""
    environment, empty = folder / "venv", folder / "empty"
    run([sys.executable, "-m", "venv", str(environment)], folder=folder)
    pip = [
        str(environment / "bin" / "python"),
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
    ]
    run([*pip, str(source)], folder=folder)
    empty.mkdir()
    (empty / "twin.yaml").write_text(SIXTEEN_SEATS)
    before = children_cpu_s()
    new_user = {"HOME": str(folder), "XDG_CACHE_HOME": str(folder / "cache"), "VTWIN_CACHE_DIR": ""}
    run([str(environment / "bin" / FIRST[0]), *FIRST[1:]], folder=empty, **new_user)
    used = children_cpu_s() - before
    most = MOST_FROM_SOURCE_CPU_S * max(reference_loop_s() / AVERAGE_LOOP_S, 1.0)
    assert used <= most, f"got {used:.1f} CPU s, expected {most:.1f}"
    return used


def write_papers(files: list[Path]) -> None:
    """Write the bill of materials of what an installation needs, and the hashes of every file of the release."""
    bill = DIST / "sbom.json"
    bill.write_text(json.dumps(bill_of_materials(LOCK.read_text(encoding="utf-8")), indent=2) + "\n")
    sums = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}" for path in (*files, bill)]
    (DIST / "SHA256SUMS").write_text("\n".join(sums) + "\n")
    print(f"{bill.name}, SHA256SUMS: {len(sums)} files", flush=True)


def main() -> int:
    """Build and try everything; exit code 1 where something fails, or fewer than two Pythons are here."""
    shutil.rmtree(DIST, ignore_errors=True)
    wheel, source = build(DIST), build_source(DIST)
    write_papers([wheel, source])
    checked = 0
    with TemporaryDirectory() as place:
        for version in PYTHONS:
            python, own = interpreter(version), Path(place) / version
            if python is None:
                print(f"Python {version}: not here")
                continue
            own.mkdir()
            started = time.monotonic()
            first_cpu_s = check(python, wheel, own)
            check_names(own / "venv" / "bin" / "python", own)
            used = f"installed and used in {time.monotonic() - started:.0f} s"
            print(f"Python {version}, {wheel.name}: {used}; first run {first_cpu_s:.1f} CPU s", flush=True)
            checked += 1
        own = Path(place) / "source"
        own.mkdir()
        print(f"{source.name}: first run {check_source(source, own):.1f} CPU s, compiling included")
    return 0 if checked > 1 else 1


if __name__ == "__main__":
    sys.exit(main())
