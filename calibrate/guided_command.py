"""``calibrate --fit-guided``: what grammars cost, shown and written."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from traces.errors import ConfigError

if TYPE_CHECKING:
    from calibrate.fit.guided import GuidedCost


def fit_guided_cost(
    runs: tuple[Path, Path],
    config: Path | None,
    report: Path,
    *,
    write_config: Path | None,
    as_json: bool,
    seed: int,
) -> None:
    """Fit the cost of grammars to a pair of runs (with, without), print it, and write it: report/guided.json, a twin.

    Raises ConfigError without a twin.
    """
    from calibrate.fit.guided import fit_guided
    from replay import dump_config, load_config
    from traces import read_trace
    from traces.atomic import write_text

    if config is None:
        raise ConfigError(
            "--fit-guided: got it without --config, expected the twin whose engine has the cost"
        )
    twin = load_config(config)
    for note in twin.notes:
        typer.echo(f"note: {note}", err=True)
    guided, plain = (read_trace(path) for path in runs)
    cost = fit_guided(plain, guided, twin, seed=seed)
    document = json.dumps(asdict(cost), indent=2, allow_nan=False)
    report.mkdir(parents=True, exist_ok=True)
    write_text(report / "guided.json", document + "\n")
    typer.echo(document if as_json else table_of(cost))
    if write_config is not None:
        compile_us, mask_us = round(cost.compile_us.value or 0.0), round(cost.mask_us.value or 0.0, 3)
        engine = replace(twin.engine, guided_compile_us=compile_us, guided_mask_us=mask_us)
        write_text(write_config, dump_config(replace(twin, engine=engine)))
        typer.echo(f"twin: {write_config}", err=True)


def table_of(cost: GuidedCost) -> str:
    """Return the result as lines for a terminal."""
    lines = [f"{cost.num_pairs:,} requests that both runs finished, {cost.num_guided:,} of them guided"]
    for name, each in (("guided_compile_us", cost.compile_us), ("guided_mask_us", cost.mask_us)):
        value = "not known" if each.value is None else f"{each.value:,.1f}"
        within = "" if each.low is None or each.high is None else f"  ({each.low:,.1f} to {each.high:,.1f})"
        lines.append(f"{name:<20}{value:>12} us{within}")
    rest = ", ".join(
        f"{name[:-3].upper()} {part / 1e3:+.2f} ms" for name, part in cost.unexplained_us.items()
    )
    lines.append(f"left over, median: {rest}")
    return "\n".join(lines)
