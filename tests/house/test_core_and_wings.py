"""The core is what the first loop loads: observe a server, simulate its requests, fit, report. The wings are not in it.

What loads a wing without need makes every reader of the first loop pass through it.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

import vtwin
from tests.docs.pages import rows_below
from tests.test_cli import modules_after_each
from tests.test_imports import PACKAGES, ROOT, modules_of

TWIN = """\
engine: {max_num_seqs: 16, max_num_batched_tokens: 2048, num_gpu_blocks: 4000, max_model_len: 8192}
latency: {model: blackbox, coefficients: {alpha0: 500, alpha1: 1, alpha2: 0, beta0: 6000, beta1: 20, beta2: 30}}
"""
SIMULATED = ("run", "--config", "twin.yaml", "--num-requests", "60", "--output-tokens", "20")
LOOP = (
    (
        "observe",
        "--url",
        "http://127.0.0.1:9",
        "--model",
        "m",
        "--rate",
        "5",
        "--num-requests",
        "3",
        "--output",
        "o",
    ),
    (*SIMULATED, "--rate", "3", "--seed", "1", "--output", "low"),
    (
        "calibrate",
        "low",
        "high",
        "--config",
        "twin.yaml",
        "--fit",
        "--latency-model",
        "blackbox",
        "--report",
        "page",
    ),
)
NO_SERVER = 4
ARCHITECTURE = ROOT / "docs" / "architecture.md"
MOST_LINES = 85_700
"""Of the core: goes down with what is taken out of the loop, and up only with a reason."""


@pytest.fixture(scope="module")
def core(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """The modules of ours that the first loop loads."""
    folder = tmp_path_factory.mktemp("loop")
    (folder / "twin.yaml").write_text(TWIN)
    with contextlib.chdir(folder):
        assert vtwin.main([*SIMULATED, "--rate", "8", "--seed", "2", "--output", "high"]) == 0
    told = modules_after_each(LOOP[:2], shared="llvmlite.binding", folder=folder)
    told += modules_after_each(LOOP[2:], shared="llvmlite.binding", folder=folder)
    assert [code for code, _ in told] == [NO_SERVER, 0, 0]
    ours = {name for package in PACKAGES for name in modules_of(package)}
    return ours & set().union(*(modules for _, modules in told))


def wings() -> list[str]:
    """Return the rooms that the architecture page names as wings."""
    rows = rows_below(ARCHITECTURE, "Core and wings")
    return [name.strip(" `/").replace("/", ".") for row in rows for name in row[1].split(",")]


def test_the_first_loop_loads_no_wing(core: set[str]) -> None:
    inside = tuple(f"{wing}." for wing in wings())
    assert len(inside) > 10
    assert sorted(name for name in core if f"{name}.".startswith(inside) and name.count(".") > 1) == []


def test_the_core_does_not_grow(core: set[str]) -> None:
    files: dict[str, Path] = {}
    for package in PACKAGES:
        files |= modules_of(package)
    lines = sum(files[name].read_text().count("\n") for name in core)
    assert MOST_LINES - 2000 < lines <= MOST_LINES
