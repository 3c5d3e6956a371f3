"""``python -m tests.conformance.random_run``: random cases, recorded by a real vLLM, against the engine.

Cases lie in ``conformance-random/`` and are recorded once: a run that was interrupted goes on where it
stopped. A case on which the two differ is shrunk and kept among the recordings. Standard output gets the
coverage tables; they and the JSON beside them lie in the folder, too. Exit codes: 0 all alike and all
covered, 1 not so, 130 interrupted.
"""

from __future__ import annotations

import argparse
import json
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import typer

from sim import DEFAULT_VERSION, InvalidConfig, minor_version, rules_of
from sim.version_groups import FIRST_WITH_INTERVAL
from tests.conformance.case_files import is_recorded, keep_only_recordings_of, write_case
from tests.conformance.compare import compare
from tests.conformance.coverage import Coverage
from tests.conformance.draw import Case, draw
from tests.conformance.draw_adapters import with_adapters
from tests.conformance.draw_checkpoints import with_checkpoints
from tests.conformance.draw_drafts import with_drafts
from tests.conformance.draw_grammars import with_grammars
from tests.conformance.draw_groups import with_groups
from tests.conformance.draw_images import with_images
from tests.conformance.draw_offloading import with_offloading
from tests.conformance.draw_units import with_units
from tests.conformance.recorder import ROOT, Recorder, recording
from tests.conformance.recording import read_recording
from tests.conformance.shrink import shrink
from tests.conformance.ways import difference_of_ways

WORK = Path("conformance-random")
GOLDENS = ROOT / "tests" / "conformance" / "recordings"
REPORT_EVERY_S = 10
MOST_SHRUNK = 5
"""So many failures are enough to begin with; further ones are only named."""


@dataclass(slots=True, kw_only=True)
class Run:
    """What came out so far."""

    recorder: Recorder
    folder: Path
    coverage: Coverage = field(default_factory=Coverage)
    differences: dict[str, str] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    kept: list[str] = field(default_factory=list)


def difference_of(directory: Path) -> str | None:
    """Return the first difference between vLLM and the engine, or between two ways through the engine."""
    found = read_recording(directory, directory, is_async=False)
    return compare(found) or difference_of_ways(found)


def record(run: Run, case: Case, directory: Path) -> str | None:
    """Record a case unless it is there; return None, or why vLLM would not run it."""
    if is_recorded(case, directory):
        return None
    write_case(case, directory)
    error: str | None = run.recorder.record(directory, with_blocks=case.settings["blocks"]).get("error")
    return error


def take(run: Run, case: Case) -> str | None:
    """Record and compare a case, and count it; return the difference, if any."""
    directory = run.folder / case.name
    refusal = record(run, case, directory)
    if refusal is not None:
        run.refused[case.name] = refusal
        return None
    difference = difference_of(directory)
    run.coverage.add(case, read_recording(directory, directory, is_async=False))
    if difference is not None:
        run.differences[case.name] = difference
    return difference


def keep_smallest(run: Run, case: Case) -> None:
    """Shrink a failing case and keep it among the recordings."""
    trial = run.folder / "trial"

    def fails(candidate: Case) -> bool:
        if record(run, candidate, trial) is not None:
            return False
        try:
            return difference_of(trial) is not None
        except InvalidConfig:
            return False

    case = replace(case, settings=case.settings | {"blocks": True})
    if not fails(case):
        say(f"{case.name}: does not differ when block ids are recorded: kept as it is")
        keep(run, case.name, run.folder / case.name)
        return
    smallest = shrink(case, fails)
    record(run, smallest, trial)
    say(f"{case.name}: {len(smallest.rows)} requests are enough: {difference_of(trial)}")
    keep(run, case.name, trial)


def keep(run: Run, name: str, directory: Path) -> None:
    """Copy a case to the recordings that `make test` compares."""
    shutil.copytree(directory, GOLDENS / name, dirs_exist_ok=True)
    run.kept.append(name)


def say(line: str) -> None:
    """Write one line for whoever watches."""
    typer.echo(line, err=True)


KINDS: Mapping[str, tuple[str, Callable[[Case, int, int], Case], tuple[str, ...]]] = {
    "groups": ("models whose layers do not all cache alike", with_groups, ("stages",)),
    "units": (
        "with --groups: prefix hits that end inside blocks",
        with_units,
        ("stages", "block_size", "prefix_cache"),
    ),
    "offloading": ("with KV offloading to host memory", with_offloading, ("stages", "prefix_cache")),
    "adapters": ("with LoRA adapters, more than fit in a batch", with_adapters, ()),
    "drafts": ("with speculative decoding, by EAGLE or n-grams", with_drafts, ("stages",)),
    "checkpoints": (
        "with --groups: states that kernels save inside chunks",
        with_checkpoints,
        ("stages", "prefix_cache"),
    ),
    "images": ("with images, an encoder's budget and its cache", with_images, ()),
    "grammars": ("with grammars that take time to compile", with_grammars, ()),
}
"""By option: its help, what it makes of a case, and the traits that it takes away."""


