"""Prometheus endpoints beside the server's: what is kept, what becomes energy, and what they can do wrong."""

from __future__ import annotations

import asyncio
import csv
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import numpy as np
import pytest

import vtwin
from observe import report_runs
from observe.beside.power import gpu_series, power_of
from observe.beside.scrape import MOST_BYTES, MOST_SERIES
from observe.options import scrapes_of
from tests.observe.servers import Behaviour, observed, serving, serving_in_thread
from tests.observe.workloads import every, statuses, workload
from traces import ConfigError, read_header

DCGM = """\
# HELP DCGM_FI_DEV_POWER_USAGE Power draw (in W).
# TYPE DCGM_FI_DEV_POWER_USAGE gauge
DCGM_FI_DEV_POWER_USAGE{gpu="0",UUID="GPU-a",Hostname="h"} 400.0
DCGM_FI_DEV_POWER_USAGE{gpu="1",UUID="GPU-b",Hostname="h"} 200.0
# TYPE DCGM_FI_DEV_GPU_UTIL gauge
DCGM_FI_DEV_GPU_UTIL{gpu="0",UUID="GPU-a",Hostname="h"} 90
# TYPE DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION counter
DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION{gpu="0",UUID="GPU-a",Hostname="h"} 123456
"""


@asynccontextmanager
async def exporter(answer: Callable[[int], bytes | None]) -> AsyncIterator[tuple[str, list[bytes]]]:
    """Serve what ``answer`` gives to each scrape by its number; None: no answer."""
    heads: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append(await reader.readuntil(b"\r\n\r\n"))
        body = answer(len(heads) - 1)
        if body is None:
            await reader.read()
        else:
            writer.write(
                b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\nConnection: close\r\n\r\n" % len(body) + body
            )
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", heads
    finally:
        server.close()


def series_of(path: Path) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}
    with path.open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            found.setdefault(row["gauge"], []).append(float(row["value"]))
    return found


async def test_gauges_of_another_endpoint_stand_beside_the_servers_and_power_becomes_energy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-the-server")
    async with serving() as server, exporter(lambda _: DCGM.encode()) as (url, heads):
        seen = await observed(
            server,
            workload(every(20_000, 30), output_tokens=10),
            scrape_s=0.05,
            scrape_urls=(url,),
            output=tmp_path / "run",
        )
    found = series_of(tmp_path / "run.gauges.csv")
    assert set(found) == {
        'vllm:num_requests_running{engine="0"}',
        'DCGM_FI_DEV_POWER_USAGE{gpu="0",UUID="GPU-a",Hostname="h"}',
        'DCGM_FI_DEV_POWER_USAGE{gpu="1",UUID="GPU-b",Hostname="h"}',
        'DCGM_FI_DEV_GPU_UTIL{gpu="0",UUID="GPU-a",Hostname="h"}',
    }
    assert heads[0].startswith(b"GET /metrics HTTP/1.1")
    assert server.requests[0].headers["authorization"] == "Bearer sk-of-the-server"
    assert b"sk-of-the-server" not in b"".join(heads)
    power = read_header(tmp_path / "run.yaml").power
    assert power is not None
    assert (power.num_gpus, power.covered_frac) == (2, 1.0)
    assert power.mean_w == pytest.approx(600)
    assert power.energy_j is not None
    assert 0.58 * 600 < power.energy_j < 1.2 * 600
    assert power.output_tokens_per_j == pytest.approx(300 / power.energy_j, rel=1e-4)
    assert seen.fault is None
    page = report_runs([tmp_path / "run"]).html()
    assert "Power, 2 GPUs together" in page
    assert "Time in which a kernel ran" in page


async def test_names_to_keep_are_globs_of_any_kind_and_endpoints_are_told_apart(tmp_path: Path) -> None:
    node = b'node_load1 0.5\nnode_load15 0.25\nnode_cpu_seconds_total{cpu="0"} 9\n'
    async with (
        serving() as server,
        exporter(lambda _: node) as (one, _),
        exporter(lambda _: node) as (two, _),
    ):
        await observed(
            server,
            workload([0, 100_000]),
            scrape_s=0.05,
            scrape_urls=(one, f"{two}/other?x=1"),
            scrape_keep=("node_load1", "node_cpu*"),
            output=tmp_path / "run",
        )
    hosts = [url.partition("//")[2] for url in (one, two)]
    assert set(series_of(tmp_path / "run.gauges.csv")) == {
        'vllm:num_requests_running{engine="0"}',
        *(f'node_load1{{endpoint="{host}"}}' for host in hosts),
        *(f'node_cpu_seconds_total{{cpu="0",endpoint="{host}"}}' for host in hosts),
    }


