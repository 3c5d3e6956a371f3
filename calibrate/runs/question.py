"""Two runs side by side, as a function; ``vtwin compare`` prints what it returns."""

from __future__ import annotations

from lazy_dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from calibrate.distinct_runs import distinct_names
from calibrate.runs.split_change import SplitChange, split_runs
from calibrate.runs.split_change_text import split_json, split_lines
from calibrate.runs.text import document, table, table_parts
from calibrate.runs.two_runs import TwoRuns, compare_runs
from traces import TraceError, read_recorded, tool_version
from traces.facts import AnswerPart, Verbatim
from traces.strict.arguments import PATH, SEED, takes

if TYPE_CHECKING:
    from replay import TwinConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedRuns:
    """Two runs compared. ``split``: the changes in parts, where a twin was given; ``doubts``: why not to trust it."""

    runs: TwoRuns
    split: SplitChange | None = None
    doubts: tuple[str, ...] = ()

    @property
    def notes(self) -> tuple[str, ...]:
        """What makes the runs hard to compare, then what is to be known of the twin."""
        return (*self.runs.notes, *self.doubts)

    def document(self) -> dict[str, object]:
        """Return what ``vtwin compare --json`` prints; times in µs, rates per second."""
        told = document(self.runs, tool_version=tool_version())
        if self.split is not None:
            told["split"] = {**split_json(self.split), "warnings": list(self.doubts)}
        return told

    def rows(self) -> list[dict[str, object]]:
        """Return a row per figure, as the document's differences have it."""
        return [asdict(each) for each in self.runs.differences]

    def parts(self) -> list[AnswerPart]:
        """Return the answer for readers."""
        split = [] if self.split is None else [Verbatim(split_lines(self.split))]
        return [*split, *table_parts(self.runs)]

    def text(self, *, width: int | None = None) -> str:
        """Return what the terminal shows; without columns that a narrower one than ``width`` has no place for."""
        split = [] if self.split is None else split_lines(self.split)
        return "\n".join([*split, table(self.runs, width=width)])

    def __str__(self) -> str:
        """Return what the terminal shows."""
        return self.text()


@takes(a=PATH, b=PATH, twin=PATH, seed=SEED)
def compare_files(
    a: Path | str, b: Path | str, *, twin: Path | str | None = None, seed: int = 42
) -> ComparedRuns:
    """Return two runs compared, measured or simulated ones, each a trace's stem, header, table or another tool's file.

    ``twin``: of the server, which splits each change into load, server and chance. ``seed``: of the bootstrap. Raises
    TraceError for a workload that was not run, ConfigError for a twin that cannot serve the requests.
    """
    paths = (Path(a), Path(b))
    traces = (read_recorded(paths[0]), read_recorded(paths[1]))
    one, other = distinct_names(paths)
    for path, trace in zip(paths, traces, strict=True):
        if len(trace) == 0 or trace.header.mode == "generated":
            raise TraceError(
                f"{path}: got a workload that was not run, expected a measured or simulated trace"
            )
    runs = compare_runs((one, other), traces, seed=seed)
    if twin is None:
        return ComparedRuns(runs=runs)
    config = _loaded(Path(twin))
    name = "" if config.source is None else config.source.name
    split = split_runs((one, other), traces, config, twin=name, seed=seed)
    return ComparedRuns(runs=runs, split=split, doubts=tuple(config.doubts))


def _loaded(twin: Path) -> TwinConfig:
    from replay import load_config

    return load_config(twin, allows_cluster=False)
