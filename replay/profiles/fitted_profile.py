"""What the file of a fitted twin says about itself, read without making the twin."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from lazy_dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from replay.twin.fitted.fitted_on import FittedOn, read_fitted_on
from replay.twin.fitted.fitted_range import FittedRange, Range, read_fitted_range, ways_beyond
from replay.twin.fitted.held_out import HeldOut, read_held_out
from replay.twin.fitted.leaves import AskedServer, ways_out
from replay.twin.fitted.pace import Pace, read_pace
from traces import ConfigError
from traces.strict.arguments import PATH, takes
from traces.strict.section import read_section

if TYPE_CHECKING:
    from traces.strict.section import Section

SCHEMA_VERSION = 1
ENDINGS = (".yaml", ".yml")
ROUNDED = 1.02
"""A rate is asked for as it is read, rounded: so many times the fitted one is that rate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """A fitted twin's own account of itself. ``latency_model``: its kind. None: the file does not say."""

    path: Path
    latency_model: str
    on: FittedOn
    fitted_range: FittedRange | None
    held_out: HeldOut | None
    pace: Pace | None

    @property
    def date(self) -> str | None:
        """The day of the fit."""
        return None if self.held_out is None else self.held_out.date

    @property
    def error(self) -> float | None:
        """The mean E2E error per request on what the fit had not seen, a fraction."""
        return None if self.held_out is None else self.held_out.e2e

    @property
    def trust(self) -> str:
        """Which of its answers may be trusted inside of what it was fitted on, in a word or two."""
        if self.held_out is None or (not self.held_out.errors and self.held_out.far is None):
            return "not known"
        far = self.held_out.far_names
        if not far and self.on.carried_from is not None:
            return "carried" if self.pace is None else f"carried, ±{self.pace.within:.0%}"
        p99 = self.held_out.far_p99_names
        if not far:
            return "means" if p99 is None else "means, not p99" if p99 else "means and p99"
        nor = ", nor p99" if p99 and set(p99) - set(far) else ""
        return "no" if "e2e" in far else f"not its {' and '.join(each.upper() for each in far)}{nor}"

    def document(self) -> dict[str, object]:
        """Return what ``vtwin profiles show --json`` prints: the file's own keys, errors as fractions."""
        return {"schema_version": SCHEMA_VERSION, **self.entry()}

    def entry(self) -> dict[str, object]:
        """Return the profile as one of several in a document."""
        return {
            "file": str(self.path),
            "latency_model": self.latency_model,
            "fitted_on": asdict(self.on),
            "fitted_range": None if self.fitted_range is None else asdict(self.fitted_range),
            "held_out": None if self.held_out is None else asdict(self.held_out),
            "pace": None if self.pace is None else asdict(self.pace),
            "date": self.date,
            "e2e_error": self.error,
            "trust": self.trust,
        }

    def leaves(self, server: AskedServer, load: FittedRange) -> list[str]:
        """Return each way in which a question leaves what the twin was fitted on, a line each; none: it lies inside.

        What the file does not say leaves, too: nobody can tell.
        """
        known = self.fitted_range or FittedRange()
        beyond = ways_beyond(known, load)
        return [
            *ways_out(self.on, server),
            *_untold(known, load),
            *(beyond or _not_lasting(known.lasting, load)),
        ]


def _untold(known: FittedRange, load: FittedRange) -> Iterator[str]:
    names = {
        "rate_per_s": "rates",
        "concurrency": "concurrency",
        "prompt_tokens": "prompt lengths",
        "output_tokens": "output lengths",
    }
    for name, what in names.items():
        if getattr(load, name) is not None and getattr(known, name) is None:
            yield f"{what}: the file does not say which it was fitted on"


def _not_lasting(lasting: Range | None, load: FittedRange) -> Iterator[str]:
    """Yield the line on a rate without a concurrency, of which it is not known that a long run stays within the fit."""
    if load.rate_per_s is None or load.concurrency is not None:
        return
    asked = load.rate_per_s[1]
    if lasting is None:
        yield "load: the file does not say how many requests run at once at a rate; ask with --concurrency, too"
    elif asked > ROUNDED * lasting[1]:
        why = f"above {lasting[1]:.4g} a long run may have more requests at once than were fitted"
        yield f"load: {asked:.4g} requests/s; {why}"


@takes(path=PATH)
def read_profile(path: Path | str) -> Profile:
    """Return what a twin's file says of its fit. Raises ConfigError for a file of nothing that was fitted."""
    path = Path(path)
    found = _profile_in(read_section(path), path)
    if found is None:
        raise ConfigError(
            f"{path}: got a file without latency.fitted_on, fitted_range and held_out, expected a twin that "
            "`vtwin calibrate --write-config` wrote"
        )
    return found


def _profile_in(root: Section, path: Path) -> Profile | None:
    """Return the profile in a file, None where nothing in it was fitted."""
    latency = root.section("latency")
    if latency is None or not any(key in latency for key in ("fitted_on", "fitted_range", "held_out")):
        return None
    on = read_fitted_on(latency) or FittedOn()
    return Profile(
        path=path,
        latency_model=latency.text("model") or "auto",
        on=on,
        fitted_range=read_fitted_range(latency),
        held_out=read_held_out(latency),
        pace=read_pace(latency),
    )


def profiles_in(folders: Iterable[Path]) -> tuple[list[Profile], list[str]]:
    """Return the fitted twins in folders and below them, by path, and why files that begin like one are left out.

    Another YAML file is no profile and has no line. Raises ConfigError for a folder that is none.
    """
    found, left_out = [], []
    for path in sorted({_from_here(each) for folder in folders for each in _files(folder)}):
        try:
            profile = _profile_in(read_section(path), path)
        except ConfigError as error:
            if _looks_fitted(path):
                left_out.append(str(error))
            continue
        found += [] if profile is None else [profile]
    return found, left_out


def _from_here(path: Path) -> Path:
    """Return a path below the folder that one is in as it is found from there."""
    here = Path.cwd()
    return path.relative_to(here) if path.is_absolute() and path.is_relative_to(here) else path


def _files(folder: Path) -> Iterator[Path]:
    if folder.is_file():
        yield folder
        return
    if not folder.is_dir():
        raise ConfigError(f"FOLDER: got {folder}, expected a folder or a twin's file that exists")
    for ending in ENDINGS:
        yield from (path for path in folder.rglob(f"*{ending}") if path.is_file())


def _looks_fitted(path: Path) -> bool:
    try:
        text = path.read_text(errors="replace")
    except OSError:
        return True
    return "\n  fitted_on:" in text or "\n  held_out:" in text
