"""Classes of failures: read from an option or a file, and what they leave up."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

import vtwin
from replay.fleet.inputs.failures import availability_with, parse_failures
from traces import ConfigError


def test_downtimes_of_all_classes_add_up() -> None:
    assert availability_with(parse_failures("0.0065:4h")) == pytest.approx(0.998918, abs=5e-7)
    assert availability_with(parse_failures("0.0065:48h")) == pytest.approx(0.987167, abs=5e-7)
    both = availability_with(parse_failures("0.0065:4h, 0.0065:48h"))
    assert both == pytest.approx(1 / (1 + 0.0065 * (4 + 48) / 24))


def test_classes_come_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "failures.yaml").write_text(
        "failures:\n  - {name: gpu, per_node_day: 0.005, repair: 48h}\n  - {per_node_day: 0.0015, repair: 30m}\n"
    )
    gpu, other = parse_failures(str(tmp_path / "failures.yaml"))
    assert (gpu.name, gpu.per_node_day, gpu.repair_hours) == ("gpu", 0.005, 48)
    assert (other.name, other.repair_hours) == ("class 2", 0.5)


@pytest.mark.parametrize("text", ["0.0065", "often:4h", "0.0065:", "0.0065:soon", "-1:4h", "nan:4h", "1:inf"])
def test_what_is_no_class_of_failures_is_told(text: str) -> None:
    with pytest.raises(ConfigError, match=r"failures|availability"):
        parsed = parse_failures(text)
        availability_with(parsed)


def test_each_pool_provisions_for_its_own_failures(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "cdf.json").write_text("[[512, 0.4], [2048, 0.9], [8192, 1.0]]")
    (tmp_path / "pools.yaml").write_text(
        "failures: [{per_node_day: 0.1, repair: 12h}]\npools:\n"
        "  - {name: short, profile: A100, up_to: 2048}\n"
        "  - {name: long, profile: A100, up_to: 8192, failures: [{per_node_day: 0.5, repair: 24h}]}\n"
    )
    asked = [
        "fleet",
        "size",
        "--layout",
        "pools",
        str(tmp_path / "pools.yaml"),
        "--workload",
        str(tmp_path / "cdf.json"),
    ]
    asked += ["--rate", "300", "--slo", "ttft_p99=2s", "--no-verify", "--json"]
    assert vtwin.main(asked) == 0
    told = json.loads(capsys.readouterr().out)
    for each, up in zip(told["pools"], (1 / 1.05, 1 / 1.5), strict=True):
        assert each["availability"] == pytest.approx(up)
        assert each["gpus"] == each["provisioned"] == math.ceil(each["engines"] / up - 1e-9)
        assert each["provisioned"] > each["engines"]
    assert sum("of the nodes are up = 1 / (1 + " in note for note in told["notes"]) == 2
    assert vtwin.main([*asked, "--failures", "0.1:4h", "--availability", "0.9"]) == 2
    assert "--failures: cannot be combined with --availability" in capsys.readouterr().err
