"""The form that makes a twin: the reader's own keys, and the reader's own words beside them."""

from __future__ import annotations

import pytest

from replay.explore.build_twin import MAIN, build_form, built, form_keys, twin_text
from replay.twin.config_keys import all_keys, engine_keys
from replay.twin.config_read import read_config_text
from traces import ConfigError

OF_A_MODEL = {
    "latency.model": "roofline",
    "latency.model_config": "Qwen/Qwen2.5-7B-Instruct",
    "hardware.gpu": "H100",
}


def only(values: dict[str, str]) -> dict[str, object]:
    (found,) = built(values)
    return found


def test_the_form_has_every_scalar_key_of_a_server() -> None:
    paths = [each.path for each in form_keys()]
    assert tuple(paths[: len(MAIN)]) == MAIN
    assert len(set(paths)) == len(paths)
    scalars = {
        each.path
        for each in engine_keys()
        if each.kind in ("integer", "boolean", "fraction", "number", "choice")
    }
    assert scalars <= set(paths)
    by_path = {each.path: each for each in all_keys()}
    for row in build_form():
        key = by_path[str(row["path"])]
        assert row["default"] == key.default
        assert str(row["meaning"]).endswith(".")


def test_a_form_makes_a_twin_that_is_read_again() -> None:
    made = only(
        {
            **OF_A_MODEL,
            "engine.max_num_seqs": " 64 ",
            "cluster.instances": "2",
            "cluster.routing.policy": "random",
            "engine.block_size": "",
        }
    )
    assert made["kind"] == "built"
    from pathlib import Path

    twin = read_config_text(str(made["yaml"]), Path("twin.yaml"))
    assert (twin.engine.max_num_seqs, twin.cluster.pools[0].instances, twin.num_gpus) == (64, 2, {"H100": 2})
    assert "block_size" not in str(made["yaml"])
    assert any("num_gpu_blocks" in note for note in made["notes"])  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("values", "key", "said"),
    [
        ({"engine.max_num_seqs": "0"}, "engine.max_num_seqs", "expected an integer >= 1"),
        ({"engine.max_num_seqs": "64]\nseed: 3"}, "engine.max_num_seqs", "expected one line"),
        ({"engine.max_num_seqs": "x: [y"}, "engine.max_num_seqs", 'got "x: [y", expected an integer'),
        ({"engine.enable_prefix_caching": "maybe"}, "engine.enable_prefix_caching", "expected true or false"),
        ({"hardware.gpu": "nix"}, "hardware.gpu", "expected a GPU of the table"),
        ({"latency.model": "mine.py:Model"}, "latency.model", "--allow-code"),
        ({"hardware.gpu": "A30", "latency.model_config": "meta-llama/Llama-3.1-70B"}, "", "needs 132.0 GiB"),
        ({"nix.x": "3"}, "", "expected one of its own"),
    ],
)
def test_what_is_wrong_is_told_beside_its_key(values: dict[str, str], key: str, said: str) -> None:
    fault = only({**OF_A_MODEL, **values})
    assert (fault["kind"], fault["of"], fault["faults"][0]["key"]) == ("error", "build", key)
    assert said in str(fault["text"])


def test_all_that_is_wrong_is_told_at_once() -> None:
    wrong = {"engine.max_num_seqs": "0", "hardware.gpu": "nix", "engine.block_size": "x"}
    faults = only({**OF_A_MODEL, **wrong})["faults"]
    assert sorted(each["key"] for each in faults) == sorted(wrong)  # type: ignore[index, attr-defined]


def test_nothing_is_a_fault_too() -> None:
    assert only({})["faults"][0]["key"] == "latency.model"
    with pytest.raises(ConfigError, match="expected one of its own"):
        twin_text({"nix": "1"})
