"""``observe --strict-slo`` against an emulated server: the exit code says whether the SLO was met."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import vtwin
from replay.serve.server import serving
from replay.twin.twin_config import TwinConfig
from sim import Blackbox, EngineConfig


@contextmanager
def emulated() -> Iterator[str]:
    """Serve a twin whose steps take 10 ms on a thread of its own; yield its URL."""
    twin = TwinConfig(
        engine=EngineConfig(num_gpu_blocks=500, max_model_len=1024, async_scheduling=False),
        latency=Blackbox(beta0=10_000, beta1=0, beta2=0),
    )
    started, stop, found = threading.Event(), asyncio.Event(), []

    async def serve() -> None:
        async with serving(twin) as listening:
            found.append((listening.url, asyncio.get_running_loop()))
            started.set()
            await stop.wait()

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    started.wait()
    url, loop = found[0]
    try:
        yield url
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()


def test_a_missed_slo_is_exit_code_1_and_a_met_one_0(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    load = ["--rate", "50", "--num-requests", "10", "--prompt-tokens", "20", "--output-tokens", "4"]
    with emulated() as url:
        asked = ["observe", "--url", url, "--strict-slo", *load]
        assert vtwin.main([*asked, "--slo", "e2e=20s", "--output", str(tmp_path / "met")]) == 0
        capsys.readouterr()
        assert vtwin.main([*asked, "--slo", "e2e=1us", "--output", str(tmp_path / "missed")]) == 1
    assert "the SLO is missed: 0 % of the requests meet it" in capsys.readouterr().err
