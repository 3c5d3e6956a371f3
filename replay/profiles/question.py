"""Fitted twins, and whether a question lies inside of a fit, as functions; ``vtwin profiles`` prints their answers."""

from __future__ import annotations

from collections.abc import Sequence
from lazy_dataclasses import dataclass, replace
from pathlib import Path

from replay.model.gpus import find_gpu
from replay.numbers.argument_ranges import GPUS
from replay.profiles.fitted_profile import SCHEMA_VERSION, Profile, profiles_in, read_profile
from replay.twin.fitted.fitted_on import FittedOn
from replay.twin.fitted.fitted_range import FittedRange
from replay.twin.fitted.leaves import AskedServer
from replay.twin.keys.fitted_on_keys import FLAGS
from replay.twin.start.flag_table import SAME_WORK, SPEED
from replay.twin.start.from_serve import check_version
from replay.twin.start.serve_flags import parse_serve
from traces.strict.arguments import ANY_TEXT, PATH, Number, takes

AMOUNT = Number(0, 1e9)


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundProfiles:
    """Fitted twins, and why files that begin like one are none, a line each."""

    profiles: tuple[Profile, ...]
    left_out: tuple[str, ...]

    def document(self) -> dict[str, object]:
        """Return what ``vtwin profiles list --json`` prints."""
        return {
            "schema_version": SCHEMA_VERSION,
            "profiles": [each.entry() for each in self.profiles],
            "left_out": list(self.left_out),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedProfile:
    """A fitted twin and a question. ``ways``: in which the question leaves the fit, a line each; none: it lies inside.

    ``notes``: what is to be known of the question's flags.
    """

    profile: Profile
    ways: tuple[str, ...]
    notes: tuple[str, ...]

    def document(self) -> dict[str, object]:
        """Return what ``vtwin profiles check --json`` prints."""
        return {
            "schema_version": SCHEMA_VERSION,
            "file": str(self.profile.path),
            "is_inside": not self.ways,
            "leaves": list(self.ways),
        }


def find_profiles(folders: Sequence[Path] = (Path(),)) -> FoundProfiles:
    """Return the fitted twins in folders and below them, by path. Raises ConfigError for a folder that is none."""
    found, left_out = profiles_in(map(Path, folders))
    return FoundProfiles(profiles=tuple(found), left_out=tuple(left_out))


@takes(
    path=PATH,
    model=ANY_TEXT,
    gpu=ANY_TEXT,
    tp=GPUS,
    vllm_version=ANY_TEXT,
    rate_per_s=AMOUNT,
    concurrency=AMOUNT,
    prompt_tokens=AMOUNT,
    output_tokens=AMOUNT,
    flags=ANY_TEXT,
)
def check_profile(  # noqa: PLR0913 - what a question can say of its server and load
    path: Path | str,
    *,
    model: str | None = None,
    gpu: str | None = None,
    tp: int | None = None,
    vllm_version: str | None = None,
    rate_per_s: float | None = None,
    concurrency: float | None = None,
    prompt_tokens: float | None = None,
    output_tokens: float | None = None,
    flags: str | None = None,
) -> CheckedProfile:
    """Return whether a question lies inside of what a twin was fitted on; None: as the twin's was.

    ``rate_per_s`` and ``concurrency``: of one server; ``prompt_tokens`` and ``output_tokens``: of the longest requests;
    ``flags``: of ``vllm serve``, in one text. Raises ConfigError for flags, a GPU or a version that nobody knows: a
    typing error is no server.
    """
    found = read_profile(path)
    asked = AskedServer(model=model, gpu=gpu, tp=tp, vllm_version=vllm_version, flags={})
    server, untold, notes = _served(asked, flags, found.on)
    load = FittedRange(
        rate_per_s=_up_to(rate_per_s),
        concurrency=_up_to(concurrency),
        prompt_tokens=_up_to(prompt_tokens),
        output_tokens=_up_to(output_tokens),
    )
    return CheckedProfile(profile=found, ways=(*found.leaves(server, load), *untold), notes=tuple(notes))


def _up_to(value: float | None) -> tuple[float, float] | None:
    """Return a range of a load, of which the upper end alone counts."""
    return None if value is None else (value, value)


def _served(asked: AskedServer, text: str | None, on: FittedOn) -> tuple[AskedServer, list[str], list[str]]:
    """Return the question's server with its flags, a line for each that no profile keeps, and notes on the others."""
    if asked.gpu is not None and asked.gpu != on.gpu:
        find_gpu(asked.gpu)
    if asked.vllm_version is not None:
        check_version(asked.vllm_version)
    if text is None:
        return asked, [], []
    served, untold, notes = (
        parse_serve(f"vllm serve {asked.model or 'any/model'} {text}", strict="--flags"),
        [],
        [],
    )
    for flag in served.others:
        if flag.key in (*FLAGS, "tp"):
            continue
        if flag.reason.startswith((SPEED, SAME_WORK)):
            untold.append(f"{flag.name}: the file does not say what it was fitted with")
        else:
            notes.append(f"{flag.name}: {flag.reason}")
    known = {
        name: value
        for name, value in {**served.engine, **served.latency}.items()
        if name in FLAGS and isinstance(value, int | bool | str)
    }
    size = served.hardware.get("tp")
    tp = size if asked.tp is None and isinstance(size, int) else asked.tp
    return replace(asked, tp=tp, flags=known), untold, [*notes, *served.notes]
