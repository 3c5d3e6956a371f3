"""What a GPU costs: from the user's own file, else a provider's list prices of a given day, reported as such."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from lazy_dataclasses import dataclass, replace
from pathlib import Path

import yaml

from replay.model.gpus import find_gpu
from traces import ConfigError
from traces.strict.section import Section, read_section

MOST_PRICE = 1e6
"""The highest price of a GPU for an hour, in any currency."""
SHIPPED = Path(__file__).with_name("prices.yaml")


@dataclass(frozen=True, slots=True, kw_only=True)
class ListPrice:
    """A provider's price of an instance with ``gpus`` GPUs, dollars per hour, and where and when it was read."""

    gpu: str
    per_hour: float
    gpus: int
    offer: str
    provider: str
    url: str
    read: str

    @property
    def per_gpu_hour(self) -> float:
        """The price of one GPU for an hour, dollars."""
        return self.per_hour / self.gpus

    @property
    def source(self) -> str:
        """The provider's name, and the day of the list."""
        return f"list prices of {self.read}, {self.provider} ({self.url})"


@lru_cache(maxsize=1)
def list_prices() -> Mapping[str, ListPrice]:
    """Return the list prices that ship by the GPU's name; not every GPU has one."""
    rows = yaml.safe_load(SHIPPED.read_text())["prices"]
    return {row["gpu"]: ListPrice(**row) for row in rows}


def list_prices_per_hour() -> Mapping[str, float]:
    """Return the same as ``read_prices`` gives a user's own: dollars per GPU and hour."""
    return {name: price.per_gpu_hour for name, price in list_prices().items()}


def list_price_notes(gpus: Iterable[str]) -> list[str]:
    """Return which list prices these GPUs are counted with, and which of them have none."""
    names = list(dict.fromkeys(gpus))
    known = [list_prices()[name] for name in names if name in list_prices()]
    notes = []
    for source in dict.fromkeys(each.source for each in known):
        of_it = ", ".join(f"{each.gpu} {each.per_gpu_hour:g}" for each in known if each.source == source)
        notes.append(f"prices: {of_it} USD per GPU and hour on demand, {source}; --prices has yours")
    missing = [name for name in names if name not in list_prices()]
    if missing:
        notes.append(f"prices: no list price of {', '.join(missing)} is known: no cost without --prices")
    return notes


def read_prices(path: Path, *, what: str = "--prices") -> Mapping[str, float]:
    """Return the price of one GPU for an hour by the GPU's name, in the file's own currency.

    The file is YAML or JSON, ``H100: 2.5`` a line, with names or aliases of the table of GPUs. ``what`` names the
    path in an error. Raises ConfigError.
    """
    return prices_from(read_section(path, what=what))


MEMORY = "DRAM"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerPrices:
    """Prices per hour: of one GPU by its name, and of a GiB of host memory, None where nothing is said of it."""

    per_gpu: Mapping[str, float]
    per_gib: float | None = None


def read_server_prices(path: Path) -> ServerPrices:
    """Return the prices of a file of ``read_prices`` that may have a line ``DRAM: 0.004``, per GiB and hour, too.

    Raises ConfigError.
    """
    section = read_section(path, what="--prices")
    per_gib = None
    if MEMORY in section.nodes:
        value = section.decimal(MEMORY, expected="a price per GiB and hour")
        place = f"{section.file}:{section.key_lines[MEMORY]}"
        if value is None or float(value) > MOST_PRICE:
            expected = f"a price per GiB and hour, at most {MOST_PRICE:,.0f}"
            raise ConfigError(f"{MEMORY}: got {value}, expected {expected} ({place})")
        per_gib = float(value)
        section = replace(
            section, nodes={name: node for name, node in section.nodes.items() if name != MEMORY}
        )
    return ServerPrices(per_gpu=prices_from(section), per_gib=per_gib)


def prices_from(section: Section) -> Mapping[str, float]:
    """Return the prices that a mapping has, as ``read_prices`` does. Raises ConfigError."""
    prices: dict[str, float] = {}
    for name in section.nodes:
        place = f"{section.file}:{section.key_lines[name]}"
        if name.upper() == MEMORY:
            raise ConfigError(
                f"{name}: got the price of host memory, expected it as {MEMORY}, or GPUs only ({place})"
            )
        gpu = find_gpu(name, where=place).name
        value = section.decimal(name, expected="a price per GPU and hour")
        if value is None or not 0 < float(value) <= MOST_PRICE:
            expected = f"a price per GPU and hour > 0, of at most {MOST_PRICE:,.0f}"
            raise ConfigError(f"{name}: got {value}, expected {expected} ({place})")
        if gpu in prices:
            raise ConfigError(f"{name}: got {gpu} twice, expected it once ({place})")
        prices[gpu] = float(value)
    if not prices:
        raise ConfigError(f"{section.file}: got no price, expected lines like H100: 2.5 (per GPU and hour)")
    return prices
