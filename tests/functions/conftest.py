"""A folder with what small questions need."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import replay
import traces
from tests.functions.small_questions import GRID, LOAD, POOLS
from tests.replay.profiles.test_fitted_profiles import PROFILE
from tests.replay.profiles.test_fitted_profiles import TWIN as FITTED
from tests.twins import FOUR_THOUSAND_BLOCKS
from traces.workload import trace_from_options


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with what the questions need: twins, lengths, pools, a grid, two runs of one load."""
    monkeypatch.chdir(tmp_path)
    for name, text in (
        ("twin.yaml", FOUR_THOUSAND_BLOCKS),
        ("good.yaml", FITTED + PROFILE),
        ("cdf.json", "[[256, 0.1], [1024, 0.6], [4096, 1.0]]"),
        ("pools.yaml", POOLS),
        ("grid.yaml", GRID),
    ):
        Path(name).write_text(text)
    twin, load = replay.load_config("twin.yaml"), trace_from_options(LOAD)
    traces.write_trace(load, "load")
    for name, beta in (("a", 6000), ("b", 6600)):
        server = replace(twin, latency=replace(twin.latency, beta0=beta))  # type: ignore[type-var]
        ran, _ = replay.simulate_trace(load, server)
        traces.write_trace(ran.with_header(mode="real"), name)
    return tmp_path