def drawn(seed: int, index: int, kinds: Sequence[str]) -> Case:
    """Return case ``index`` with what is asked for."""
    case = draw(seed, index)
    for kind in kinds:
        case = KINDS[kind][1](case, seed, index)
    return case


def of_version(case: Case, version: str) -> Case:
    """Return the case as a version of vLLM is given it; one of the default version need not say so.

    Without the retention interval that it does not know, or refuses without windows and states, and without what it
    does not know of states that are saved inside chunks.
    """
    if version == DEFAULT_VERSION:
        return case
    minor, settings = minor_version(version) or 0, case.settings | {"vllm_version": version}
    has_any = any(group["kind"] in ("sliding", "state") for group in settings.get("groups", []))
    if minor < FIRST_WITH_INTERVAL or (not rules_of(version).retains_sparsely and not has_any):
        settings["prefix_cache_retention_interval"] = None
    unknown = {
        "never": ["num_prefill_checkpoint_blocks", "prefill_checkpoint_alignment"],
        "from block ends": ["prefill_checkpoint_alignment"],
    }.get(rules_of(version).prefill_checkpoints, [])
    if unknown and "groups" in settings:
        settings["groups"] = [
            {name: value for name, value in group.items() if name not in unknown}
            for group in settings["groups"]
        ]
    return replace(case, settings=settings)


def run_all(run: Run, number: int, *, seed: int, kinds: Sequence[str]) -> None:
    """Take all cases, then shrink what failed."""
    began = reported = time.monotonic()
    failing = []
    for index in range(number):
        case = of_version(drawn(seed, index, kinds), run.recorder.version)
        if take(run, case) is not None:
            failing.append(case)
            say(f"{case.name}: {run.differences[case.name]}")
        now = time.monotonic()
        if now > reported + REPORT_EVERY_S or index + 1 == number:
            say(f"{index + 1} of {number} cases, {len(failing)} different, {now - began:.0f} s")
            reported = now
    for case in failing[:MOST_SHRUNK]:
        say(f"{case.name}: shrinking")
        keep_smallest(run, case)


def summary_of(run: Run, *, seed: int, seconds: float, without: tuple[str, ...]) -> dict[str, Any]:
    """Return the run as JSON."""
    return {
        "vllm_version": run.recorder.version,
        "seed": seed,
        "seconds": round(seconds, 1),
        "differences": run.differences,
        "refused_by_vllm": run.refused,
        "kept": run.kept,
        "shortages": run.coverage.shortages(without=without),
        **run.coverage.as_json(),
    }


def markdown_of(summary: dict[str, Any], coverage: Coverage) -> str:
    """Return the run as a page's section."""
    head = (
        f"vLLM {summary['vllm_version']}, seed {summary['seed']}: {summary['num_cases']} cases, "
        f"{summary['num_requests']:,} requests, {summary['num_steps']:,} steps; "
        f"{len(summary['differences'])} cases differ."
    )
    return f"{head}\n\n{coverage.as_markdown()}"


def main(arguments: list[str] | None = None) -> int:
    """Draw, record, compare, shrink, tell; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.conformance.random_run", description=__doc__)
    parser.add_argument("--number", type=int, default=200, help="how many cases (200)")
    parser.add_argument("--seed", type=int, default=1, help="which ones (1)")
    for name, (meaning, _, _) in KINDS.items():
        parser.add_argument(f"--{name}", action="store_true", help=meaning)
    options = parser.parse_args(arguments)
    kinds = [name for name in KINDS if getattr(options, name)]
    folder = WORK / f"{'-'.join(kinds) or 'seed'}-{options.seed}"
    folder.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    say("starting vLLM: about half a minute")
    with recording(folder / "vllm.log") as recorder:
        run = Run(recorder=recorder, folder=folder)
        keep_only_recordings_of(recorder.name, folder)
        try:
            run_all(run, options.number, seed=options.seed, kinds=kinds)
        except KeyboardInterrupt:
            say("interrupted: the same command goes on from here")
            return 130
    left_out = [trait for kind in kinds for trait in KINDS[kind][2]]
    summary = summary_of(run, seed=options.seed, seconds=time.monotonic() - began, without=tuple(left_out))
    (folder / "summary.json").write_text(json.dumps(summary, indent=1) + "\n")
    (folder / "summary.md").write_text(markdown_of(summary, run.coverage))
    typer.echo(markdown_of(summary, run.coverage))
    for name, reason in run.refused.items():
        say(f"{name}: vLLM would not run it: {reason}")
    for line in summary["shortages"]:
        say(f"too little of {line}")
    return 1 if run.differences or run.refused or summary["shortages"] else 0


if __name__ == "__main__":
    raise SystemExit(main())
