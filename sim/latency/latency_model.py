"""What every latency model is to the engine: delays on the way in and out, and how a step's duration is computed."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from decimal import ROUND_HALF_EVEN, Decimal
from enum import Enum
from functools import lru_cache
from lazy_dataclasses import dataclass, field, fields
from types import MappingProxyType
from typing import Any, ClassVar, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from sim.config import InvalidConfig
from sim.latency.batch import StepBatch

Number = str | int | float | Decimal
Int64s = NDArray[np.int64]
Value = TypeVar("Value")

SCALE = 1_000_000
"""Coefficients are kept to 10⁻⁶ µs, as integers, so that a tie is a tie on every machine."""

ALPHAS = ("alpha0", "alpha1", "alpha2", "alpha3")
"""The ways in and out of the engine."""

BLACKBOX, EXTENDED, TABULATED, PROFILED = 0, 1, 2, 3
"""Kinds of steps that the engine computes: exact integers; Extended's formula; a table by tokens, and attention; four
tables."""

LARGEST_US = {
    "alpha0": 10**9,
    "alpha1": 10**6,
    "alpha2": 10**6,
    "alpha3": 10**6,
    "beta0": 10**9,
    "beta1": 10**6,
    "beta2": 10**6,
}
"""Beyond 1000 s, or 1 s per token, is a mistake of unit; times nine million tokens it would overflow int64."""

HANDED_ON_US = 100.0
"""How long a front end takes for each output that it hands on, about: 125 µs before an H100 (docs/validation.md)."""


NO_COEFFICIENTS = ("peak", "seed", "tiles")
"""Fields of models that TWIN.yaml gives beside the coefficients."""


class Fitting(Enum):
    """How a fit finds the coefficients of a model.

    ``NOT``: they stay as configured. ``FREELY``: from the traces, where nothing is known of them before. ``NEARBY``:
    near those that are configured, each as far from there as its prior allows.
    """

    NOT = "not"
    FREELY = "freely"
    NEARBY = "nearby"


@dataclass(frozen=True, slots=True)
class CoefficientFacts:
    """What is said of one coefficient, beside the field that holds it.

    ``unit``: as reports show it. ``meaning``: on the reference page of TWIN.yaml; empty of one that it does not list.
    ``default``: as that page tells it, where it is not the field's. ``most``: the largest value that a fit tries.
    ``prior``: its plausible error, the standard deviation of its log; None of a choice, which no fit varies.
    """

    unit: str
    meaning: str = ""
    default: str | None = None
    most: float = np.inf
    prior: float | None = None


def coefficient(
    default: Value,
    unit: str,
    meaning: str = "",
    *,
    told: str | None = None,
    most: float = np.inf,
    prior: float | None = None,
) -> Value:
    """Return the field of a coefficient, with what is said of it; ``told``: the default as the reference tells it."""
    made: Value = field(
        default=default, metadata={"said": CoefficientFacts(unit, meaning, told, most, prior)}
    )
    return made


def exact(
    name: str, unit: str, meaning: str, *, told: str | None = "required", prior: float | None = None
) -> Number:
    """Return the field of a coefficient that the engine has in whole 10⁻⁶ µs (``scaled``), 0 unless given."""
    default: Number = 0
    return coefficient(default, unit, meaning, told=told, most=LARGEST_US[name], prior=prior)


def check_not_negative(name: str, value: float) -> None:
    """Raise InvalidConfig on a number that is negative, or none."""
    if not np.isfinite(value) or value < 0:
        raise InvalidConfig(f"{name}: got {value!r}, expected a number >= 0")


def scaled(value: Number, name: str) -> int:
    """Return a coefficient in 10⁻⁶ µs, rounded half to even; raise InvalidConfig on what is not one."""
    try:
        number = _millionths(value)
    except (ArithmeticError, ValueError, TypeError) as error:
        raise InvalidConfig(f"{name}: got {value!r}, expected a number of µs") from error
    if not 0 <= number <= LARGEST_US[name] * SCALE:
        raise InvalidConfig(f"{name}: got {value!r}, expected 0 to {LARGEST_US[name]:,} µs")
    return number


@lru_cache(1024)
def _millionths(value: Number) -> int:
    """Return a number in 10⁻⁶, rounded half to even; a fit asks for the same few a million times."""
    decimal = Decimal(repr(value)) if isinstance(value, float) else Decimal(value)
    return int((decimal * SCALE).to_integral_value(ROUND_HALF_EVEN))


def token_delay(alpha2: int, token_number: Any) -> Any:  # noqa: ANN401 - of a number or of an array, compiled too
    """Return how long after its step the k-th token, k from 1, is seen, in the unit of alpha2: said here alone."""
    return alpha2 * token_number


def divided_half_even(value: Int64s) -> Int64s:
    """Return value / SCALE, an even number, rounded half to even; values must not be negative."""
    if not value.any():  # as of most models: to divide takes ten times as long
        return np.zeros(value.shape, np.int64)
    raised = value + SCALE // 2
    rounded: Int64s = raised // SCALE
    rounded -= (rounded * SCALE == raised) & (rounded & 1)
    return rounded


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyModel:
    """The way in and out of the engine, which all models share; what a step takes, each says itself.

    A request joins the queue ``alpha0 + alpha1·prompt tokens`` µs after it arrives; its k-th output token is seen
    ``k·alpha2`` after its step, the first one another ``alpha3·place`` later: a server's front end hands on the outputs
    of a step one after another, and a request that is new is among the last of them. Each is rounded once, half to
    even. Raises InvalidConfig on a negative or endless one.

    ``fitting``: how its coefficients are found; ``fit_terms``: those that a free fit varies beside blackbox's, and
    ``first_guesses``, µs, where a fit begins with those that are 0. ``has_operators``: whether it knows of them.
    ``in_words``: how long a step takes, a sentence.
    """

    fitting: ClassVar[Fitting] = Fitting.NOT
    fit_terms: ClassVar[tuple[str, ...]] = ()
    first_guesses: ClassVar[Mapping[str, float]] = MappingProxyType({})
    has_operators: ClassVar[bool] = False
    in_words: ClassVar[str] = ""

    alpha0: Number = exact("alpha0", "µs", "µs from a request's arrival until it joins the queue.", prior=0.7)
    alpha1: Number = exact(
        "alpha1", "µs/prompt token", "The same, per prompt token (prefix included).", prior=0.7
    )
    alpha2: Number = exact(
        "alpha2",
        "µs/output token",
        "µs per output token: the k-th is seen k·alpha2 after its step; the clock does not move.",
        prior=0.7,
    )
    alpha3: Number = exact(
        "alpha3",
        "µs/output of its step",
        "µs per output: the front end hands on a step's outputs one after another, and the first token of "
        "a request comes after those of the requests that were there before. Every first token is seen so much "
        "later, times its place among its step's outputs.",
        told=None,
        prior=0.7,
    )

    def __post_init__(self) -> None:
        """Check the four."""
        for name in ALPHAS:
            scaled(getattr(self, name), name)

    @classmethod
    def coefficients(cls) -> dict[str, CoefficientFacts]:
        """Return what is said of the model's coefficients, by name, in the order of its fields."""
        return {each.name: each.metadata["said"] for each in fields(cls) if "said" in each.metadata}

    @classmethod
    def coefficient_names(cls) -> tuple[str, ...]:
        """Return the names of the coefficients that TWIN.yaml gives, in the order of the fields."""
        return tuple(each.name for each in fields(cls) if each.name not in NO_COEFFICIENTS)

    @property
    def goes_by_gpu(self) -> bool:
        """Whether steps follow from the model and its GPU; fitted coefficients are those of a whole server."""
        return hasattr(self, "peak")

    @property
    def table_file(self) -> str | None:
        """The file that its step times come from, if they do."""
        return None

    @property
    def scatter(self) -> float:
        """How step times scatter: the standard deviation of their log."""
        return 0.0

    @property
    def tile_factors(self) -> tuple[tuple[int, float], ...]:
        """How much longer products take than a smooth curve says: (tokens of a step, factor)."""
        return ()

    def describes(self, name: str) -> bool:
        """Return whether this server has the part that a coefficient is about."""
        return name in self.coefficients()

    def scattered(self, sigma: float, *, seed: int | None = None) -> Self:  # noqa: ARG002 - for those that scatter
        """Return the model whose step times scatter by ``sigma``; itself where it has no scatter.

        ``seed``: None leaves the model's own.
        """
        return self

    def with_terms(self, names: Collection[str]) -> Self:  # noqa: ARG002 - for those that have terms
        """Return the model with those of ``fit_terms`` alone, the others at the value that leaves them out."""
        return self

    def with_tiles(self, tiles: tuple[tuple[int, float], ...]) -> Self:  # noqa: ARG002 - for those that have tiles
        """Return the model with other factors of its products; itself where it has none."""
        return self

    def unpadded(self) -> Self:
        """Return the model of an engine without CUDA graphs, which pads no step to the size of one."""
        return self

    def operators(self, batch: StepBatch) -> dict[str, NDArray[np.float64]] | None:  # noqa: ARG002 - for those that know
        """Return what each operator takes of each step [n], float64 µs; None where it knows of none.

        Without scatter, and unrounded.
        """
        return None

    @property
    def engine_kind(self) -> int:
        """Which of its ways of computing a step the engine takes: BLACKBOX, EXTENDED, TABULATED or PROFILED."""
        raise NotImplementedError

    @property
    def least_step_us(self) -> int:
        """µs that no step with tokens is shorter than, whatever is in it; 0 where that is not known."""
        return 0

    @property
    def is_blackbox(self) -> bool:
        """Whether steps are computed in exact integers."""
        return self.engine_kind == BLACKBOX

    def engine_coefficients(self) -> Int64s:
        """Return (beta0, beta1, beta2, alpha2, alpha3) in 10⁻⁶ µs, as the engine takes them."""
        delays = [scaled(getattr(self, name), name) for name in ("alpha2", "alpha3")]
        return np.array([0, 0, 0, *delays], dtype=np.int64)

    def engine_terms(self) -> NDArray[np.float64]:
        """Return what the engine's float path reads, in the layout of its kind."""
        raise NotImplementedError

    def durations_us(self, batch: StepBatch) -> Int64s:
        """Return what steps take after a long idle time, without scatter, int64 µs: what the engine does, in numpy."""
        raise NotImplementedError

    def queue_delay_us(self, prompt_tokens: Int64s) -> Int64s:
        """Return how long after their arrival requests join the queue, int64 µs."""
        delay = scaled(self.alpha0, "alpha0") + scaled(self.alpha1, "alpha1") * prompt_tokens.astype(np.int64)
        return divided_half_even(delay)

    def output_delay_us(self, token_number: Int64s) -> Int64s:
        """Return how long after its step the k-th token (k from 1) is seen, int64 µs."""
        return divided_half_even(token_delay(scaled(self.alpha2, "alpha2"), token_number.astype(np.int64)))
