"""Rollouts as a table for a terminal."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from traces import counted, four_digits, shown_time
from traces.facts import AlignedRows, AnswerPart, TermRows, frac

if TYPE_CHECKING:
    from replay.rollouts.rollout_summary import EstimateSummary, RolloutsSummary, WaySummary

SHOWN_SHARES = ("0.5", "0.8", "0.9", "0.95", "0.99")
HEAD = ("", "per N x G", "against plain", "thrown away", "computed again", "length kept", "asked")


def rollout_parts(found: RolloutsSummary) -> list[AnswerPart]:
    """Return the results of the batches, then each alternative compared with the plain one."""
    plain, update_us = found["plain"], found["update_us"]
    number = found["prompts"] * found["samples"]
    updated = f", weights updated in {shown_time(update_us)}" if update_us else ""
    batches = counted(len(plain["batches"]), "batch").replace("batchs", "batches")
    asked = f"{found['prompts']:,} prompts x {found['samples']:,} samples ({number:,})"
    idle, tail = _share(plain["idle_frac"]), _share(plain["tail_idle_frac"])
    terms = [
        ("rollouts", f"{batches} of {asked}{updated}"),
        ("last answer", _time(plain["times_us"]["1"])),
        *((f"  {float(share):.0%}", _time(plain["times_us"][share])) for share in SHOWN_SHARES),
    ]
    if found["batch_share"] < 1:
        ends = f"{_time(plain['end_us'])} (at {found['batch_share']:.4g} of the answers)"
        terms.append(("batch ends", ends))
    terms += [
        ("seats idle", f"{idle} of their time, {tail} from when the first seat stays empty"),
        ("tokens", f"{_number(plain['tokens_per_s'])} per s until the batch's end"),
        *([("update", f"{_share(plain['update_frac'])} of the time")] if update_us > 0 else []),
    ]
    return [TermRows(terms), "", *_ways(found)]


def _ways(found: RolloutsSummary) -> list[AnswerPart]:
    """Return the table of all ways: what they are, and what a batch of each takes and costs."""
    rows = [HEAD, *(_row(each) for each in (found["plain"], *found["others"]))]
    wide = max(len(row[0]) for row in rows)
    table = AlignedRows([(row[0].ljust(wide), *row[1:]) for row in rows])
    notes = ["tokens of a batch; lengths in tokens, kept and asked: ending early keeps the short answers"]
    if any(way["num_counted"] < len(way["batches"]) for way in found["others"]):
        notes.append("partial: means without the first batch, which carries nothing yet")
    return [table, *notes]


def _row(way: WaySummary) -> tuple[str, ...]:
    return (
        _name(way),
        _time(way["per_full_us"]),
        "" if way["change"] is None else _shown(way["change"], lambda value: f"{value:+.1%}", frac),
        _number(way["thrown_tokens"]),
        _number(way["recomputed_tokens"]),
        _number(way["kept_mean_tokens"]),
        _number(way["asked_mean_tokens"]),
    )


def _name(way: WaySummary) -> str:
    if way["way"] == "oversubscribed":
        return f"oversubscribed {way['times']:g}"
    share = way["share"]
    return way["way"] if share == 1 else f"{way['way']}, {share:.4g}"


def _time(value: EstimateSummary | None) -> str:
    return _shown(value, shown_time, shown_time)


def _share(value: EstimateSummary | None) -> str:
    return _shown(value, frac, frac)


def _number(value: EstimateSummary | None) -> str:
    return "-" if value is None else four_digits(value["mean"])


def _shown(
    value: EstimateSummary | None, show: Callable[[float], str], show_width: Callable[[float], str]
) -> str:
    """Return a mean with half the width of its interval where there is one."""
    if value is None:
        return "-"
    half = value["half_width"]
    return show(value["mean"]) + ("" if half is None else f" ±{show_width(half)}")
