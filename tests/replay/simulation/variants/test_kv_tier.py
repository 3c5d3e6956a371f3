"""How much host memory: what is printed as the cheapest is the cheapest of all that were simulated one by one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import vtwin

TWIN = """\
engine: {max_num_seqs: 8, num_gpu_blocks: 480, max_num_batched_tokens: 2048}
hardware: {gpu: H100, kv_offload_gb_per_s: 50}
latency: {model: roofline, model_config: Qwen/Qwen3-8B}
"""
LOAD = [
    "--rate",
    "2",
    "--num-requests",
    "60",
    "--rounds",
    "4",
    "--think-time",
    "3s",
    "--prompt-tokens",
    "1200",
]
ASKED = ["run", "--config", "twin.yaml", *LOAD, "--output-tokens", "8", "--slo", "ttft=130ms"]
SIZES = ("0", "1", "2", "4", "8")


@pytest.fixture(autouse=True)
def in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("twin.yaml").write_text(TWIN)
    Path("prices.yaml").write_text("H100: 2.5\nDRAM: 0.05\n")


def shown(capsys: pytest.CaptureFixture[str], *options: str) -> str:
    capsys.readouterr()
    assert vtwin.main([*ASKED, *options]) == 0
    return capsys.readouterr().out


def test_the_cheapest_tier_that_keeps_the_slo_is_that_of_single_runs(
    capsys: pytest.CaptureFixture[str],
) -> None:
    sweep = f"hardware.kv_offloading_size={','.join(SIZES)}"
    text = shown(capsys, "--set", sweep, "--prices", "prices.yaml", "--report", "kv.html")
    alone = {
        size: json.loads(shown(capsys, "--set", f"hardware.kv_offloading_size={size}", "--json"))
        for size in SIZES
    }
    kept = [size for size, each in alone.items() if each["goodput"]["good_frac"] >= 0.99]
    assert 0 < len(kept) < len(SIZES)
    assert f"cheapest of 5 that keeps --slo in 99% of requests: kv_offloading_size {kept[0]} (" in text
    page = Path("kv.html").read_text()
    assert "Prompt tokens found in a cache" in page
    document = json.loads(shown(capsys, "--set", sweep, "--prices", "prices.yaml", "--json"))
    for size, each in zip(SIZES, document["variants"], strict=True):
        memory = each["host_memory_gib"]
        assert float(size) - 0.01 < memory <= float(size)
        assert each["price_per_hour"] == pytest.approx(2.5 + 0.05 * memory)
        tokens_per_hour = 3600 * each["output_token_throughput"]
        assert each["price_per_million_output_tokens"] == pytest.approx(
            1e6 * each["price_per_hour"] / tokens_per_hour
        )
        assert each["kv_offload"] == alone[size]["kv_offload"]


@pytest.mark.parametrize(
    ("prices", "message"),
    [
        ("DRAM: -1\nH100: 2", "DRAM: got -1, expected a price per GiB and hour"),
        ("DRAM: 0.1", "got no price"),
        ("dram: 0.1\nH100: 2", "dram: got the price of host memory, expected it as DRAM, or GPUs only ("),
        (None, "--prices: got nothing at this path, expected a YAML file (prices.yaml)"),
    ],
)
def test_prices_that_are_none_are_refused(
    prices: str | None, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("prices.yaml").unlink()
    if prices is not None:
        Path("prices.yaml").write_text(prices)
    options = ["--set", "hardware.kv_offloading_size=0,1", "--prices", "prices.yaml"]
    assert vtwin.main([*ASKED, *options]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("prices", "message"),
    [
        (
            "H100: 2.5",
            "host memory is counted as free: --prices has no line DRAM, its price per GiB and hour",
        ),
        ("L40S: 1\nDRAM: 0.1", "cheapest: not known, --prices has no price of H100"),
    ],
)
def test_what_a_price_is_missing_for_is_said(
    prices: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("prices.yaml").write_text(prices)
    sizes = "hardware.kv_offloading_size=4,8"
    assert message in shown(capsys, "--set", sizes, "--prices", "prices.yaml").splitlines()


def test_prices_of_a_single_run_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert vtwin.main([*ASKED, "--prices", "prices.yaml"]) == 2
    assert "--prices: got one simulation, expected several to compare" in capsys.readouterr().err
