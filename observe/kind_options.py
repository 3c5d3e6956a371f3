"""The options of ``vtwin observe`` that say what one request asks for, by its API."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from observe.settings import CHOICES, IMAGE_SIDE, INPUTS
from traces import ConfigError
from traces.strict.option_table import option_table

if TYPE_CHECKING:
    from observe.settings import Settings

REQUESTS = "Requests"


@option_table
class KindOptions:
    """How many inputs or answers a request has, its images, and the tools that its answer may call."""

    batch_inputs: Annotated[
        int | None,
        typer.Option(
            min=INPUTS.least,
            max=INPUTS.most,
            metavar="N",
            help="With --api embeddings, pooling, classify, rerank or score: N inputs a request, each of "
            "--prompt-tokens. Default: 1.",
            rich_help_panel=REQUESTS,
        ),
    ] = None
    n: Annotated[
        int | None,
        typer.Option(
            "--n",
            min=CHOICES.least,
            max=CHOICES.most,
            metavar="N",
            help="N answers to each prompt (choices), at temperature 1. Tokens are those of all, gaps between tokens "
            "those of the first.",
            rich_help_panel=REQUESTS,
        ),
    ] = None
    tools: Annotated[
        Path | None,
        typer.Option(
            metavar="TOOLS.json",
            help="Tools that answers may call: the chat API's tools array. Answers then end where the model ends them. "
            "Needs --api chat or responses.",
            rich_help_panel=REQUESTS,
        ),
    ] = None
    tool_choice: Annotated[
        str | None,
        typer.Option(
            metavar="TEXT",
            help="With --tools: auto, required, none, or the name of one. Default: auto.",
            rich_help_panel=REQUESTS,
        ),
    ] = None

    image_side: Annotated[
        int | None,
        typer.Option(
            min=IMAGE_SIDE.least,
            max=IMAGE_SIDE.most,
            metavar="PIXELS",
            help="Send the images of the workload as drawn pictures (needs --api chat; extra: images). A token of an "
            "image is a square of this side: 28 for Qwen2-VL and Qwen2.5-VL, 32 for Qwen3-VL. Default: as text of as "
            "many tokens.",
            rich_help_panel=REQUESTS,
        ),
    ] = None

    def applied(self, settings: Settings) -> Settings:
        """Return the settings with what these options say. Raises ConfigError for what an API has not."""
        if self.batch_inputs is not None:
            settings = replace(settings, num_inputs=self.batch_inputs)
            if settings.kind.generates:
                raise ConfigError(
                    f"--batch-inputs: got --api {settings.api}, expected one that generates nothing"
                )
            if settings.texts is not None and self.batch_inputs > 1:
                raise ConfigError(
                    "--batch-inputs: cannot be combined with --texts, of which each is a request"
                )
        if self.n is not None and self.n > 1:
            if settings.api not in ("completions", "chat"):
                raise ConfigError(f"--n: got --api {settings.api}, expected completions or chat")
            settings = replace(settings, num_choices=self.n)
        if self.image_side is not None:
            if settings.api != "chat":
                raise ConfigError("--image-side: needs --api chat: a completion has no images")
            if settings.texts is not None:
                raise ConfigError("--image-side: cannot be combined with --texts, which have no images")
            settings = replace(settings, image_side=self.image_side)
        if self.tools is None:
            if self.tool_choice is not None:
                raise ConfigError("--tool-choice: needs --tools TOOLS.json")
            return settings
        if settings.api not in ("chat", "responses"):
            raise ConfigError(f"--tools: got --api {settings.api}, expected chat or responses")
        from observe.kinds.tools import read_tools

        return replace(settings, tools=read_tools(self.tools, choice=self.tool_choice or "auto"))
