"""Trees of minima against plain scans, over drawn numbers, ties, and candidates that come and go."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from sim.cluster.arrays import FAR, NOWHERE, first_at_most, set_number, tree_of
from sim.cluster.fleet import Fleet, new_fleet, set_candidates
from sim.cluster.routing.shelves import add_in_flight
from sim.jit.compile import engine_entry
from sim.requests import Int64s


@engine_entry
def fill(tree: Int64s, leaves: Int64s, numbers: Int64s) -> None:
    """Set some numbers of a tree, one after another."""
    for i in range(len(leaves)):
        set_number(tree, leaves[i], numbers[i])


@engine_entry
def find(tree: Int64s, leaf: int, most: int) -> int:
    """Call ``first_at_most``."""
    return first_at_most(tree, leaf, most)


@engine_entry
def add(fleet: Fleet, instance: int, change: int) -> None:
    """Call ``add_in_flight``."""
    add_in_flight(fleet, instance, change)


SMALL = st.integers(0, 5)
"""Few values, many ties."""


@given(st.data())
def test_tree_finds_what_a_scan_finds(data: st.DataObject) -> None:
    """Also from the middle, past the end, and where nothing is small enough."""
    numbers = data.draw(st.lists(st.one_of(SMALL, st.just(FAR)), min_size=1, max_size=40))
    tree = tree_of(np.array(numbers, np.int64))
    changes = data.draw(st.lists(st.tuples(st.integers(0, len(numbers) - 1), SMALL), max_size=20))
    fill(tree, *np.array([*zip(*changes, strict=True)] or [[], []], np.int64))
    for leaf, number in changes:
        numbers[leaf] = number
    assert tree[1] == min(numbers)
    first, most = data.draw(st.integers(0, len(numbers) + 2)), data.draw(st.integers(-1, 5))
    meant = [leaf for leaf, number in enumerate(numbers) if leaf >= first and number <= most]
    assert find(tree, first, most) == (meant[0] if meant else NOWHERE)


@given(st.data())
def test_fleet_keeps_the_loads_of_its_candidates(data: st.DataObject) -> None:
    """Whatever is counted in and out, and whichever instances are candidates meanwhile."""
    num = data.draw(st.integers(1, 9))
    fleet, in_flight, order = new_fleet(num, keeps_loads=True), [0] * num, list(range(num))
    for _ in range(data.draw(st.integers(1, 25))):
        if data.draw(st.integers(0, 4)) == 0:
            order = data.draw(st.permutations(range(num)))[: data.draw(st.integers(1, num))]
            set_candidates(fleet, order)
        instance = data.draw(st.integers(0, num - 1))
        change = -1 if in_flight[instance] and data.draw(st.booleans()) else 1
        in_flight[instance] += change
        add(fleet, instance, change)
        loads = [in_flight[each] for each in order]
        assert find(fleet.loads, 0, int(fleet.loads[1])) == loads.index(min(loads))