RUBBISH = b"\x00\xff{}{}\n# TYPE x gauge\nx{ 1\nx nan\n" * 50


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (lambda _: RUBBISH, "none of the series that are kept"),
        (lambda _: b"# TYPE a gauge\na 1\n" * (MOST_BYTES // 10), "4 MiB or more, and was not asked again"),
        (lambda _: None, "no answer to"),
        (
            lambda _: b"# TYPE a gauge\n" + b"".join(b'a{i="%d"} 1\n' % i for i in range(MOST_SERIES + 9)),
            "more than 2,000 series",
        ),
    ],
)
async def test_an_endpoint_that_misbehaves_is_remarked_on_and_the_load_goes_on(
    tmp_path: Path, answer: Callable[[int], bytes | None], said: str
) -> None:
    async with serving() as server, exporter(answer) as (url, heads):
        seen = await observed(
            server, workload(every(100_000, 13)), scrape_s=0.05, scrape_urls=(url,), output=tmp_path / "run"
        )
    assert statuses(seen.trace) == ["ok"] * 13
    assert seen.trace.header.power is None
    assert [note for note in seen.notes if said in note and url in note]
    if "asked again" in said:
        assert len(heads) == 1


async def test_an_endpoint_that_dies_midway_leaves_no_energy(tmp_path: Path) -> None:
    async with serving() as server, exporter(lambda number: DCGM.encode() if number < 4 else b"") as (url, _):
        seen = await observed(
            server, workload(every(50_000, 12)), scrape_s=0.05, scrape_urls=(url,), output=tmp_path / "run"
        )
    power = seen.trace.header.power
    assert power is not None
    assert power.covered_frac < 0.9
    assert (power.energy_j, power.mean_w, power.output_tokens_per_j) == (None, None, None)


def test_the_energy_is_the_integral_by_the_trapezoid_rule() -> None:
    key = 'DCGM_FI_DEV_POWER_USAGE{gpu="0",UUID="a"}'
    parts = 'DCGM_FI_DEV_POWER_USAGE{gpu="0",UUID="a",GPU_I_ID="1"}'
    rows = [(0, key, 100.0), (0, parts, 100.0), (1_000_000, key, 300.0), (3_000_000, key, 100.0)]
    found = power_of(rows, duration_us=3_000_000, period_s=1.0, output_tokens=600)
    assert found is not None
    assert (found.num_gpus, found.energy_j, found.mean_w) == (1, 600.0, 200.0)
    assert found.output_tokens_per_j == 1.0
    longer = power_of(rows, duration_us=4_000_000, period_s=1.0, output_tokens=600)
    assert longer is not None
    assert longer.energy_j == 700.0  # the last reading holds
    assert (
        power_of([(0, "DCGM_FI_DEV_POWER_USAGE_MAX 1", 5.0)], duration_us=9, period_s=1, output_tokens=1)
        is None
    )
    series = gpu_series([(0, key, 100.0), (0, parts, 200.0)], "DCGM_FI_DEV_POWER_USAGE")
    assert [values.tolist() for _, values in series.values()] == [[150.0]]
    assert all(times.dtype == np.float64 for times, _ in series.values())


def test_scrape_takes_an_interval_and_urls() -> None:
    assert scrapes_of([]) == (None, ())
    assert scrapes_of(["2s"]) == (2.0, ())
    assert scrapes_of(["http://a:9400/metrics", "500ms", "https://b"]) == (
        0.5,
        ("http://a:9400/metrics", "https://b"),
    )
    for wrong in (["1s", "2s"], ["ftp://a"], ["http://"], ["soon"], ["http://a b"]):
        with pytest.raises(ConfigError, match="--scrape"):
            scrapes_of(wrong)
    with pytest.raises(ConfigError) as told:
        scrapes_of(["ftp://me:secret@a"])
    assert "secret" not in str(told.value)


def test_the_command_line_shows_energy(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with serving_in_thread(Behaviour()) as server:
        server.more_metrics = lambda: DCGM
        load = ["--num-requests", "10", "--rate", "20", "--output-tokens", "2", "--prompt-tokens", "20"]
        scraped = ["--scrape", f"{server.url}/metrics", "--scrape", "100ms", "--scrape-keep", "DCGM_*"]
        command = ["observe", "--url", server.url, *load, "--output", str(tmp_path / "run")]
        assert vtwin.main([*command, *scraped, "--json"]) == 0
        out, err = capsys.readouterr()
        assert json.loads(out)["power"]["num_gpus"] == 2
        assert "600 W of 2 GPUs" in err
        assert vtwin.main([*command, "--overwrite", "--scrape-keep", "DCGM_*"]) == 2
