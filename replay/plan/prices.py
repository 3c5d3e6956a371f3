"""What a GPU costs: a file of the user's own, since prices differ by contract, region and month."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from replay.model.gpus import find_gpu
from traces.errors import ConfigError
from traces.strict.section import Section, read_section


def read_prices(path: Path) -> Mapping[str, float]:
    """Return the price of one GPU for an hour by the GPU's name, in the file's own currency.

    The file is YAML or JSON, ``H100: 2.5`` a line, with names or aliases of the table of GPUs. Raises ConfigError.
    """
    return prices_from(read_section(path))


def prices_from(section: Section) -> Mapping[str, float]:
    """Return the prices that a mapping has, as ``read_prices`` does. Raises ConfigError."""
    prices: dict[str, float] = {}
    for name in section.nodes:
        place = f"{section.file}:{section.key_lines[name]}"
        gpu = find_gpu(name, where=place).name
        value = section.decimal(name, expected="a price per GPU and hour")
        if value is None or not 0 < float(value) < float("inf"):
            raise ConfigError(f"{name}: got {value}, expected a price per GPU and hour > 0 ({place})")
        if gpu in prices:
            raise ConfigError(f"{name}: got {gpu} twice, expected it once ({place})")
        prices[gpu] = float(value)
    if not prices:
        raise ConfigError(f"{section.file}: got no price, expected lines like H100: 2.5 (per GPU and hour)")
    return prices
