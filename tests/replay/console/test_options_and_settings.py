"""``--instances`` beside ``--set cluster.…``, and lines about what was set or typed where it does not belong."""

from __future__ import annotations

from pathlib import Path

import pytest

from replay.console.twins import load_twins
from replay.twin.start import own_way
from traces import ConfigError

TWIN = """\
engine: {num_gpu_blocks: 1000, max_model_len: 4096}
latency: {model: blackbox, coefficients: {alpha0: 0, alpha1: 0, alpha2: 0, beta0: 6000, beta1: 20, beta2: 30}}
"""
SCHEDULE = "cluster.failures.schedule=[{instance: 2, at_us: 3, down_us: 6}]"


def written(folder: Path, text: str = TWIN) -> Path:
    path = folder / "twin.yaml"
    path.write_text(text)
    return path


def test_a_setting_of_the_cluster_is_checked_against_the_instances_that_are_asked_for(tmp_path: Path) -> None:
    ((_, twin),) = load_twins(written(tmp_path), None, [SCHEDULE], instances=4)
    assert twin.cluster.num_instances == 4
    with pytest.raises(ConfigError, match=r"got 2, expected a number below 1 \(--set cluster\.failures"):
        load_twins(written(tmp_path), None, [SCHEDULE])


def test_a_section_that_is_not_there_is_told_of_the_setting(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"workload: unknown key.* \(--set workload\.prompt_tokens=3\)$"):
        load_twins(written(tmp_path), None, ["workload.prompt_tokens=3"])


def test_a_tab_is_called_so(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"\(a tab; YAML indents with spaces\).*twin\.yaml:2"):
        load_twins(written(tmp_path, "engine:\n\tmax_num_seqs: 3\n"), None, None)


def test_lengths_are_those_of_a_workload_where_a_command_has_no_others() -> None:
    said = own_way("--prompt-tokens", {"--workload"})
    assert said is not None
    assert said.startswith("lengths are those of --workload: vtwin trace synth --prompt-tokens N")
    assert own_way("--prompt-tokens", {"--trace"}) is None
