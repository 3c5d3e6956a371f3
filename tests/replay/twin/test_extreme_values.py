"""Values at the ends of numbers that once were a traceback, a hang, or taken; all pairs: ``make fuzz``."""

from __future__ import annotations

from pathlib import Path

import pytest

from replay.twin.config_read import load_config
from tests.fuzz.twin_targets import KEYS, VALUES, document, read
from traces.errors import ConfigError

BY_PATH = {key.path: key for key in KEYS}
ONCE_FAULTS = (
    ("hardware.tp", "2147483648"),
    ("hardware.gpu_memory_utilization", "2147483648"),
    ("hardware.kv_offloading_size", "9223372036854775808"),
    ("hardware.memory_gib", "2147483648"),
    ("hardware.memory_gib", "999999"),
    ("hardware.tflops_16bit", "9223372036854775808"),
    ("hardware.network_us", "9223372036854775808"),
    ("engine.kv_transfer_bandwidth", "1e-13"),
    ("engine.lora_step_factor", "9223372036854775808"),
    ("cluster.instances", "9223372036854775808"),
    ("cluster.pools.instances", "2147483648"),
    ("cluster.autoscaler.max_instances", "2147483648"),
    ("cluster.autoscaler.target", "x"),
    ("cluster.flow_control.slo_targets_us", "0"),
    ("cluster.flow_control.slo_targets_us", "x"),
    ("cluster.pools.cost_per_gpu_hour", "9223372036854775808"),
    ("seed", "9223372036854775808"),
)


@pytest.mark.parametrize(("path", "value"), ONCE_FAULTS)
def test_a_value_out_of_range_is_one_line_that_names_the_key(path: str, value: str, tmp_path: Path) -> None:
    (tmp_path / "twin.yaml").write_text(document(BY_PATH[path], value))
    with pytest.raises(ConfigError) as refused:
        load_config(tmp_path / "twin.yaml")
    line = str(refused.value)
    assert line.isprintable()
    assert path.rpartition(".")[2] in line or "num_gpu_blocks" in line
    assert "expected" in line
    assert "twin.yaml" in line


@pytest.mark.parametrize("value", VALUES)
def test_each_engine_setting_is_read_or_refused(value: str) -> None:
    for key in KEYS:
        if key.path.startswith("engine."):
            read(key, value)
