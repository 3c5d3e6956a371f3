"""The engine's tables are the core's own rows and the sum over features; a plain engine has no rows of any feature."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from sim import Blackbox, EngineConfig, Requests
from sim.engine import dtypes as dt
from sim.engine.records.feature import FeatureRecords
from sim.engine.records.features import FEATURES, FeatureArrays
from sim.engine.run_variants import KNOWN
from sim.engine.state import PER_REQUEST, CoreArrays, State
from sim.resumable import Engine

MOST_CORE_ARRAYS = 40
TABLES = {
    "settings": dt.SETTINGS,
    "clock": dt.CLOCK,
    "queues": dt.QUEUES,
    "current_step": dt.CURRENT_STEP,
    "totals": dt.TOTALS,
    "batch": dt.BATCH,
    "traits": dt.TRAIT,
    "engine": dt.ENGINE,
}


def plain_state() -> State:
    """Return the state of an engine with a request and no feature."""
    one = np.ones(1, np.int64)
    requests = Requests(
        arrival_us=one,
        prompt_tokens=one,
        output_tokens=one,
        priority=one,
        hash_offsets=np.zeros(2, np.int64),
        hash_ids=np.zeros(0, np.int64),
    )
    return Engine(requests, EngineConfig(), Blackbox(beta0=1))._state


def names_of(arrays: type) -> list[str]:
    return [*arrays.__annotations__]


def test_the_core_s_list_of_arrays_is_short_and_each_array_stands_in_one_list() -> None:
    core = names_of(CoreArrays)
    lists = [core, *map(names_of, FeatureArrays.__bases__)]
    assert len(core) <= MOST_CORE_ARRAYS
    assert [*State._fields] == [name for each in lists for name in each]
    assert max(Counter(State._fields).values()) == 1


def test_no_array_of_a_feature_has_rows_in_a_plain_engine() -> None:
    state = plain_state()
    lists = [name for each in FeatureArrays.__bases__ for name in names_of(each)]
    rows = {name: getattr(state, name).size for name in lists}
    assert {name: num for name, num in rows.items() if num > 1} == {}
    assert {name for name, num in rows.items() if num == 1} == {"cpu_slots"}  # the head of a ring
    assert all(getattr(state, name) is not None for name in State._fields)


@pytest.mark.parametrize("table", TABLES)
def test_a_table_has_each_row_of_each_feature_once(table: str) -> None:
    rows = [name for feature in FEATURES for name, _ in getattr(feature, table)]
    assert max(Counter(rows).values(), default=1) == 1
    assert set(rows) <= set(TABLES[table].names or ())


def test_what_features_name_is_there() -> None:
    settings = set(dt.SETTINGS.names or ())
    for feature in FEATURES:
        assert isinstance(feature, FeatureRecords)
        assert {*feature.absent} <= settings
        named = {*feature.begins_empty, *feature.per_request, *feature.per_content}
        assert named <= set(State._fields)
        assert feature.per_request.items() <= PER_REQUEST.items()
    assert {*KNOWN["hybrid"]} < {*KNOWN["plain"]}
