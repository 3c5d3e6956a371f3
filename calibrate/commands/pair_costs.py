"""``vtwin calibrate guided`` and ``host``: a cost from a pair of runs, shown and written."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from traces import check_place
from traces.strict.tell import say_text, tell

if TYPE_CHECKING:
    from calibrate.commands.options import CostOptions
    from calibrate.fit.paired_runs import GuidedCost, HostCost
    from replay import TwinConfig
    from traces import Trace
    from traces.statistics.bootstrap import Estimate


def fit_guided_cost(runs: tuple[Path, Path], asked: CostOptions) -> None:
    """Fit the cost of grammars to a pair of runs (with, without), print it, and write guided.json and a twin."""
    from calibrate.fit.paired_runs import fit_guided

    twin, (guided, plain) = _read(runs, asked)
    cost = fit_guided(plain, guided, twin, seed=asked.seed)
    changes = {
        "guided_compile_us": round(cost.compile_us.value or 0.0),
        "guided_mask_us": round(cost.mask_us.value or 0.0, 3),
    }
    _write(cost, twin, asked, name="guided.json", table=table_of(cost), changes=changes)


def fit_host_cost(runs: tuple[Path, Path], asked: CostOptions) -> None:
    """Fit the CPU's time to a pair of runs (without, with async scheduling), print and write it, and a twin."""
    from calibrate.fit.paired_runs import fit_host

    twin, (shown, hidden) = _read(runs, asked)
    cost = fit_host(hidden, shown, twin, seed=asked.seed)
    found = {"host_step_us": cost.step_us, "host_prefill_us": cost.prefill_us}
    lines = [f"{cost.num_pairs:,} requests that both runs finished", *_lines(found, cost)]
    changes = {name: round(each.value or 0.0, 1) for name, each in found.items()}
    _write(cost, twin, asked, name="host.json", table="\n".join(lines), changes=changes)


def _read(runs: tuple[Path, Path], asked: CostOptions) -> tuple[TwinConfig, tuple[Trace, Trace]]:
    """Return the twin, after printing its notes, and the two runs. Raises ConfigError before any slow work."""
    from replay import load_config
    from traces import read_trace

    _check_places(asked)
    twin = load_config(asked.config, allows_cluster=False)
    for note in twin.notes:
        tell(f"note: {note}")
    return twin, (read_trace(runs[0]), read_trace(runs[1]))


def _write(
    cost: GuidedCost | HostCost,
    twin: TwinConfig,
    asked: CostOptions,
    *,
    name: str,
    table: str,
    changes: dict[str, float],
) -> None:
    """Write the result, show it, and write the twin with its engine changed if requested."""
    from replay import dump_config
    from traces import make_folder, write_text

    document = json.dumps(cost.document(), indent=2, allow_nan=False)
    make_folder(asked.report, option="--report")
    write_text(asked.report / name, document + "\n", option="--report")
    say_text(document if asked.as_json else table)
    if asked.write_config is not None:
        engine = replace(twin.engine, **changes)  # type: ignore[arg-type] # its own fields, by name
        write_text(asked.write_config, dump_config(replace(twin, engine=engine)), option="--write-config")
        tell(f"twin: {asked.write_config}")


def _check_places(asked: CostOptions) -> None:
    """Raise ConfigError if a file could not be written, before the slow fit."""
    check_place(asked.report, option="--report")
    check_place(asked.write_config, option="--write-config")


def table_of(cost: GuidedCost) -> str:
    """Return the result as lines for a terminal."""
    found = {"guided_compile_us": cost.compile_us, "guided_mask_us": cost.mask_us}
    head = f"{cost.num_pairs:,} requests that both runs finished, {cost.num_guided:,} of them guided"
    return "\n".join([head, *_lines(found, cost)])


def _lines(found: dict[str, Estimate], cost: GuidedCost | HostCost) -> list[str]:
    """Return a line per cost, one on the remainder, and one if the twin's error is most of an interval."""
    lines = []
    for name, each in found.items():
        value = "not known" if each.value is None else f"{each.value:,.1f}"
        within = "" if each.low is None or each.high is None else f"  ({each.low:,.1f} to {each.high:,.1f})"
        lines.append(f"{name:<20}{value:>12} us{within}")
    rest = ", ".join(
        f"{name[:-3].upper()} {part / 1e3:+.2f} ms" for name, part in cost.unexplained_us.items()
    )
    lines.append(f"left over, median: {rest}")
    if any(_is_mostly_the_twins(each, cost.twin_off_frac) for each in found.values()):
        lines.append(
            f"the twin's mean E2E of the run without is off by {cost.twin_off_frac:+.1%}: the intervals allow for as "
            "much in each cost, not for more. Fit the twin to that run first"
        )
    return lines


def _is_mostly_the_twins(each: Estimate, off_frac: float) -> bool:
    """Whether the twin's error makes up more of half an interval than all other parts, whose squares add up."""
    if each.value is None or each.low is None or each.high is None:
        return False
    return abs(off_frac * each.value) > (each.high - each.low) / 2 / math.sqrt(2)
