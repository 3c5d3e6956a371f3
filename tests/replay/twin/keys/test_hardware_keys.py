"""``hardware:`` of TWIN.yaml: keys that follow from the types of what holds their values."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest

from replay.model.gpus import TABLE_ONLY, Gpu
from replay.model.layout import Hardware, Layout
from replay.twin.config_read import load_config
from replay.twin.keys.hardware_keys import HARDWARE, hardware_keys
from replay.twin.keys.ranges import RANGES
from traces.errors import ConfigError

NOT_SAID = {"layout", "written", "name", "source", "aliases", "tflops_32bit", *TABLE_ONLY}
"""Parts, what is noted of the file, and what only the table of GPUs has."""


def test_every_setting_of_the_hardware_has_a_key_and_every_key_a_setting() -> None:
    held = {item.name for cls in (Hardware, Layout, Gpu) for item in fields(cls)}
    assert set(HARDWARE) - {""} == held - NOT_SAID


def test_kind_bounds_unit_and_default_follow_from_the_type() -> None:
    keys = {key.name: key for key in hardware_keys()}
    share, network, tp = keys["gpu_memory_utilization"], keys["network_gb_per_s"], keys["tp"]
    assert (share.kind, share.within, share.default) == ("fraction", (0.01, 1), "vLLM's")
    assert (network.kind, network.unit, network.default) == ("number", "GB/s", "44")
    assert (tp.kind, tp.least, tp.within) == ("integer", 1, (1, 65_536))
    assert keys["mm_encoder_tp_mode"].choices == ("weights", "data")
    assert RANGES["hardware.network_us"] == (0, 1e9)


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ("network_gb_per_s: 0", "network_gb_per_s: got 0, expected a number of GB/s > 0"),
        ("network_us: -1", "network_us: got -1, expected a number of µs >= 0"),
        ("memory_gib: x", 'memory_gib: got "x", expected a number of GiB > 0'),
        ("gpu_memory_utilization: 0", "gpu_memory_utilization: got 0, expected a fraction in (0, 1]"),
        ("gpu_memory_utilization: 1.5", "gpu_memory_utilization: got 1.5, expected 0.01 to 1"),
        ("tp: 0", "tp: got 0, expected an integer >= 1"),
        ("all2all_backend: x", 'all2all_backend: got "x", expected one of allgather_reducescatter, naive'),
        ("rack_us: 3", "rack_us: unknown key, did you mean hardware."),
    ],
)
def test_a_wrong_value_is_one_line_with_its_unit_and_its_place(
    tmp_path: Path, given: str, complaint: str
) -> None:
    path = tmp_path / "twin.yaml"
    path.write_text(
        "latency: {model: physics, model_config: Qwen/Qwen2.5-7B-Instruct}\n"
        f"hardware: {{gpu: H100, {given}}}\n"
    )
    with pytest.raises(ConfigError) as caught:
        load_config(path)
    assert str(caught.value).startswith(f"hardware.{complaint}")
    assert str(caught.value).endswith(f"({path}:2)")
