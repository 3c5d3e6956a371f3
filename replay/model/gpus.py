"""The table of GPUs: what a device can do at best, by the name that people give it."""

from __future__ import annotations

import difflib
from decimal import Decimal
from functools import lru_cache
from lazy_dataclasses import dataclass, fields, replace
from pathlib import Path

from replay.model.shape import MatmulKind
from replay.numbers.argument_ranges import GbPerS, Gib, Tflops, Tops
from traces import ConfigError
from traces.strict.section import Section, read_section
from traces.strict.yaml_nodes import shown

SHIPPED = Path(__file__).with_name("gpus.yaml")
SCHEMA_VERSION = 1
USUAL_SMS, BLACKWELL = 132.0, 10
FLOPS_PER_EXPONENTIAL = 16
"""FLOPs outside the matrix units in the time of an exponential: 256 and 16 a clock and multiprocessor (CUDA C
programming guide, arithmetic instructions, compute capability 8.6 to 9.0)."""
FLOPS_PER_EXPONENTIAL_OF = {8.0: 8, 10.3: 8}
"""The same by compute capability: A100 and A30 have 128 FLOPs (the same table), Blackwell Ultra 32 exponentials
(developer.nvidia.com/blog/making-softmax-more-efficient-with-nvidia-blackwell-ultra)."""

RATES: dict[MatmulKind, str] = {
    "16bit": "tflops_16bit",
    "fp8": "tflops_fp8",
    "int8": "tops_int8",
    "fp4": "tflops_fp4",
}
"""The key of the rate that each kind of matrix product runs at."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One GPU at its best: GiB as CUDA reports them, GB/s, TFLOPS (dense), W; None where it has no such units.

    ``num_sms``: its streaming multiprocessors; ``compute_capability``: CUDA's, None of another vendor's.
    """

    name: str
    memory_gib: Gib
    bandwidth_gb_per_s: GbPerS
    tflops_16bit: Tflops
    link_gb_per_s: GbPerS
    source: str
    tflops_32bit: float | None = None
    tflops_fp8: Tflops | None = None
    tflops_fp4: Tflops | None = None
    tops_int8: Tops | None = None
    num_sms: float | None = None
    compute_capability: float | None = None
    tdp_w: float | None = None
    aliases: tuple[str, ...] = ()

    def is_called(self, name: str) -> bool:
        """Return whether this is its name or one of its aliases, letter case and marks aside."""
        return _plain(name) in [_plain(each) for each in (self.name, *self.aliases)]

    def flops_per_us(self, kind: MatmulKind) -> float:
        """Return the peak rate of a kind of matrix product; weights of a kind it lacks are computed in 16 bits."""
        rate = getattr(self, RATES[kind])
        return float(self.tflops_16bit if rate is None else rate) * 1e6

    def vector_flops_per_us(self) -> float:
        """Return the peak rate outside the matrix units; of a GPU that does not say, a sixteenth of the 16-bit rate."""
        rate = self.tflops_32bit
        return float(self.tflops_16bit / 16 if rate is None else rate) * 1e6

    def sms(self) -> float:
        """Return how many blocks of threads it computes side by side; of a GPU that does not say, the H100's 132."""
        return USUAL_SMS if self.num_sms is None else self.num_sms

    @property
    def is_blackwell(self) -> bool:
        """Return whether it runs the kernels of Blackwell's datacentre GPUs (compute capability 10)."""
        return self.compute_capability is not None and int(self.compute_capability) == BLACKWELL

    def exponentials_per_us(self) -> float:
        """Return the peak rate of its units for special functions."""
        ratio = FLOPS_PER_EXPONENTIAL_OF.get(self.compute_capability or 0.0, FLOPS_PER_EXPONENTIAL)
        return self.vector_flops_per_us() / ratio

    def bytes_per_us(self) -> float:
        """Return the peak bandwidth of its memory."""
        return self.bandwidth_gb_per_s * 1e3

    def link_bytes_per_us(self) -> float:
        """Return the peak bandwidth to its peers, one direction."""
        return self.link_gb_per_s * 1e3


TABLE_ONLY = ("tdp_w", "num_sms", "compute_capability")
"""The keys of a GPU that are numbers of the table, and no setting."""
NUMBERS = tuple(
    field.name for field in fields(Gpu) if field.name not in ("name", "source", "aliases", *TABLE_ONLY)
)
"""The keys of a GPU that are numbers and decide a step's time or its memory, as ``hardware:`` takes them too."""


@lru_cache(maxsize=1)
def shipped_gpus() -> tuple[Gpu, ...]:
    """Return the GPUs of the table that comes with vtwin."""
    root = read_section(SHIPPED)
    if root.integer("schema_version", least=1) != SCHEMA_VERSION:
        root.fail("schema_version", got="another", expected=str(SCHEMA_VERSION))
    return tuple(_row(section) for section in root.sections("gpus"))


def find_gpu(name: str, *, where: str = "--gpu") -> Gpu:
    """Return a GPU by its name or an alias, letter case aside. Raises ConfigError that names the nearest ones."""
    wanted = _plain(name)
    known: dict[str, Gpu] = {}
    for gpu in shipped_gpus():
        known |= {_plain(alias): gpu for alias in (gpu.name, *gpu.aliases)}
    if wanted in known:
        return known[wanted]
    raise ConfigError(
        f"{where}: got {name!r}, expected a GPU of the table ({gpus_like(name)}), or its numbers under `hardware`"
    )


def gpus_like(name: str) -> str:
    """Return the GPUs of the table whose names are most like one, and all of them, in words."""
    known = {_plain(alias): gpu.name for gpu in shipped_gpus() for alias in (gpu.name, *gpu.aliases)}
    near = difflib.get_close_matches(_plain(name), list(known), n=3, cutoff=0.4)
    nearest = ", ".join(dict.fromkeys(known[each] for each in near))
    every = f"all: {', '.join(gpu.name for gpu in shipped_gpus())}"
    return f"nearest: {nearest}; {every}" if near else every


def read_gpu(section: Section, *, base: Gpu | None) -> Gpu:
    """Return the GPU that a ``hardware`` mapping describes: one of the table, its numbers changed; or a new one.

    Raises ConfigError naming the number that a new one lacks and the GPUs whose numbers could stand in.
    """
    given = {key: _number(section, key) for key in NUMBERS if key in section}
    if base is not None:
        return replace(base, **given)  # type: ignore[arg-type]  # NUMBERS are the fields that are floats
    for key in ("memory_gib", "bandwidth_gb_per_s", "tflops_16bit"):
        if key not in given:
            section.fail(key, got="nothing", expected="a number, or `gpu: NAME` of the table to take it from")
    given.setdefault("link_gb_per_s", 32.0)  # PCIe 4: what a GPU without NVLink has
    return Gpu(name=section.text("name") or "custom", source=f"{section.file}", **given)  # type: ignore[arg-type]


def _row(section: Section) -> Gpu:
    section.refuse_unknown([field.name for field in fields(Gpu)])
    given = {key: _number(section, key) for key in (*NUMBERS, *TABLE_ONLY) if key in section}
    name, source = section.text("name"), section.text("source")
    return Gpu(name=str(name), source=str(source), aliases=section.texts("aliases"), **given)


def _number(section: Section, key: str) -> float:
    value = section.decimal(key, expected="a number > 0", least=Decimal("1e-9"))
    if value is None:
        section.fail(key, got=shown(section.nodes[key]), expected="a number > 0")
    return float(value)


def _plain(name: str) -> str:
    return "".join(letter for letter in name.lower() if letter.isalnum())
