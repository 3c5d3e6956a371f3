"""The plain engine gives what the whole one gives, runs only where it may, and has nothing of what it never needs."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
import pytest
from hypothesis import given
from numba.core.dispatcher import Dispatcher

from sim import EngineConfig, KVCacheGroup
from sim.config import Record
from sim.engine import dtypes
from sim.engine.plain_run import PLAIN, is_plain, run_of, run_plain
from sim.engine.run import run
from sim.engine.state import Records, State
from sim.engine_ready import needs_whole, one_request
from sim.jit.folding import folded
from sim.jit.linking import is_inner
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


@examples(150)
@given(cases(closed=None, model=any_model, impatient=True, costly=True, stopping=True))
def test_plain_and_whole_engine_give_the_same_bytes(case: Case) -> None:
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


def test_most_of_these_cases_are_plain() -> None:
    """Else the test above would compare an engine with itself."""
    found = []

    @examples(60)
    @given(cases(closed=None, model=any_model, impatient=True, costly=True, stopping=True))
    def look(case: Case) -> None:
        found.append(is_plain(Engine(case.requests, case.config, case.latency)._state.engine))

    look()
    assert np.mean(found) > 0.4


def test_an_engine_is_plain_as_it_comes() -> None:
    engine = engine_record(EngineConfig())
    assert is_plain(engine)
    for name, value in PLAIN.items():
        assert engine["settings"][name][0] == value


@pytest.mark.parametrize("name", PLAIN)
def test_every_other_value_of_a_setting_takes_the_whole_engine(name: str) -> None:
    engine = engine_record(EngineConfig())
    engine["settings"][name] = PLAIN[name] + 1
    assert not is_plain(engine)


@pytest.mark.parametrize(
    "config",
    [
        EngineConfig(num_speculative_tokens=2, synthetic_acceptance_rates=(0.5, 0.5)),
        EngineConfig(pipeline_parallel_size=2),
        EngineConfig(kv_cache_groups=(KVCacheGroup(kind="full"), KVCacheGroup(kind="sliding", window=64))),
        EngineConfig(compatibility="blis"),
        EngineConfig(batching="orca"),
        EngineConfig(session_kv_ttl_us=10),
    ],
)
def test_what_few_engines_have_takes_the_whole_one(config: EngineConfig) -> None:
    assert needs_whole(config)


def test_which_function_runs_an_engine() -> None:
    state: State = Engine(one_request(), EngineConfig(), Blackbox(beta0=1))._state
    assert run_of(state) is run_plain
    state.engine["settings"]["has_images"] = 1
    assert run_of(state) is run


def test_the_names_of_these_settings_are_nobody_else_s() -> None:
    """They are taken for constants wherever they are read: no other record may have a field of that name."""
    others = {name: each for name, each in records_of_scalars().items() if name != "SETTINGS"}
    for name, each in others.items():
        assert not set(each.names or ()) & set(PLAIN), name
    assert not set(State._fields) & set(PLAIN)


def reached(known: dict[str, int]) -> set[Any]:
    """Return every function that ``run`` calls, directly or not, where these settings are so."""
    found: set[Any] = set()
    ahead = [run]
    for each in ahead:
        function = folded(each.py_func, known, lambda called: called)  # type: ignore[attr-defined]
        for name in function.__code__.co_names:  # type: ignore[attr-defined]
            called = function.__globals__.get(name)  # type: ignore[attr-defined]
            if isinstance(called, Dispatcher) and is_inner(called) and called not in found:
                found.add(called)
                ahead.append(called)  # type: ignore[arg-type]
    return found


@pytest.mark.skipif(bool(numba.config.DISABLE_JIT), reason="nothing is compiled without the JIT")
def test_the_plain_engine_has_less_than_half_of_the_whole() -> None:
    """What it never needs is not compiled for it: whoever adds such a feature guards it by one of these settings."""
    plain, whole = reached(dict(PLAIN)), reached({})
    assert len(plain) < 0.5 * len(whole)
    left_out = ("kv_cache.groups", "kv_offload.storing", "kv_offload.loading", "kv_offload.host_lookup")
    names = [each.py_func.__module__.removeprefix("sim.engine.") for each in plain]
    assert not [name for name in names if name.startswith(left_out) and name != "kv_cache.groups.states"]
