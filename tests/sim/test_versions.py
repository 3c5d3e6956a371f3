"""One table of vLLM's versions selects the rules, the settings and the defaults."""

from __future__ import annotations

from dataclasses import fields

import pytest

from sim import EngineConfig, InvalidConfig
from sim.versions import CHANGES, NEWEST, OLDEST, VersionRules, engine_defaults, is_known, rules_of


@pytest.mark.parametrize(
    "version",
    ["0.12.0", "0.33.0", "0.32", "v0.32.1", "0.25.1+cpu", "0.20.0rc1", f"0.{NEWEST}", f"0.{OLDEST}"],
)
def test_a_version_between_the_oldest_and_the_newest_is_known_however_it_is_written(version: str) -> None:
    assert is_known(version)
    assert EngineConfig.for_version(version).vllm_version == version


@pytest.mark.parametrize("version", ["0.11.2", "0.34.0", "1.0.0", "0", "", "latest", "0.x.1", "v0"])
def test_any_other_version_is_refused_with_the_range(version: str) -> None:
    assert not is_known(version)
    with pytest.raises(InvalidConfig, match=r"^vllm_version: got .*, expected 0\.12 to 0\.33$"):
        EngineConfig.for_version(version)
    with pytest.raises(ValueError, match=r"expected 0\.12 to 0\.33"):
        rules_of(version)


def test_every_change_names_a_rule_and_gives_it_a_value_of_its_type() -> None:
    kinds = {field.name: type(field.default) for field in fields(VersionRules)}
    for changes in CHANGES.values():
        for name, value in changes.items():
            assert type(value) is kinds[name]
    named = [name for changes in CHANGES.values() for name in changes]
    assert set(named) == set(kinds)
    several = {
        "async_pipeline",
        "state_chunks",
        "enters_prompt_state_anew",
        "pads_admissions",
        "queues_freed_without_cache",
        "queues_passed_over_apart",
        "prefill_checkpoints",
    }
    assert sorted(name for name in named if name not in several) == sorted(set(named) - several)


def test_the_rules_of_a_version_are_those_of_the_table() -> None:
    """Spelled out by hand for the versions at whose boundaries a rule changes."""
    expected = {  # threshold lifted, un-hashed first, gate, watermark, cursor, goes on, async
        "0.13.0": (False, False, False, False, False, False, False),
        "0.14.0": (False, False, False, False, False, False, True),
        "0.18.1": (False, False, False, False, False, False, True),
        "0.19.0": (False, False, True, False, False, False, True),
        "0.23.0": (False, False, True, False, False, False, True),
        "0.24.0": (False, True, True, True, False, False, True),
        "0.27.1": (False, True, True, True, False, False, True),
        "0.28.0": (False, True, True, True, True, False, True),
        "0.30.0": (False, True, True, True, True, False, True),
        "0.31.0": (True, True, True, True, True, False, True),
        "0.32.0": (True, True, True, True, True, False, True),
        "0.33.0": (True, True, True, True, True, True, True),
    }
    for version, row in expected.items():
        rules = rules_of(version)
        assert row == (
            rules.lifts_threshold_for_lone_request,
            rules.frees_unhashed_blocks_first,
            rules.has_full_isl_gate,
            rules.has_watermark,
            rules.moves_cursor_for_every_victim,
            rules.continues_after_self_preemption,
            rules.async_scheduling,
        ), version


def test_memory_defaults_go_with_the_version() -> None:
    assert (rules_of("0.19.1").gpu_memory_utilization, rules_of("0.20.0").gpu_memory_utilization) == (
        0.9,
        0.92,
    )
    assert not rules_of("0.19.1").counts_cuda_graphs
    assert rules_of("0.25.1").counts_cuda_graphs
    assert rules_of("0.27.0").batched_tokens_by_gib == ((70, 8192),)
    assert rules_of("0.28.0").batched_tokens_by_gib == ((160, 16384), (70, 8192))


def test_defaults_of_the_engine_go_with_the_version_and_give_way_to_what_is_said() -> None:
    assert engine_defaults("0.13.0") == {"async_scheduling": False, "scheduler_reserve_full_isl": False}
    assert EngineConfig.for_version("0.32.0") == EngineConfig()
    old = EngineConfig.for_version("0.13.0", async_scheduling=True)
    assert (old.async_scheduling, old.scheduler_reserve_full_isl) == (True, False)


@pytest.mark.parametrize(
    ("version", "settings", "message"),
    [
        ("0.23.0", {"watermark": 0.1}, "watermark: got 0.1, expected 0: vLLM 0.23.0 does not have it"),
        (
            "0.18.0",
            {"scheduler_reserve_full_isl": True},
            "scheduler_reserve_full_isl: got true, expected false: vLLM 0.18.0 does not have it",
        ),
        (
            "0.30.0",
            {"long_prefill_token_threshold_adaptive": True},
            "long_prefill_token_threshold_adaptive: got true, expected false: vLLM 0.30.0 does not have it",
        ),
    ],
)
def test_a_setting_that_the_version_does_not_have_is_refused(
    version: str, settings: dict[str, object], message: str
) -> None:
    with pytest.raises(InvalidConfig) as refused:
        EngineConfig.for_version(version, **settings)
    assert str(refused.value) == message
