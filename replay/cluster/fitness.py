"""Fitness: one weighted score of a run's own figures, to rank policies by; the figures stand beside it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Final, TypedDict

from traces import ConfigError, own_figure

THROUGHPUT_PER_S: Final = 100.0
TOKENS_PER_S: Final = 10_000.0
LATENCY_US: Final = 1000.0
"""References: a throughput as high, or a latency as long, scores one half. From the cluster's description (BLIS)."""
LATENCIES: Final = tuple(
    f"{statistic}_{metric}" for metric in ("ttft", "e2e") for statistic in ("mean", "p50", "p99")
)
NAMES: Final = ("throughput", "tokens_per_sec", *LATENCIES)


class FitnessTerm(TypedDict):
    """One objective: its weight, the figure itself (requests/s, tokens/s or µs; None: unknown), and its score."""

    weight: float
    value: float | None
    score: float


class Fitness(TypedDict):
    """The weighted sum of the scores, higher is better, and what it is made of."""

    score: float
    terms: dict[str, FitnessTerm]


def parse_weights(text: str) -> dict[str, float]:
    """Return the weights of ``throughput=0.5,p99_ttft=0.5``, or with BLIS's colons. Raises ConfigError."""
    weights: dict[str, float] = {}
    for part in text.split(","):
        name, equals, value = (each.strip() for each in part.replace(":", "=", 1).partition("="))
        if name not in NAMES or not equals:
            hint = own_figure(name)
            raise ConfigError(
                f"--fitness-weights: got {part.strip()!r}, expected NAME=WEIGHT with {', '.join(NAMES)}"
                f"{f'; {hint}' if hint else ''}"
            )
        if name in weights:
            raise ConfigError(f"--fitness-weights: got {name} twice, expected it once")
        try:
            weights[name] = float(value)
        except ValueError:
            weights[name] = math.nan
        if not 0 <= weights[name] < math.inf:
            raise ConfigError(f"--fitness-weights {name}: got {value!r}, expected a number >= 0")
    return weights


def fitness(summary: Mapping[str, Any], weights: Mapping[str, float]) -> Fitness:
    """Return the fitness of a summary: throughputs as v / (v + reference), latencies as 1 / (1 + v / 1 ms).

    A figure that is unknown scores 0. The scores compress differences: read the figures, too.
    """
    terms: dict[str, FitnessTerm] = {}
    for name, weight in weights.items():
        value = _figure(summary, name)
        score = 0.0 if value is None else _SCORES.get(name, _of_latency)(value)
        terms[name] = FitnessTerm(weight=weight, value=value, score=score)
    return Fitness(score=sum(term["weight"] * term["score"] for term in terms.values()), terms=terms)


def _figure(summary: Mapping[str, Any], name: str) -> float | None:
    if name == "throughput":
        value = summary["request_throughput"]
    elif name == "tokens_per_sec":
        value = summary["output_token_throughput"]
    else:
        statistic, _, metric = name.partition("_")
        value = summary[f"{metric}_us"][statistic]
    return None if value is None else float(value)


def _of_latency(value: float) -> float:
    return 1 / (1 + value / LATENCY_US)


_SCORES: Final[dict[str, Callable[[float], float]]] = {
    "throughput": lambda value: value / (value + THROUGHPUT_PER_S),
    "tokens_per_sec": lambda value: value / (value + TOKENS_PER_S),
}


def fitness_row(found: Fitness) -> tuple[str, str]:
    """Return the score and each of its terms."""
    terms = ", ".join(
        f"{name} {term['weight']:g} x {term['score']:.4g}" for name, term in found["terms"].items()
    )
    return ("fitness", f"{found['score']:.4g} ({terms})")
