"""``latency.tiles`` of TWIN.yaml: how much longer a step's products take than a smooth curve says, by its tokens."""

from __future__ import annotations

from collections.abc import Sequence

import yaml

from sim import InvalidConfig
from sim.latency import check_tiles
from traces.strict.section import Section
from traces.strict.yaml_nodes import scalar_of, shown

Pairs = tuple[tuple[int, float], ...]
KEY = "tiles"
EXPECTED = "pairs [tokens, factor], as in [[1024, 0.95], [1025, 1.2]]"
PER_LINE = 8
LEAST, MOST = 0.01, 100.0
"""A factor further from 1 is a mistake, and could make a step longer than the clock can count."""


def read_tiles(section: Section) -> Pairs:
    """Return the pairs of a section, which may have none. Raises ConfigError on other values, or a wrong order."""
    if KEY not in section:
        return ()
    pairs = tuple(_pair(section, node) for node in section.items(KEY, expected=EXPECTED))
    try:
        check_tiles(pairs)
    except InvalidConfig as error:
        _, _, said = str(error).partition("got ")
        got, _, expected = said.partition(", expected ")
        section.fail(KEY, got=got, expected=expected)
    return pairs


def check_has_tiles(section: Section, model: str) -> None:
    """Raise ConfigError where a section has tiles beside coefficients of a model that has none."""
    if KEY in section and (model != "extended" or "coefficients" not in section):
        if model == "extended":
            section.fail(KEY, got="no coefficients", expected="model: extended with coefficients")
        section.refuse_together(KEY, f"model: {model}", expected="model: extended with coefficients")


def _pair(section: Section, node: yaml.Node) -> tuple[int, float]:
    """Return one pair."""
    items = node.value if isinstance(node, yaml.SequenceNode) else []
    values = [scalar_of(each) if isinstance(each, yaml.ScalarNode) else None for each in items]
    if (
        len(values) != 2
        or isinstance(values[0], bool)
        or not isinstance(values[0], int)
        or isinstance(values[1], bool)
        or not isinstance(values[1], int | float)
    ):
        section.fail(KEY, got=shown(node), expected=EXPECTED)
    if not LEAST <= values[1] <= MOST:
        section.fail(KEY, got=f"a factor of {shown(items[1])}", expected=f"one from {LEAST:g} to {MOST:g}")
    return values[0], float(values[1])


def tiles_lines(tiles: Sequence[tuple[int, float]]) -> list[str]:
    """Return the pairs as lines of TWIN.yaml's latency section; none where there are none."""
    if not tiles:
        return []
    starts = range(0, len(tiles), PER_LINE)
    rows = [pairs_text(tiles[first : first + PER_LINE])[1:-1] for first in starts]
    return [f"  {KEY}:", "    [", *(f"      {row}," for row in rows), "    ]"]


def pairs_text(tiles: Sequence[tuple[int, float]]) -> str:
    """Return pairs as YAML on one line."""
    return f"[{', '.join(f'[{tokens}, {factor!r}]' for tokens, factor in tiles)}]"
