"""The options of ``vtwin observe`` that say what one request asks for, by its API."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from observe.settings import AUDIO_SECONDS, CHOICES, IMAGE_SIDE, INPUTS, VIDEO_FRAMES
from traces.strict.option_table import option_table

if TYPE_CHECKING:
    from observe.settings import Settings
    from traces.strict.arguments import Count, Number

REQUESTS = "Requests"


def _option(metavar: str, said: str, within: Count | Number | None = None) -> Any:  # noqa: ANN401 - typer's own
    """Return an option; ``within``: the range of a number."""
    least, most = (None, None) if within is None else (within.least, within.most)
    return typer.Option(min=least, max=most, metavar=metavar, help=said, rich_help_panel=REQUESTS)


_INPUTS = """\
With --api embeddings, pooling, classify, rerank or score: N inputs a request, each of --prompt-tokens. Default: 1."""
_CHOICES = """\
N answers to each prompt (choices), at temperature 1. Tokens are those of all, gaps between tokens those of the\
 first."""
_TOOLS = """\
Tools that answers may call: the chat API's tools array. Answers then end where the model ends them. Needs --api chat, \
responses or messages."""
_IMAGES = """\
Send the images of the workload as drawn pictures (needs --api chat, responses or messages; extra: images). A token \
of an image is a square of this side: 28 for Qwen2-VL and Qwen2.5-VL, 32 for Qwen3-VL. Default: as text of as many \
tokens."""
_AUDIO = """\
Send the audio of the workload as drawn sound (--api chat), or all of a prompt (--api transcriptions, which needs \
it). A token is so many seconds of it: 0.02 for Whisper, 0.04 for Qwen2-Audio and Qwen2.5-Omni, 0.08 for Voxtral. \
Default: as text of as many tokens."""
_FRAMES = """\
Send each video of the workload as N drawn frames (needs --api chat and --image-side): a square of two frames is a \
token. Default: as text of as many tokens."""


@option_table
class KindOptions:
    """How many inputs or answers a request has, its images and sounds, and the tools that its answer may call."""

    batch_inputs: Annotated[int | None, _option("N", _INPUTS, INPUTS)] = None
    n: Annotated[int | None, _option("N", _CHOICES, CHOICES)] = None
    tools: Annotated[Path | None, _option("TOOLS.json", _TOOLS)] = None
    tool_choice: Annotated[
        str | None, _option("TEXT", "With --tools: auto, required, none, or the name of one. Default: auto.")
    ] = None
    image_side: Annotated[int | None, _option("PIXELS", _IMAGES, IMAGE_SIDE)] = None
    audio_seconds: Annotated[float | None, _option("S", _AUDIO, AUDIO_SECONDS)] = None
    video_frames: Annotated[int | None, _option("N", _FRAMES, VIDEO_FRAMES)] = None

    def applied(self, settings: Settings) -> Settings:
        """Return the settings with what these options say. Raises ConfigError for what an API has not."""
        if settings.kind.module is None and all(value is None for value in vars(self).values()):
            return settings
        from observe.kinds.asked_of_kind import with_kind_options

        return with_kind_options(settings, **vars(self))
