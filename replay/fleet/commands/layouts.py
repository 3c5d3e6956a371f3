"""What ``vtwin fleet size`` is asked for: which layout, one or several rates and profiles, and with which options."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final, Literal

from traces import ConfigError
from traces.workload import flag

if TYPE_CHECKING:
    from pathlib import Path

    from replay.fleet.commands.options import (
        DemandOptions,
        LengthOptions,
        NodeOptions,
        ReserveOptions,
        SizeOptions,
    )
    from replay.fleet.demand import FleetCheck, FleetDemand

Form = Literal["one-pool", "compare", "split", "thresholds", "disagg", "pools"]
SAID: Final[dict[Form, str]] = {
    "one-pool": "--layout one-pool",
    "compare": "--compare",
    "split": "--split TOKENS",
    "thresholds": "--layout split without --split TOKENS",
    "disagg": "--layout disagg",
    "pools": "--layout pools",
}
"""What to give for each form of the question."""
BY_FORMULA: Final[tuple[Form, ...]] = ("compare", "thresholds")
"""Forms that simulate nothing unless it is asked for."""
_SIMULATED: Final[tuple[Form, ...]] = ("one-pool", "split", "disagg", "pools")
_ONLY: Final[dict[str, tuple[Form, ...]]] = {
    "pools_file": ("pools",),
    "profile": ("one-pool", "compare", "split", "thresholds", "disagg"),
    "context": ("one-pool", "compare", "split", "thresholds", "disagg"),
    "compare": ("compare",),
    "compress": ("thresholds", "pools"),
    **dict.fromkeys(("router", "labels", "spill"), ("pools",)),
    **dict.fromkeys(
        ("alpha_prefill", "alpha_decode", "beta_ttft", "kv_bandwidth", "kv_bytes_per_token", "beside"),
        ("disagg",),
    ),
    **dict.fromkeys(("measure", "arrival", "burstiness"), _SIMULATED),
    **dict.fromkeys(("verify", "num_requests", "seed"), (*_SIMULATED, "compare")),
    "smallest": ("one-pool", "split"),
    "report": ("one-pool", "split", "pools"),
}
"""Options that not every form has, and the forms that have them."""


def form_of(asked: SizeOptions) -> Form:
    """Return which form of the question is asked. Raises ConfigError on an option that it does not have."""
    layout = asked.layout or _implied(asked)
    rates, profiles = rates_of(asked), (asked.profile or "").split(",")
    form: Form = layout
    if layout == "one-pool" and (asked.compare or len(rates) > 1 or len(profiles) > 1):
        form = "compare"
    elif layout == "split" and asked.split.split is None:
        form = "thresholds"
    _check(asked, form)
    if form != "compare" and len(rates) > 1:
        raise ConfigError(f"--rate: got {len(rates)} with {SAID[form]}, expected one")
    if form == "pools" and asked.pools_file is None:
        raise ConfigError("--layout pools: got no POOLS.yaml, expected the file of the pools")
    if form != "pools" and asked.profile is None:
        raise ConfigError("--profile: got none, expected what a GPU can do (A100, MODEL@GPU:TP, TWIN.yaml)")
    return form


def _implied(asked: SizeOptions) -> Literal["one-pool", "split", "pools"]:
    if asked.pools_file is not None:
        return "pools"
    return "one-pool" if asked.split.split is None else "split"


def _check(asked: SizeOptions, form: Form) -> None:
    """Raise ConfigError on an option that a form does not have."""
    if asked.split.split is not None and form != "split":
        raise ConfigError(f"--split: got it with {SAID[form]}, expected --layout split")
    tables = (asked, asked.split, asked.disagg, asked.pools, asked.lengths, asked.arrivals)
    for name, forms in _ONLY.items():
        given = next(getattr(table, name) for table in tables if hasattr(table, name))
        if form not in forms and given not in (None, False):
            said = "POOLS.yaml" if name == "pools_file" else flag(name)
            raise ConfigError(
                f"{said}: got it with {SAID[form]}, expected {' or '.join(SAID[each] for each in forms)}"
            )


def rates_of(asked: SizeOptions) -> list[float]:
    """Return the rates, requests/s. Raises ConfigError."""
    from replay.fleet.inputs.fleet_ranges import RATES, in_range

    return [in_range("--rate", each, RATES) for each in numbers_of(asked.rate, "--rate")]


def with_defaults(asked: SizeOptions, form: Form) -> SizeOptions:
    """Return the options with the defaults that depend on the form."""
    number = 50_000 if form in ("one-pool", "split", "disagg") else 20_000
    return replace(
        asked,
        verify=form not in BY_FORMULA if asked.verify is None else asked.verify,
        smallest=asked.smallest is not False,
        num_requests=number if asked.num_requests is None else asked.num_requests,
        seed=1 if asked.seed is None else asked.seed,
    )


def check_of(asked: SizeOptions) -> FleetCheck:
    """Return how the fleet is simulated."""
    from replay.fleet.demand import FleetCheck

    return FleetCheck(
        verify=bool(asked.verify),
        num_requests=asked.num_requests or 0,
        seed=asked.seed or 0,
        smallest=bool(asked.smallest),
        measure=asked.arrivals.measure,
        arrival=asked.arrivals.arrival,
        burstiness=asked.arrivals.burstiness,
    )


def demand_of(
    asked: SizeOptions | ReserveOptions | DemandOptions,
    lengths: LengthOptions,
    nodes: NodeOptions,
    *,
    prices: Path | None = None,
    most: int | None = 2,
) -> FleetDemand:
    """Return what is sized, of at most so many profiles. Raises ConfigError, or TraceError on a bad workload."""
    from replay.fleet.demand import fleet_demand

    assert asked.profile is not None  # noqa: S101 - form_of has looked
    return fleet_demand(
        asked.workload,
        asked.slo,
        asked.profile,
        context=lengths.context,
        output_frac=lengths.output_frac,
        total_tokens_max=lengths.total_tokens_max,
        availability=nodes.availability,
        failures=nodes.failures,
        utilization_cap=nodes.utilization_cap,
        prices=prices,
        most=most,
    )


def factors_of(asked: SizeOptions, *, default: str) -> list[float]:
    """Return how many times too long prompts may be that are cut. Raises ConfigError."""
    return numbers_of(default if asked.split.compress is None else asked.split.compress, "--compress")


def numbers_of(text: str, option: str) -> list[float]:
    """Return an option's numbers, commas between. Raises ConfigError."""
    try:
        numbers = [float(each) for each in text.split(",")]
    except ValueError:
        numbers = []
    if not numbers or any(not 0 < each < float("inf") for each in numbers):
        raise ConfigError(f"{option}: got {text!r}, expected numbers > 0 with commas between")
    return numbers
