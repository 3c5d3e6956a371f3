"""defaults.yaml: fitted coefficients on record, by model, GPU, tensor parallelism and vLLM version."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Mapping, Sequence
from decimal import Decimal
from functools import lru_cache
from lazy_dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Literal, get_args

from replay.twin.fitted.fitted_tiles import Pairs, read_tiles
from replay.twin.keys.key import keys_of_fields
from replay.twin.keys.latency_keys import EXTENDED_MEANINGS
from replay.twin.keys.read_keys import refuse_missing, values_of
from sim import InvalidConfig
from sim.latency import ALPHAS, Blackbox, Extended
from traces.strict.arguments import PATH, takes
from traces.strict.section import Section, read_section
from traces.strict.yaml_nodes import shown

Identification = Literal["weak", "partial", "good"]
FittedModel = Literal["blackbox", "extended"]
"""The latency models whose coefficients are put on record: those that are fitted to one server."""

COEFFICIENTS = (*ALPHAS, "beta0", "beta1", "beta2")
USUALLY_ZERO = ("alpha3",)
"""Coefficients that files of others, and older files, do not have."""
"""The blackbox's six numbers, in microseconds (see docs/reference/config.md)."""

SHIPPED = Path(__file__).with_name("defaults.yaml")
SCHEMA_VERSION = 1

_NEAREST_SHOWN = 3
_EXPECTED = "a number of microseconds >= 0"


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """Where an entry's numbers come from, and how far to trust them.

    ``date`` is YYYY-MM-DD. ``identification``: ``weak`` when other coefficients would have fitted as well,
    ``partial`` when some are, ``good`` when the traces tell all six apart. ``errors`` are named numbers,
    such as ``ttft_mape: 0.08``, on the traces the entry was judged by. ``low`` and ``high`` bound the coefficients.
    ``async_scheduling``: the way of scheduling they were fitted with. ``digests``: SHA-256 of the traces' tables, in
    the order of ``traces``.
    """

    source: str
    date: str
    identification: Identification
    traces: tuple[str, ...] = ()
    errors: Mapping[str, float] = field(default_factory=dict)
    low: Mapping[str, float] = field(default_factory=dict)
    high: Mapping[str, float] = field(default_factory=dict)
    digests: tuple[str, ...] = ()
    async_scheduling: bool | None = None
    system_fingerprint: str | None = None
    tool_version: str | None = None
    note: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DefaultsEntry:
    """One server's coefficients; ``num_gpu_blocks`` as vLLM counts, of ``block_size`` tokens each.

    ``coefficients``: blackbox's six, and with ``latency_model`` extended those of its own that are not at their
    default, in the units of ``sim.Extended``. ``blackbox``: the same server's six for ``model: blackbox``, where
    ``coefficients`` are the extended model's; ``tiles``: what that has beside them.
    """

    model: str
    gpu: str
    tp: int
    vllm_version: str
    coefficients: Mapping[str, Decimal]
    provenance: Provenance
    latency_model: FittedModel = "blackbox"
    blackbox: Mapping[str, Decimal] | None = None
    num_gpu_blocks: int | None = None
    block_size: int | None = None
    tiles: Pairs = ()

    @property
    def key(self) -> tuple[str, str, int, str]:
        """The key by which an entry is found; letter case does not count."""
        return (self.model.lower(), self.gpu.lower(), self.tp, version_text(self.vllm_version))

    def latency(self, *, seed: int = 0) -> Blackbox:
        """Return the entry's latency model; ``seed`` is that of the extended model's scatter."""
        if self.latency_model == "blackbox":
            return Blackbox(**self.coefficients)
        own = {name: float(value) for name, value in self.coefficients.items() if name in EXTENDED_MEANINGS}
        others = {name: value for name, value in self.coefficients.items() if name in COEFFICIENTS}
        return Extended(**others, **own, seed=seed, tiles=self.tiles)  # type: ignore[arg-type]  # decimals are numbers

    def __str__(self) -> str:
        """Return the entry's name as messages quote it."""
        return f"{self.model} on {self.gpu} tp={self.tp} vLLM {self.vllm_version}"


def nearest_entries(
    entries: Sequence[DefaultsEntry], model: str, gpu: str, *, tp: int, vllm_version: str | None = None
) -> list[DefaultsEntry]:
    """Return the three entries most like the requested one: by model first, then GPU, tp and version."""
    version = version_number(vllm_version) if vllm_version else None

    def unlikeness(entry: DefaultsEntry) -> tuple[float, bool, float, bool]:
        alike = difflib.SequenceMatcher(None, entry.model.lower(), model.lower()).ratio()
        return (
            round(1 - alike, 2),
            entry.gpu.lower() != gpu.lower(),
            abs(math.log2(entry.tp) - math.log2(tp)),
            version is not None and version_number(entry.vllm_version) != version,
        )

    return sorted(entries, key=unlikeness)[:_NEAREST_SHOWN]


@lru_cache(maxsize=1)
def shipped_defaults() -> tuple[DefaultsEntry, ...]:
    """Return the entries that come with vtwin."""
    return read_defaults(SHIPPED)


