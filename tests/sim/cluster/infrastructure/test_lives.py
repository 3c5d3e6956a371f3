"""GPU-hours and node-hours of a run, added up by hand."""

from __future__ import annotations

import pytest

from sim.cluster.infrastructure.infrastructure_config import HOUR_US
from sim.cluster.infrastructure.instance_lives import Infrastructure, Life, gpu_hours_of
from sim.cluster.infrastructure.nodes import Node

H = HOUR_US


def life(instance: int, pool: int, placed: float | None, stopped: float | None, *, gpus: int = 1) -> Life:
    """Return a life whose GPUs it has between two times in hours, ordered an hour before the run."""
    times = [None if each is None else round(each * H) for each in (placed, stopped)]
    return Life(
        instance=instance, pool=pool, num_gpus=gpus, ordered_us=-H, placed_us=times[0], stopped_us=times[1]
    )


LIVES = (
    life(0, 0, 0, None),  # 10 hours: to the end
    life(1, 0, 1, 4, gpus=2),  # 6
    life(1, 0, 5, 12, gpus=2),  # 10: it has them beyond the end
    life(2, 1, 0.5, 1, gpus=4),  # 2
    life(3, 1, None, None),  # never placed
    life(3, 1, 11, None),  # placed after the end
)


def node(pool: str, ordered: float, removed: float | None) -> Node:
    return Node(
        pool=pool,
        number=0,
        ordered_us=round(ordered * H),
        ready_us=round(ordered * H) + 1,
        num_free_gpus=8,
        free_since_us=None,
        removed_us=None if removed is None else round(removed * H),
    )


RUN = Infrastructure(
    lives=LIVES,
    nodes=(node("a", 1, None), node("a", 2, 5), node("a", 3, 30), node("b", 0, 1.5), node("a", 12, None)),
    changes=(),
    end_us=10 * H,
)


def test_gpus_are_counted_while_an_instance_has_them_up_to_the_end() -> None:
    assert [each.gpu_us(10 * H) / H for each in LIVES] == [10, 6, 10, 2, 0, 0]
    assert gpu_hours_of(LIVES[:2], 10 * H) == 16
    assert RUN.gpu_hours() == 28
    assert RUN.gpu_hours_by_instance(5) == [10, 16, 2, 0, 0]


@pytest.mark.parametrize(
    ("instance", "pool", "hours"),
    [(0, None, 10), (1, None, 16), (None, 0, 26), (None, 1, 2), (2, 1, 2), (2, 0, 0)],
)
def test_of_an_instance_or_a_pool(instance: int | None, pool: int | None, hours: float) -> None:
    assert RUN.gpu_hours(instance=instance, pool=pool) == hours


def test_nodes_are_counted_from_the_order_until_they_are_gone_or_the_run_ends() -> None:
    assert RUN.node_hours("a") == 9 + 3 + 7
    assert RUN.node_hours("b") == 1.5
    assert RUN.node_hours("c") == 0
