"""The options of ``vtwin rollouts``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from replay.numbers.argument_ranges import BATCHES, SAMPLES
from traces import parse_seconds
from traces.strict.option_table import option_table

if TYPE_CHECKING:
    from replay.rollouts.rollouts import RolloutSettings
    from traces.workload import WorkloadOptions


@option_table
class RolloutOptions:
    """Batches of samples with the weights updated between them."""

    samples: Annotated[
        int,
        typer.Option(
            min=SAMPLES.least,
            max=SAMPLES.most,
            metavar="G",
            help="A batch is --batch N prompts with G samples each, which share the prompt's blocks; it begins with an "
            "empty KV cache.",
        ),
    ]
    batch_share: Annotated[
        float | None,
        typer.Option(
            metavar="F",
            help="A batch ends when this share of its samples is answered. Default: 1.",
        ),
    ] = None
    update_time: Annotated[
        float | None,
        typer.Option(
            metavar="S",
            parser=parse_seconds,
            help="How long the weights' update after a batch takes (30s). Default: 0.",
        ),
    ] = None
    batches: Annotated[
        int | None,
        typer.Option(
            min=BATCHES.least,
            max=BATCHES.most,
            metavar="B",
            help="Number of batches, each drawn separately. Default: 5.",
        ),
    ] = None
    oversubscribe: Annotated[
        str | None,
        typer.Option(
            metavar="X,…",
            help="Also draw this many times the samples, and end with N x G answers. Default: 1.1,1.25,1.5.",
        ),
    ] = None
    partial_share: Annotated[
        float | None,
        typer.Option(
            metavar="F",
            help="Also end batches at this share and carry on what is unfinished in the next. "
            "Default: --batch-share, or 0.9.",
        ),
    ] = None

    def settings(self, workload: WorkloadOptions) -> RolloutSettings:
        """Return the requested rollouts. Raises ConfigError on options that are not valid."""
        from traces import ConfigError

        if workload.batch is None:
            raise ConfigError("--batch: got nothing, expected the prompts of a batch (--batch 32)")
        if workload.waves is not None:
            raise ConfigError("--waves: rollouts have none, expected --batches")
        if workload.total_tokens_max is not None:
            raise ConfigError("--total-tokens-max: rollouts have none, expected --output-tokens-max")
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