@takes(path=PATH)
def read_defaults(path: str | Path) -> tuple[DefaultsEntry, ...]:
    """Return a defaults file's entries in its order. Raises ConfigError, also on two entries with one key."""
    root = read_section(Path(path))
    root.refuse_unknown(("schema_version", "entries"))
    if root.integer("schema_version", least=1) != SCHEMA_VERSION:
        got = "nothing" if "schema_version" not in root else str(root.integer("schema_version", least=1))
        root.fail("schema_version", got=got, expected=str(SCHEMA_VERSION))
    seen: dict[tuple[str, str, int, str], DefaultsEntry] = {}
    for section in root.sections("entries"):
        entry = _entry(section)
        if entry.key in seen:
            section.fail(
                "model", got=f"a second entry for {entry}", expected="one (older ones go to history)"
            )
        seen[entry.key] = entry
    return tuple(seen.values())


def version_text(version: str) -> str:
    """Return a version without the trimmings of an image tag: ``vllm/vllm-openai:v0.8.4`` is ``0.8.4``."""
    return version.rsplit(":", 1)[-1].strip().lower().removeprefix("v")


def version_number(version: str) -> tuple[int, ...]:
    """Return a version's leading numbers, to compare by: ``0.10.1.1`` is (0, 10, 1, 1)."""
    match = re.match(r"\d+(\.\d+)*", version_text(version))
    return tuple(int(part) for part in match.group().split(".")) if match else ()


def read_coefficients(section: Section, *, also: tuple[str, ...] = ()) -> dict[str, Decimal]:
    """Return blackbox's coefficients of a ``coefficients`` mapping, which may have keys ``beside`` them.

    Raises ConfigError when one is missing or another key is there.
    """
    section.refuse_unknown((*COEFFICIENTS, *also))
    values: dict[str, Decimal] = {}
    for name in COEFFICIENTS:
        value = section.decimal(name, expected=_EXPECTED)
        if value is None and name in USUALLY_ZERO:
            value = Decimal(0)
        if value is None:
            section.fail(name, got="nothing", expected=_EXPECTED)
        try:
            Blackbox(**{name: value})
        except InvalidConfig as error:
            section.fail(name, got=shown(section.nodes[name]), expected=str(error).partition("expected ")[2])
        values[name] = value
    return values


def read_extended_coefficients(section: Section) -> dict[str, Decimal]:
    """Return blackbox's six coefficients, and those that only the extended model has as far as they are given."""
    six = read_coefficients(section, also=tuple(EXTENDED_MEANINGS))
    own = {name: section.decimal(name, expected="a number >= 0") for name in EXTENDED_MEANINGS}
    return six | {name: value for name, value in own.items() if value is not None}


def _entry(section: Section) -> DefaultsEntry:
    section.refuse_unknown([*(each.name for each in fields(DefaultsEntry)), "history"])
    is_extended = section.text("latency_model", choices=get_args(FittedModel)) == "extended"
    coefficients = section.section("coefficients")
    provenance = section.section("provenance")
    if coefficients is None or provenance is None:
        missing = "coefficients" if coefficients is None else "provenance"
        section.fail(missing, got="nothing", expected="a mapping")
    tp = section.integer("tp", least=1)
    if tp is None:
        section.fail("tp", got="nothing", expected="an integer >= 1")
    return DefaultsEntry(
        model=_required(section, "model"),
        gpu=_required(section, "gpu"),
        tp=tp,
        vllm_version=_required(section, "vllm_version"),
        coefficients=read_extended_coefficients(coefficients)
        if is_extended
        else read_coefficients(coefficients),
        latency_model="extended" if is_extended else "blackbox",
        blackbox=None if (beside := section.section("blackbox")) is None else read_coefficients(beside),
        num_gpu_blocks=section.integer("num_gpu_blocks", least=2),
        block_size=section.integer("block_size", least=1),
        tiles=read_tiles(section) if is_extended else (),
        provenance=_provenance(provenance),
    )


def _provenance(section: Section) -> Provenance:
    keys = keys_of_fields("provenance", Provenance)
    section.refuse_unknown([key.name for key in keys])
    if "identification" not in section:
        levels = get_args(Identification)
        section.fail("identification", got="nothing", expected=f"one of {', '.join(levels)}")
    refuse_missing(section, Provenance, expected="text")
    parts = {name: section.section(name) for name in ("errors", "low", "high")}
    given = values_of(section, keys)
    return Provenance(
        **given | {name: _errors(part) for name, part in parts.items() if part is not None},
        traces=section.texts("traces"),
        digests=section.texts("digests"),
    )


def _errors(section: Section) -> dict[str, float]:
    lowest = Decimal("-1e9")  # a signed relative error may be negative
    values = {name: section.decimal(name, expected="a number", least=lowest) for name in section.nodes}
    return {name: float(value) for name, value in values.items() if value is not None}


def _required(section: Section, key: str) -> str:
    value = section.text(key)
    if value is None:
        section.fail(key, got="nothing", expected="text")
    return value
