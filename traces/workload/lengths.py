"""How long prompts and outputs are: the distributions that lengths are drawn from, as plain frozen data."""

from __future__ import annotations

import math
from lazy_dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Final

from traces.workload.basics import require

if TYPE_CHECKING:
    from traces.trace import Trace


def _require_finite(thing: object) -> None:
    for item in fields(thing):  # type: ignore[arg-type] # only called with dataclass instances
        value = getattr(thing, item.name)
        if isinstance(value, float):
            require(math.isfinite(value), f"{item.name}: got {value}, expected a finite number")


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounded:
    """Draws are clipped to [min, max] and rounded to whole tokens; ``max`` None: no upper bound."""

    min: int = 1
    max: int | None = None

    def __post_init__(self) -> None:
        """Check the bounds and every number."""
        _require_finite(self)
        require(self.min >= 0, f"min: got {self.min}, expected an integer >= 0")
        if self.max is not None:
            require(self.max >= self.min, f"max: got {self.max}, expected an integer >= min ({self.min})")


@dataclass(frozen=True, slots=True, kw_only=True)
class Gaussian(Bounded):
    """Normal(mean, std_dev), clipped; a std_dev of 0 is a constant."""

    mean: float
    std_dev: float

    def __post_init__(self) -> None:
        """Check that the mean lies within the bounds: else nearly every draw would be a bound."""
        Bounded.__post_init__(self)
        require(self.std_dev >= 0, f"std_dev: got {self.std_dev:g}, expected >= 0")
        inside = self.min <= self.mean <= (math.inf if self.max is None else self.max)
        bounds = f">= {self.min}" if self.max is None else f"in [min, max] = [{self.min}, {self.max}]"
        require(inside, f"mean: got {self.mean:g}, expected {bounds}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Exponential(Bounded):
    """Exponential with this mean."""

    mean: float

    def __post_init__(self) -> None:
        """Check the mean."""
        Bounded.__post_init__(self)
        require(self.mean > 0, f"mean: got {self.mean:g}, expected > 0")


@dataclass(frozen=True, slots=True, kw_only=True)
class Lognormal(Bounded):
    """exp(Normal(mu, sigma)): mu and sigma belong to the logarithm."""

    mu: float
    sigma: float

    def __post_init__(self) -> None:
        """Check sigma."""
        Bounded.__post_init__(self)
        require(self.sigma >= 0, f"sigma: got {self.sigma:g}, expected >= 0")


@dataclass(frozen=True, slots=True, kw_only=True)
class ParetoLognormal(Bounded):
    """Pareto(alpha, xm) with probability ``mix_weight``, else exp(Normal(mu, sigma)): a heavy tail."""

    alpha: float
    xm: float
    mu: float
    sigma: float
    mix_weight: float

    def __post_init__(self) -> None:
        """Check each parameter."""
        Bounded.__post_init__(self)
        require(self.alpha > 0, f"alpha: got {self.alpha:g}, expected > 0")
        require(self.xm > 0, f"xm: got {self.xm:g}, expected > 0")
        require(self.sigma >= 0, f"sigma: got {self.sigma:g}, expected >= 0")
        require(
            0 <= self.mix_weight <= 1, f"mix_weight: got {self.mix_weight:g}, expected a fraction in [0, 1]"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Constant:
    """Always ``value``."""

    value: int

    def __post_init__(self) -> None:
        """Check the value."""
        require(self.value >= 0, f"value: got {self.value}, expected an integer >= 0")


@dataclass(frozen=True, slots=True, kw_only=True)
class Empirical:
    """One of ``tokens``, in proportion to ``weights`` (they need not sum to 1)."""

    tokens: tuple[int, ...]
    weights: tuple[float, ...]

    def __post_init__(self) -> None:
        """Check that there is a value to draw."""
        require(
            len(self.tokens) == len(self.weights) > 0, "params: got none, expected tokens: probability pairs"
        )
        for token, weight in zip(self.tokens, self.weights, strict=True):
            require(token >= 0, f"{token}: got it as a token count, expected an integer >= 0")
            require(
                math.isfinite(weight) and weight >= 0, f"{token}: got {weight}, expected a probability >= 0"
            )
        require(sum(self.weights) > 0, "params: got probabilities that are all 0, expected one above 0")


@dataclass(frozen=True, slots=True, kw_only=True)
class Shares:
    """One of ``values`` in [0, 1], ascending, in proportion to ``weights``."""

    values: tuple[float, ...]
    weights: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Uniform:
    """Every whole number in [min, max] with equal probability."""

    min: int
    max: int

    def __post_init__(self) -> None:
        """Check the bounds."""
        require(self.min >= 0, f"min: got {self.min}, expected an integer >= 0")
        require(self.max >= self.min, f"max: got {self.max}, expected an integer >= min ({self.min})")


@dataclass(frozen=True, slots=True, kw_only=True)
class Zipf:
    """min + r - 1 with probability in proportion to r**-theta, r = 1 … max - min + 1."""

    min: int
    max: int
    theta: float

    def __post_init__(self) -> None:
        """Check the bounds and the exponent."""
        _require_finite(self)
        require(self.min >= 0, f"min: got {self.min}, expected an integer >= 0")
        most = self.min + ZIPF_MAX_RANKS - 1
        require(
            self.min <= self.max <= most, f"max: got {self.max}, expected an integer in [{self.min}, {most}]"
        )
        require(self.theta >= 0, f"theta: got {self.theta:g}, expected >= 0")


ZIPF_MAX_RANKS: Final = 10_000_000
"""The table of probabilities is as long as the range; this many take 80 MB."""

Distribution = Gaussian | Exponential | Lognormal | ParetoLognormal | Constant | Empirical | Uniform | Zipf


def require_lengths(distribution: Distribution) -> Distribution:
    """Return the distribution, whose draws are lengths: raise InvalidWorkload if one could be 0."""
    match distribution:
        case Constant():
            require(distribution.value >= 1, f"value: got {distribution.value}, expected an integer >= 1")
        case Empirical():
            least = min(distribution.tokens)
            require(least >= 1, f"{least}: got it as a token count, expected an integer >= 1")
        case _:
            require(distribution.min >= 1, f"min: got {distribution.min}, expected an integer >= 1")
    return distribution


@dataclass(frozen=True, slots=True, kw_only=True)
class Separate:
    """Prompt and output lengths drawn independently; the prompt's is without the shared prefix."""

    prompt: Distribution
    output: Distribution

    def __post_init__(self) -> None:
        """Check that no draw is empty."""
        require_lengths(self.prompt)
        require_lengths(self.output)


@dataclass(frozen=True, slots=True, kw_only=True)
class TotalSplit:
    """A total is drawn and split: output = ceil(total / (1 + ratio)), prompt = the rest, each at least 1.

    As Vidur's uniform and Zipf length generators do it.
    """

    total: Distribution
    prefill_to_decode_ratio: float

    def __post_init__(self) -> None:
        """Check the ratio, and that no draw is empty."""
        require_lengths(self.total)
        ratio = self.prefill_to_decode_ratio
        require(math.isfinite(ratio) and ratio > 0, f"prefill_to_decode_ratio: got {ratio:g}, expected > 0")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Recorded:
    """Requests of a trace, drawn whole: a row's lengths, sharing, class and tenant stay together.

    ``requests``: without outcomes, a session's rounds together. ``first_row``: where each session begins, the number of
    rows last; a request without a session counts as one. ``source``: the file's name, for errors. ``names_clients``: a
    drawn row keeps its own ``client_id``.
    """

    requests: Trace
    first_row: tuple[int, ...]
    source: str
    names_clients: bool = False

    @property
    def shares_prefixes(self) -> bool:
        """Whether the requests have information on what they share."""
        return any(self.requests.cells(name).is_known.any() for name in ("prefix_group", "prefix_hashes"))


Lengths = Separate | TotalSplit | Recorded
