"""A setting of the engine, and a rule of vLLM's versions, is said once: all that others know of it follows."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import get_args

import pytest

from replay.twin.config_keys import engine_keys
from replay.twin.start.flag_table import FLAGS
from sim import EngineConfig, InvalidConfig
from sim.engine import dtypes as dt
from sim.engine_settings import KINDS, SAID, TAKEN, EngineSettings
from sim.features.setting import Said, changing, setting, since
from sim.versions import ASKED, CHANGES, VersionRules

NAMES = [field.name for field in fields(EngineSettings)]


def test_each_setting_stands_in_one_class_of_one_feature() -> None:
    classes = EngineSettings.__bases__
    own = [name for each in classes for name in each.__annotations__]
    assert sorted(own) == sorted(NAMES)
    assert all(each.__module__.startswith("sim.features.") for each in classes)
    assert all(isinstance(SAID[name], Said) for name in NAMES)


def test_each_rule_stands_in_one_class_of_one_feature() -> None:
    own = [name for each in VersionRules.__bases__ for name in each.__annotations__]
    assert sorted(own) == sorted(field.name for field in fields(VersionRules))
    assert all(each.__module__.startswith("sim.features.") for each in VersionRules.__bases__)


def test_the_compiled_engine_has_what_is_taken_and_the_rules_that_it_asks_for() -> None:
    kinds = {name: dt.SETTINGS[name] for name in (*TAKEN, *ASKED)}
    for name in TAKEN:
        assert kinds[name] == ("float64" if KINDS[name] == "float" else "int64"), name
    assert all(kinds[name] == "int64" for name in ASKED)


@pytest.mark.parametrize("name", TAKEN)
def test_a_bound_is_the_one_that_is_said(name: str) -> None:
    said, kind = SAID[name], KINDS[name]
    beyond = {
        "int": ((said.least or 0) - 1, said.most + 1),
        "float": ((said.least or 0) - 0.5,),
        "bool": (2,),
    }
    for value in beyond[kind]:
        with pytest.raises(InvalidConfig, match=rf"^{name}: got "):
            EngineConfig(**{name: value})


@pytest.mark.parametrize("name", [name for name in NAMES if SAID[name].choices])
def test_a_word_is_one_of_those_that_are_said(name: str) -> None:
    choices = get_args(SAID[name].choices)
    with pytest.raises(
        InvalidConfig, match=rf"^{name}: got 'neither', expected one of {', '.join(choices)}$"
    ):
        EngineConfig(**{name: "neither"})


def test_keys_of_a_twin_have_the_meanings_that_are_said() -> None:
    keys = {key.path.removeprefix("engine."): key.meaning for key in engine_keys()}
    assert keys == {name: SAID[name].meaning for name in keys}
    assert all(keys.values())


def test_flags_of_vllm_serve_are_the_ones_that_are_said() -> None:
    """The table of flags says also how each is read, so it has the names a second time."""
    of_engine = {known.name: flag for flag, known in FLAGS.items() if known.section == "engine"}
    said = {name: SAID[name].flag for name in NAMES if SAID[name].flag}
    assert said == {name: flag for name, flag in of_engine.items() if name in NAMES}


def test_a_rule_says_since_when_it_holds() -> None:
    assert CHANGES[33]["enters_prompt_state_anew"] is False
    assert CHANGES[32]["enters_prompt_state_anew"] is True

    @dataclass(frozen=True, kw_only=True)
    class Rules:
        holds: bool = since(14, until=16)
        way: str = changing("before", {15: "behind"})

    holds, way = fields(Rules)
    assert (holds.metadata["since"], holds.metadata["asked"]) == ({14: True, 16: False}, True)
    assert (way.default, way.metadata["since"], way.metadata["asked"]) == ("before", {15: "behind"}, False)


def test_a_setting_keeps_its_default_and_what_is_said() -> None:
    @dataclass(frozen=True, kw_only=True)
    class Settings:
        width: int = setting(3, "How wide.", least=1, most=9, taken=True)

    (width,) = fields(Settings)
    assert (Settings().width, width.metadata["said"]) == (
        3,
        Said(meaning="How wide.", least=1, most=9, taken=True),
    )
    assert not hasattr(EngineConfig(), "__dict__")
