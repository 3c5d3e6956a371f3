"""Exit code 1 where too few requests meet the SLO: the same two options for every command that has ``--slo``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated

import typer

from traces.errors import ExitCode
from traces.strict.option_table import option_table

if TYPE_CHECKING:
    from traces.slo import Goodput
    from traces.trace import Trace

STRICT = 0.99
"""The share of requests from which on an SLO is kept: the sentence above a run's numbers names the same."""
NO_LIMITS = "--strict-slo, --fail-below: got no latency limit, expected --slo LIMITS, or a trace with limits of its own"


@option_table
class SloGate:
    """Whether an SLO that is missed is a failure."""

    strict_slo: Annotated[
        bool,
        typer.Option(
            "--strict-slo",
            help="Exit code 1 if the SLO is missed: fewer than 99 % of the requests meet all limits. Needs --slo, or "
            "limits in the trace.",
        ),
    ] = False
    fail_below: Annotated[
        str | None,
        typer.Option(
            "--fail-below",
            metavar="PERCENT",
            help="As --strict-slo, with a share of your own: 95%.",
        ),
    ] = None

    def __post_init__(self) -> None:
        """Refuse a share that is none, at once."""
        _ = self.least

    @property
    def least(self) -> float | None:
        """The least share of requests that must meet the SLO, None without a gate. Raises ConfigError."""
        if self.fail_below is None:
            return STRICT if self.strict_slo else None
        return _share(self.fail_below)

    def needs_limits(self, trace: Trace, slo_us: Mapping[str, float]) -> None:
        """Raise ConfigError where there is a gate, and neither ``slo_us`` nor the trace has limits to check."""
        if self.least is None:
            return
        from traces.errors import ConfigError
        from traces.slo import limits_of

        if not limits_of(trace, slo_us):
            raise ConfigError(NO_LIMITS)

    def check(self, found: Mapping[str, Goodput | None]) -> None:
        """Print a line for each result, by its name, that misses the SLO, and raise typer.Exit: 1, or 5 if unknown.

        The only one has the name "".
        """
        from traces.strict.tell import tell

        least = self.least
        if least is None:
            return
        for name, good in found.items():
            if good is None or good["good_frac"] is None:
                tell(f"{name and name + ': '}no request has every latency that the SLO limits: exit code 5")
        known = {name: each["good_frac"] for name, each in found.items() if each is not None}
        missed = {name: share for name, share in known.items() if share is not None and share < least}
        for name, share in missed.items():
            tell(
                f"{name and name + ': '}the SLO is missed: {100 * share:.4g} % of the requests meet it, "
                f"expected at least {100 * least:.4g} %: exit code 1"
            )
        if missed:
            raise typer.Exit(ExitCode.NEGATIVE)
        if None in known.values():
            raise typer.Exit(ExitCode.INCONCLUSIVE)


def _share(text: str) -> float:
    """Return the share of ``95%`` or ``0.95``. Raises ConfigError."""
    from traces.errors import ConfigError

    number = text.strip().removesuffix("%")
    try:
        value = float(number) / (100 if text.strip().endswith("%") else 1)
    except ValueError:
        value = -1.0
    if not 0 < value <= 1:
        raise ConfigError(f"--fail-below: got {text!r}, expected a share of the requests: 95% or 0.95")
    return value
