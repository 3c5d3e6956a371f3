"""The options of rollouts, which stand beside those of ``run``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from replay.argument_ranges import BATCHES, SAMPLES
from traces import parse_seconds
from traces.strict.option_table import option_table

if TYPE_CHECKING:
    from replay.rollouts.rollouts import RolloutSettings
    from traces.workload import WorkloadOptions

PANEL = "Rollouts of reinforcement learning: --batch prompts, --samples each"


@option_table
class RolloutOptions:
    """Batches of samples with the weights updated between them."""

    samples: Annotated[
        int | None,
        typer.Option(
            min=SAMPLES.least,
            max=SAMPLES.most,
            metavar="G",
            help="With --batch N: rollouts. A batch is N prompts with G samples each, which share the prompt's blocks; "
            "each batch begins with an empty KV cache.",
            rich_help_panel=PANEL,
        ),
    ] = None
    batch_share: Annotated[
        float | None,
        typer.Option(
            metavar="F",
            help="With --samples: a batch ends when this share of its samples is answered. Default: 1.",
            rich_help_panel=PANEL,
        ),
    ] = None
    update_time: Annotated[
        float | None,
        typer.Option(
            metavar="S",
            parser=parse_seconds,
            help="With --samples: how long the weights' update after a batch takes (30s). Default: 0.",
            rich_help_panel=PANEL,
        ),
    ] = None
    batches: Annotated[
        int | None,
        typer.Option(
            min=BATCHES.least,
            max=BATCHES.most,
            metavar="B",
            help="With --samples: number of batches, each drawn separately. Default: 5.",
            rich_help_panel=PANEL,
        ),
    ] = None
    oversubscribe: Annotated[
        str | None,
        typer.Option(
            metavar="X,…",
            help="With --samples: also draw this many times the samples, and end with N x G answers. "
            "Default: 1.1,1.25,1.5.",
            rich_help_panel=PANEL,
        ),
    ] = None
    partial_share: Annotated[
        float | None,
        typer.Option(
            metavar="F",
            help="With --samples: also end batches at this share and carry on what is unfinished in the next. "
            "Default: --batch-share, or 0.9.",
            rich_help_panel=PANEL,
        ),
    ] = None

    def given(self) -> list[str]:
        """Return the options that were given, without ``--samples``."""
        from dataclasses import fields

        names = [each.name for each in fields(self) if getattr(self, each.name) is not None]
        return ["--" + name.replace("_", "-") for name in names if name != "samples"]

    def settings(self, workload: WorkloadOptions) -> RolloutSettings | None:
        """Return the requested rollouts, None if there are none. Raises ConfigError on options that are not valid."""
        from traces import ConfigError

        if self.samples is None:
            if self.given():
                raise ConfigError(f"{self.given()[0]}: needs --samples G, the samples of each prompt")
            return None
        if workload.batch is None:
            raise ConfigError("--samples: needs --batch N, the prompts of a batch")
        if workload.waves is not None:
            raise ConfigError("--waves: cannot be combined with --samples, expected --batches")
        if workload.total_tokens_max is not None:
            raise ConfigError(
                "--total-tokens-max: cannot be combined with --samples, expected --output-tokens-max"
            )
        from replay.rollouts.rollouts import OVERSUBSCRIPTIONS, RolloutSettings

        more = OVERSUBSCRIPTIONS if self.oversubscribe is None else _numbers(self.oversubscribe)
        return RolloutSettings(
            prompts=workload.batch,
            samples=self.samples,
            batch_share=1.0 if self.batch_share is None else self.batch_share,
            update_us=_update_us(self.update_time),
            batches=5 if self.batches is None else self.batches,
            oversubscriptions=more,
            partial_share=self.partial_share,
        )


def _update_us(seconds: float | None) -> int:
    from traces import ConfigError

    if seconds is None:
        return 0
    if not 0 <= seconds <= 1e9:
        raise ConfigError(f"--update-time: got {seconds:g}, expected seconds >= 0")
    return round(seconds * 1e6)


def _numbers(text: str) -> tuple[float, ...]:
    """Return ``1.1,1.25`` as numbers. Raises ConfigError."""
    from traces import ConfigError

    try:
        return tuple(float(each) for each in text.split(","))
    except ValueError:
        raise ConfigError(f"--oversubscribe: got {text!r}, expected numbers such as 1.1,1.25,1.5") from None
