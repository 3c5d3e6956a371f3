"""The options of ``vtwin observe`` that send texts of a data set, and what they cannot be combined with."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from traces import ConfigError
from traces.strict.option_table import option_table
from traces.workload import DEFAULT_SEED, WorkloadOptions

if TYPE_CHECKING:
    from observe.settings import TextColumns, TextSource

_NOT_WITH: Final = (
    *("trace", "like", "workload", "rounds", "context_growth"),
    *("preset", "prompt_tokens", "prompt_tokens_stdev", "prefix_tokens", "random_range_ratio"),
)
"""Options of a workload that say what the prompts are; the texts do."""
_EXPECTED: Final = "expected prompt=COLUMN, answer=COLUMN or both, separated by a comma"


@option_table
class TextOptions:
    """Texts in place of drawn prompts."""

    texts: Annotated[
        Path | None,
        typer.Option(
            metavar="PATH",
            help="Send the texts of this data set: ShareGPT's JSON, JSON lines of prompts or messages, CSV, Parquet, a "
            "folder of these or of the datasets library. Answers are as long as the data set's, or as --output-tokens "
            "says. --prompt-tokens-min and -max, --output-tokens-min and -max and --total-tokens-max leave texts out.",
        ),
    ] = None
    texts_columns: Annotated[
        str | None,
        typer.Option(
            metavar="prompt=NAME,answer=NAME",
            help="Which column or key of --texts is the prompt, and which the answer. Default: the usual names.",
        ),
    ] = None

    def source(self, workload: WorkloadOptions, *, resume: bool) -> TextSource | None:
        """Return which texts to send, None where prompts are drawn. Raises ConfigError for options that contradict."""
        if self.texts is None:
            if self.texts_columns is not None:
                raise ConfigError("--texts-columns: needs --texts PATH, the data set that has them")
            return None
        clash = next((name for name in _NOT_WITH if getattr(workload, name) is not None), None)
        if clash is not None:
            raise ConfigError(
                f"--{clash.replace('_', '-')}: cannot be combined with --texts: the texts are the prompts"
            )
        if resume:
            raise ConfigError(
                "--resume: cannot be combined with --texts: lengths are counted anew in each run"
            )
        if not self.texts.exists():
            raise ConfigError(f"--texts: got no such file or folder, expected a data set ({self.texts})")
        from observe.settings import TextSource

        return TextSource(
            path=self.texts,
            columns=parse_columns(self.texts_columns),
            seed=DEFAULT_SEED if workload.seed is None else workload.seed,
            drawn_outputs=workload.output_tokens is not None,
            prompt=(workload.prompt_tokens_min or 1, workload.prompt_tokens_max),
            output=(workload.output_tokens_min or 1, workload.output_tokens_max),
            total=workload.total_tokens_max,
        )

    def without_bounds(self, workload: WorkloadOptions) -> WorkloadOptions:
        """Return the options that draw the load: with texts, bounds on lengths choose among these and clip nothing."""
        if self.texts is None:
            return workload
        return replace(
            workload,
            prompt_tokens_min=None,
            prompt_tokens_max=None,
            output_tokens_min=None,
            output_tokens_max=None,
            total_tokens_max=None,
        )


def parse_columns(text: str | None) -> TextColumns | None:
    """Return the columns that ``--texts-columns`` names. Raises ConfigError."""
    from observe.settings import TextColumns

    if text is None:
        return None
    found: dict[str, str] = {}
    for part in text.split(","):
        kind, _, name = part.strip().partition("=")
        if kind not in ("prompt", "answer") or not name or kind in found:
            raise ConfigError(f"--texts-columns: got {part.strip()!r}, {_EXPECTED}")
        found[kind] = name
    return TextColumns(**found)
