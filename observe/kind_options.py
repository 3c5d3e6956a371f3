"""The options of ``vtwin observe`` that say what one request asks for, by its API."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from observe.settings import AUDIO_SECONDS, CHOICES, IMAGE_SIDE, INPUTS, VIDEO_FRAMES
from traces import ConfigError
from traces.strict.option_table import option_table

if TYPE_CHECKING:
    from observe.settings import Settings

REQUESTS = "Requests"


@option_table
class KindOptions:
    """How many inputs or answers a request has, its images and sounds, and the tools that its answer may call."""

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
            "Needs --api chat, responses or messages.",
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
    audio_seconds: Annotated[
        float | None,
        typer.Option(
            min=AUDIO_SECONDS.least,
            max=AUDIO_SECONDS.most,
            metavar="S",
            help="Send the audio of the workload as drawn sound (needs --api chat). A token is so many seconds of it: "
            "0.04 for Qwen2-Audio and Qwen2.5-Omni, 0.08 for Voxtral. Default: as text of as many tokens.",
            rich_help_panel=REQUESTS,
        ),
    ] = None
    video_frames: Annotated[
        int | None,
        typer.Option(
            min=VIDEO_FRAMES.least,
            max=VIDEO_FRAMES.most,
            metavar="N",
            help="Send each video of the workload as N drawn frames (needs --image-side): a square of two frames is a "
            "token. Default: as text of as many tokens.",
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
        if settings.class_priority is not None and "priority" in settings.kind.lacks:
            raise ConfigError(f"--class-priority: got --api {settings.api}, which has no priority")
        settings = self._with_media(settings)
        if self.tools is None:
            if self.tool_choice is not None:
                raise ConfigError("--tool-choice: needs --tools TOOLS.json")
            return settings
        if settings.api not in ("chat", "responses", "messages"):
            raise ConfigError(f"--tools: got --api {settings.api}, expected chat, responses or messages")
        from observe.kinds.tools import read_tools

        return replace(settings, tools=read_tools(self.tools, choice=self.tool_choice or "auto"))

    def _with_media(self, settings: Settings) -> Settings:
        """Return the settings with how images, audio and videos are drawn. Raises ConfigError."""
        drawn = {name: getattr(self, name) for name in ("image_side", "audio_seconds", "video_frames")}
        for name, value in drawn.items():
            if value is None:
                continue
            what, flag = name.partition("_")[0], "--" + name.replace("_", "-")
            if settings.api != "chat":
                raise ConfigError(f"{flag}: needs --api chat: no other request has {what} parts")
            if settings.texts is not None:
                raise ConfigError(f"{flag}: cannot be combined with --texts, which have no {what} parts")
        if self.video_frames is not None and self.image_side is None:
            raise ConfigError("--video-frames: needs --image-side, the side of a token of their frames")
        return replace(settings, **drawn)
