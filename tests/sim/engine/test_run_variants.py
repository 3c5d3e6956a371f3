"""Every variant of ``run`` gives what the whole one gives, runs only where it may, and is made of what it needs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numba
import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from sim import EngineConfig, KVCacheGroup
from sim.config import InvalidConfig, Record
from sim.engine import dtypes
from sim.engine.run import run
from sim.engine.run_variants import KNOWN, RUNS, RunVariant, run_of, variant_for
from sim.engine.state import Records, State
from sim.engine_ready import needed_variant, one_request, smallest_engine
from sim.jit.folding import folded
from sim.jit.lazily import Uncompiled
from sim.latency import Blackbox
from sim.resumable import Engine
from tests.examples import examples
from tests.sim.strategies import Case, any_model, assert_same_outcomes, cases

RECORDS: tuple[Record, ...] = ("none", "tokens", "steps", "blocks")


def records_of_scalars() -> dict[str, np.dtype[Any]]:
    """Return every record type of the engine by its name in ``dtypes``."""
    return {name: each for name, each in vars(dtypes).items() if isinstance(each, np.dtype) and each.names}


def engine_record(config: EngineConfig) -> Records:
    """Return ``State.engine`` of an engine with one request."""
    return Engine(one_request(), config, Blackbox(beta0=1))._state.engine


def assert_same_with_the_whole(case: Case) -> None:
    """Simulate a case with the smallest variant and with the whole engine, and compare all that is recorded."""
    with pytest.MonkeyPatch.context() as patch:
        for record in RECORDS:
            ours = case.run(record=record)
            patch.setattr("sim.resumable.run_of", lambda _: run)
            theirs = case.run(record=record)
            patch.undo()
            assert_same_outcomes(ours.outcomes, theirs.outcomes)
            assert (ours.num_steps, ours.num_jumps) == (theirs.num_steps, theirs.num_jumps)
            if record == "tokens":
                for one, other in zip(ours.tokens(), theirs.tokens(), strict=True):
                    np.testing.assert_array_equal(one, other)
            if record == "steps":
                assert list(ours.steps()) == list(theirs.steps())


ANY_CASE = cases(closed=None, model=any_model, impatient=True, costly=True, stopping=True)


@examples(150)
@given(ANY_CASE)
def test_plain_and_whole_engine_give_the_same_bytes(case: Case) -> None:
    assert_same_with_the_whole(case)


def test_most_of_these_cases_are_plain() -> None:
    """Else the test above would compare an engine with itself."""
    found = []

    @examples(60)
    @given(ANY_CASE)
    def look(case: Case) -> None:
        found.append(variant_for(engine_record(case.config)) == "plain")

    look()
    assert np.mean(found) > 0.4


WINDOW_AND_STATES = (
    (KVCacheGroup(kind="full"), KVCacheGroup(kind="sliding", window=20)),
    (
        KVCacheGroup(kind="full"),
        KVCacheGroup(kind="state", mode="align"),
        KVCacheGroup(kind="state", mode="align"),
    ),
)


@examples(60)
@given(cases(closed=None, model=any_model), st.sampled_from(WINDOW_AND_STATES))
def test_hybrid_and_whole_engine_give_the_same_bytes(case: Case, groups: tuple[KVCacheGroup, ...]) -> None:
    blocks = case.config.num_gpu_blocks and 4 * case.config.num_gpu_blocks
    try:
        hybrid = case.under(kv_cache_groups=groups, num_gpu_blocks=blocks)
    except InvalidConfig:
        assume(False)
    assume(variant_for(engine_record(hybrid.config)) == "hybrid")
    assert_same_with_the_whole(hybrid)


@pytest.mark.parametrize("variant", ["plain", "hybrid"])
def test_an_engine_gets_the_smallest_variant_and_any_other_setting_a_larger_one(variant: RunVariant) -> None:
    state = Engine(one_request(), smallest_engine(variant), Blackbox(beta0=1))._state
    assert run_of(state) is RUNS[variant]
    settings = state.engine["settings"]
    for name, value in KNOWN[variant].items():
        assert settings[name][0] == value
        settings[name] = value + 1
        assert variant_for(state.engine) != variant, name
        settings[name] = value
    settings["has_images"] = 1
    assert run_of(state) is run


@pytest.mark.parametrize(
    "config",
    [
        EngineConfig(num_speculative_tokens=2, synthetic_acceptance_rates=(0.5, 0.5)),
        EngineConfig(pipeline_parallel_size=2),
        EngineConfig(compatibility="blis", async_scheduling=False),
        EngineConfig(batching="orca", async_scheduling=False, enable_prefix_caching=False),
        EngineConfig(session_kv_ttl_us=10),
    ],
)
def test_what_few_engines_have_takes_the_whole_one(config: EngineConfig) -> None:
    assert needed_variant(config) == "whole"


def test_the_names_of_these_settings_are_nobody_else_s() -> None:
    """They are taken for constants wherever they are read: no other record may have a field of that name.

    KV cache groups may, of what no variant takes for a constant that has any.
    """
    for variant, known in KNOWN.items():
        exempt = ("SETTINGS", "KV_CACHE_GROUP") if variant == "plain" else ("SETTINGS",)
        for name, each in records_of_scalars().items():
            assert name in exempt or not set(each.names or ()) & set(known), (variant, name)
        assert not set(State._fields) & set(known)


def reached(known: Mapping[str, int]) -> set[Any]:
    """Return every function that ``run`` calls, directly or not, where these settings are so."""
    found: set[Any] = set()
    ahead: list[Any] = [run]
    for each in ahead:
        function: Any = folded(each.py_func, known, lambda called: called)
        for name in function.__code__.co_names:
            called = function.__globals__.get(name)
            if isinstance(called, Uncompiled) and called not in found:
                found.add(called)
                ahead.append(called)
    return found


@pytest.mark.skipif(bool(numba.config.DISABLE_JIT), reason="nothing is compiled without the JIT")
def test_the_plain_engine_has_less_than_half_of_the_whole() -> None:
    """What it never needs is not compiled for it: whoever adds such a feature guards it by one of these settings."""
    plain, hybrid, whole = (reached(known) for known in KNOWN.values())
    assert len(plain) < 0.5 * len(whole)
    assert plain < hybrid < whole
    left_out = ("kv_cache.groups", "kv_offload.storing", "kv_offload.loading", "kv_offload.host_lookup")
    names = [each.py_func.__module__.removeprefix("sim.engine.") for each in plain]
    assert not [name for name in names if name.startswith(left_out) and name != "kv_cache.groups.states"]
