"""Ranges of a TWIN.yaml's quantities, checked before anything is computed or allocated from them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import yaml

from replay.numbers.argument_ranges import GPUS
from replay.twin.keys.cluster_keys import CLUSTER
from replay.twin.keys.hardware_keys import hardware_keys
from replay.twin.keys.key import ranges_of
from traces import ConfigError
from traces.strict.section import Section
from traces.strict.yaml_nodes import is_null, line_of, place

RANGES: Mapping[str, tuple[float, float]] = {
    "latency.defaults.tp": (GPUS.least, GPUS.most),
    "engine.kv_transfer_bandwidth": (1e-6, 1e9),
    "engine.lora_step_factor": (1, 1e6),
    **{key.path: key.within for key in hardware_keys() if key.within is not None},
    **ranges_of("cluster", CLUSTER),
}
"""The least above 0 and the most by the key's path, in the key's unit. Other keys have ranges where they are read."""


def check_ranges(root: Section) -> None:
    """Raise ConfigError at the first quantity out of its range; a value that is not a number is refused on reading."""
    for key, node in root.nodes.items():
        for path, value in _scalars(key, node):
            where = f"({place(root.file, line_of(value))})"
            if path not in RANGES or is_null(value):
                continue
            low, high = RANGES[path]
            try:
                number = float(value.value)
            except ValueError:
                if path == "cluster.autoscaler.target":
                    raise ConfigError(f"{path}: got {value.value!r}, expected a number {where}") from None
                continue
            if not (number <= 0 or low <= number <= high):  # 0 and less is refused on reading
                raise ConfigError(f"{path}: got {value.value}, expected {low:,.12g} to {high:,.12g} {where}")


def _scalars(path: str, node: yaml.Node) -> Iterator[tuple[str, yaml.ScalarNode]]:
    """Yield the scalars below a node with their paths: in a list the list's, in a pool the top level's."""
    if isinstance(node, yaml.ScalarNode):
        yield path, node
    elif isinstance(node, yaml.SequenceNode):
        for each in node.value:
            yield from _scalars(path, each)
    elif isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            inner = f"{path}.{key.value}"
            yield from _scalars(_own(inner), value)


def _own(path: str) -> str:
    """Return the path without the pool whose own section it is in."""
    for section in ("hardware", "engine", "latency", "autoscaler"):
        if path == f"cluster.pools.{section}":
            return section if section != "autoscaler" else "cluster.autoscaler"
    return path
