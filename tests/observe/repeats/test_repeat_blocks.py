"""Every block has each load once, and its order hangs on the seed and on its number alone."""

from __future__ import annotations

from observe.plan.loads import sweep_loads
from observe.repeats.repeat_blocks import in_blocks
from observe.repeats.repeated_load import load_name
from traces.workload import WorkloadOptions

LOADS = sweep_loads(WorkloadOptions(num_requests=3), "1,2,4,8,16")


def test_a_block_has_each_load_once_in_an_order_of_its_own() -> None:
    found = in_blocks(LOADS, 6, seed=1)
    blocks = [[load_name([each.name]) for each in found[i : i + 5]] for i in range(0, 30, 5)]
    assert all(sorted(block) == sorted(each.name for each in LOADS) for block in blocks)
    assert len({tuple(block) for block in blocks}) > 3
    assert [each.name.rpartition("-")[2] for each in found] == [
        str(block) for block in range(1, 7) for _ in LOADS
    ]


def test_more_repeats_leave_the_first_as_they_were() -> None:
    assert [each.name for each in in_blocks(LOADS, 2, seed=1)] == [
        each.name for each in in_blocks(LOADS, 5, seed=1)[:10]
    ]
    assert [each.name for each in in_blocks(LOADS, 5, seed=2)] != [
        each.name for each in in_blocks(LOADS, 5, seed=1)
    ]
