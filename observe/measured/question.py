"""Measured runs in numbers and as a page, as a function; ``vtwin report`` writes the page that it returns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from lazy_dataclasses import dataclass
from pathlib import Path

from observe.measured.first_sentence import first_sentence
from observe.measured.page import page_of
from observe.measured.served_load import ServedLoad, of_served, read_load
from observe.repeats.repeated_load import RepeatedLoads
from traces import TraceError, companion_file, parts_at, stem_of


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredRuns:
    """Runs of one server, in the order of their loads; ``slo_us``: limits of each request by metric, µs."""

    loads: tuple[ServedLoad, ...]
    slo_us: Mapping[str, float]
    left_out: tuple[str, ...] = ()

    @property
    def repeats(self) -> RepeatedLoads:
        """The runs grouped by the requests that they sent: means over repeats, and what differs beyond chance."""
        return of_served(self.loads)

    @property
    def answer(self) -> str:
        """What a reader takes away who reads one sentence: the page's first."""
        return first_sentence(self.loads, self.repeats.loads)

    @property
    def notes(self) -> list[str]:
        """What is to know of how the files were read, a line each."""
        return [line for each in self.loads for line in each.notes()]

    @property
    def warnings(self) -> list[str]:
        """What makes the numbers others than the server's, a line each."""
        out = f"left out: {', '.join(self.left_out)}, which have no rate, as the others have"
        said = [out] if self.left_out else []
        return [*said, *self.repeats.warnings(), *(line for each in self.loads for line in each.warnings())]

    def html(self, command: str = "observe.report_runs") -> str:
        """Return the page, which needs no other file; ``command``: what made it, told on it."""
        return page_of(self.loads, self.repeats, slo_us=self.slo_us, command=command)

    def log(self, page: Path, *, mlflow: str | None = None, wandb: str | None = None) -> dict[str, list[str]]:
        """Log each run with its files and ``page``, which is on disk, and return what each tool names the runs.

        ``mlflow``: a tracking URI or a folder; ``wandb``: ``[ENTITY/]PROJECT``. Raises ConfigError without the
        library, ServerError where it cannot log.
        """
        from observe.measured.logged_run import logged_run

        runs = [logged_run(each, page=page) for each in self.loads]
        found = {}
        if mlflow is not None:
            from observe.measured.mlflow_runs import log_to_mlflow

            found["mlflow"] = log_to_mlflow(runs, mlflow)
        if wandb is not None:
            from observe.measured.wandb_runs import log_to_wandb

            found["wandb"] = log_to_wandb(runs, wandb)
        return found


def report_runs(paths: Sequence[Path], *, slo_us: Mapping[str, float] | None = None) -> MeasuredRuns:
    """Return measured runs of one server: one shown in detail, several over their load.

    ``paths``: traces, files of other tools, of several runs in one all, and folders, which stand for all traces in
    them. ``slo_us``: limits of each request, such as ``{"ttft": 500_000}``; None: the traces' own. Raises TraceError
    where there is no trace, or none of its requests was answered.
    """
    found = [part for each in paths for path in _in_folder(Path(each)) for part in parts_at(path)]
    slo_us = slo_us or {}
    loads = [
        read_load(path, name=name, slo_us=slo_us) for path, name in zip(found, _names(found), strict=True)
    ]
    rated = [each for each in loads if each.summary.concurrency is None and each.summary.rate_per_s]
    shown = rated if len(rated) > 1 else loads
    return MeasuredRuns(
        loads=tuple(sorted(shown, key=lambda each: each.place or 0.0)),
        slo_us=slo_us,
        left_out=tuple(each.name for each in loads if each not in shown),
    )


def _in_folder(path: Path) -> list[Path]:
    """Return the traces of a folder, by name; the path itself where it is none. Raises TraceError for an empty one."""
    if not path.is_dir():
        return [path]
    found = [
        header.with_suffix("")
        for header in sorted(path.glob("*.yaml"))
        if any(companion_file(header.with_suffix(""), end).is_file() for end in (".csv", ".parquet"))
    ]
    if not found:
        raise TraceError(
            f"{path}: got a folder without a trace, expected STEM.yaml with STEM.csv or STEM.parquet in it"
        )
    return found


def _names(paths: Sequence[Path]) -> list[str]:
    """Return the paths' stems, with their folders where stems are alike."""
    stems = [stem_of(path) for path in paths]
    names = [stem.name for stem in stems]
    return [str(stem) if names.count(name) > 1 else name for stem, name in zip(stems, names, strict=True)]
