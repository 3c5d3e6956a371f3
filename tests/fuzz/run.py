"""Running targets: with fixed seeds, for a time, or on the corpus."""

from __future__ import annotations

import hashlib
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Final

from hypothesis import HealthCheck, Phase, Verbosity, given, seed, settings

from tests.fuzz.target import Target

FOLDER = Path(__file__).parent
CORPUS = FOLDER / "corpus"
MOST_S = 5.0
"""The longest that one input may take. Inputs have at most 64 KiB."""

_BATCH = 100


@dataclass(slots=True)
class Outcome:
    """How many inputs a target has seen, and what the smallest that failed raised."""

    target: str
    num_inputs: int = 0
    failure: BaseException | None = None
    data: bytes = b""


def all_targets() -> list[Target]:
    """Return the targets of every module ``*_targets`` of this folder, each name once."""
    modules = sorted(path.stem for path in FOLDER.glob("*_targets.py"))
    targets = [target for name in modules for target in import_module(f"tests.fuzz.{name}").TARGETS]
    names = [target.name for target in targets]
    assert len(set(names)) == len(names), names
    return targets


def corpus_of(target: Target) -> list[Path]:
    """Return the files that the target once failed on, or that are worth a look each time."""
    return sorted((CORPUS / target.name).glob("*"))


def check(target: Target, data: bytes) -> None:
    """Run one input. Raises what the target raises, TimeoutError where it takes too long. Main thread only."""
    with _at_most(MOST_S):
        target.check(data)


def run_batch(target: Target, *, seed_number: int, number: int = _BATCH) -> Outcome:
    """Run ``number`` inputs of one seed; what fails is made small first."""
    outcome = Outcome(target.name)

    @seed(seed_number)
    @settings(
        max_examples=number,
        deadline=None,
        database=None,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
        verbosity=Verbosity.quiet,
        report_multiple_bugs=False,
    )
    @given(target.inputs)
    def attempt(data: bytes) -> None:
        outcome.num_inputs += 1
        try:
            check(target, data)
        except Exception as fault:
            outcome.failure, outcome.data = fault, data  # the last one is the smallest
            raise

    try:
        attempt()
    except Exception as fault:
        outcome.failure = outcome.failure or fault
    return outcome


def run_for(target: Target, seconds: float, *, first_seed: int) -> Outcome:
    """Run batches until the time is over or one fails."""
    total = Outcome(target.name)
    end = time.monotonic() + seconds
    number = first_seed
    while time.monotonic() < end and total.failure is None:
        batch = run_batch(target, seed_number=number)
        total.num_inputs += batch.num_inputs
        total.failure, total.data = batch.failure, batch.data
        number += 1
    return total


def keep(outcome: Outcome) -> Path:
    """Put the input that failed into the corpus; return its file."""
    path = CORPUS / outcome.target / hashlib.sha256(outcome.data).hexdigest()[:12]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(outcome.data)
    return path


PATIENCE: Final = 20
"""An input that computes nothing, but waits, is given up after so many times what one may compute."""


@contextmanager
def _at_most(seconds: float) -> Iterator[None]:
    """Raise TimeoutError after so many CPU seconds: what else the machine does is not the input's fault."""

    def give_up(*_: object) -> None:
        raise TimeoutError(f"took more than {seconds:g} s of CPU, or {PATIENCE * seconds:g} s in all")

    kinds = (
        (signal.SIGPROF, signal.ITIMER_PROF, seconds),
        (signal.SIGALRM, signal.ITIMER_REAL, PATIENCE * seconds),
    )
    before = [signal.signal(number, give_up) for number, _, _ in kinds]
    for _, timer, limit in kinds:
        signal.setitimer(timer, limit)
    try:
        yield
    finally:
        for (number, timer, _), handler in zip(kinds, before, strict=True):
            signal.setitimer(timer, 0)
            signal.signal(number, handler)
