"""The ranges of what both a function of ``replay`` and an option take: each is said here, and both refer to it."""

from __future__ import annotations

from lazy_dataclasses import dataclass
from typing import Annotated, Final

from traces.strict.arguments import Count, Number, OfClass
from traces.strict.limits import MOST_REQUESTS, MOST_TOKENS, MOST_US


@dataclass(frozen=True, slots=True, kw_only=True)
class Within:
    """What a setting's type says beyond its kind: the least above 0, the most, and the unit of both."""

    least: float
    most: float
    unit: str = ""


RATE: Final = Number(1e-6, 1e6)
"""Requests per second: one in eleven days, to a million."""
FACTOR: Final = Number(1e-6, 1e6)
"""The factor by which a twin's steps are longer."""
AVAILABILITY: Final = Number(0.01, 1.0)
JOBS: Final = Count(1, 1024)
SEEDS: Final = Count(1, 50)
BEST: Final = Count(1, 50)
"""How many candidates are shown."""
GPUS: Final = Count(1, 65_536)
"""That share a layer."""
GpuCount = Annotated[int, Within(least=1, most=65_536)]
GbPerS = Annotated[float, Within(least=1e-6, most=1e9, unit="GB/s")]
Tflops = Annotated[float, Within(least=1e-6, most=1e9, unit="TFLOPS")]
Tops = Annotated[float, Within(least=1e-6, most=1e9, unit="TOPS")]
Gib = Annotated[float, Within(least=1e-3, most=1e6, unit="GiB")]
PartOfStepUs = Annotated[float, Within(least=0, most=1e9, unit="µs")]
PORT: Final = Count(0, 65_535)
TOKEN_SIDE: Final = Count(1, 1024)
"""Pixels."""
TOKEN_SECONDS: Final = Number(0.001, 1)
"""Of sound."""
CONCURRENCY: Final = Count(1, MOST_REQUESTS)
USERS: Final = Count(0, MOST_REQUESTS)
"""0: as many as there are sessions."""
TOKENS: Final = Count(1, MOST_TOKENS)
LOOKAHEAD: Final = Count(0, 1024)
"""Tokens behind a block that belong to its content."""
TIME_US: Final = Count(0, MOST_US)
THINK_TIME_S: Final = Number(0, MOST_US / 1e6)
FLEET_REQUESTS: Final = Count(1000, 1_000_000)
"""The fewest of a fleet's simulation; it takes more where queues need longer."""
PROMPTS: Final = Count(1, 1_000_000)
SAMPLES: Final = Count(1, 1_000_000)
SHARE: Final = Number(1e-6, 1)
"""The share of its answers with which a batch ends."""
TIMES: Final = Number(1, 10)
"""How often samples may be drawn for one that is answered."""
BATCHES: Final = Count(1, 10_000)

LOAD: Final = OfClass(("Trace", "WorkloadOptions"), "a trace, or options of a workload")
WORKLOAD: Final = OfClass(("WorkloadOptions",), "options of a workload")
LENGTHS: Final = OfClass(("Trace", "Lengths", "PurePath", "str"), "a trace, lengths, or the file of either")
NAMES: Final = OfClass(("str", "PurePath", "Sequence", "list", "tuple"), "names or paths")
