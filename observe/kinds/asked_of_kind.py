"""The settings of a run by the options of kinds of requests; what an API has not is refused before anything is sent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from observe.kinds.tools import read_tools
from traces import ConfigError

if TYPE_CHECKING:
    from observe.settings import Settings

_WITH_TOOLS = ("chat", "responses", "messages")
_WITH_MEDIA = {
    "image_side": ("chat", "responses", "messages"),
    "audio_seconds": ("chat", "transcriptions"),
    "video_frames": ("chat",),
}
"""APIs whose requests have what an option draws."""


def with_kind_options(
    settings: Settings,
    *,
    batch_inputs: int | None,
    n: int | None,
    tools: Path | None,
    tool_choice: str | None,
    **drawn: float | None,
) -> Settings:
    """Return the settings with what the options of ``KindOptions`` say. Raises ConfigError for what an API has not."""
    if settings.class_priority is not None and "priority" in settings.kind.lacks:
        raise ConfigError(f"--class-priority: got --api {settings.api}, which has no priority")
    if batch_inputs is not None:
        if settings.kind.generates:
            raise ConfigError(
                f"--batch-inputs: got --api {settings.api}, expected one that generates nothing"
            )
        if settings.texts is not None and batch_inputs > 1:
            raise ConfigError("--batch-inputs: cannot be combined with --texts, of which each is a request")
        settings = replace(settings, num_inputs=batch_inputs)
    if n is not None and n > 1:
        if settings.api not in ("completions", "chat"):
            raise ConfigError(f"--n: got --api {settings.api}, expected completions or chat")
        settings = replace(settings, num_choices=n)
    settings = _with_media(settings, drawn)
    if settings.kind.is_sound:
        _refuse_of_sounds(settings)
    return _with_tools(settings, tools, tool_choice)


def _with_media(settings: Settings, drawn: Mapping[str, Any]) -> Settings:
    """Return the settings with how images, audio and videos are drawn."""
    for name in (name for name, value in drawn.items() if value is not None):
        what, flag = name.partition("_")[0], "--" + name.replace("_", "-")
        if settings.api not in _WITH_MEDIA[name]:
            raise ConfigError(
                f"{flag}: needs --api {' or '.join(_WITH_MEDIA[name])}: no other request has {what}"
            )
        if settings.texts is not None:
            raise ConfigError(f"{flag}: cannot be combined with --texts, which have no {what} parts")
    if drawn["video_frames"] is not None and drawn["image_side"] is None:
        raise ConfigError("--video-frames: needs --image-side, the side of a token of their frames")
    return replace(settings, **drawn)


def _refuse_of_sounds(settings: Settings) -> None:
    """Raise ConfigError for what a sound and its transcription have not, and without the length of a token."""
    from observe.kinds.sound_prompts import seconds_of_token

    seconds_of_token(settings)
    for flag, value in (("--texts", settings.texts), ("--guided", settings.guided)):
        if value is not None:
            raise ConfigError(
                f"{flag}: cannot be combined with --api {settings.api}: sounds in, free text out"
            )


def _with_tools(settings: Settings, tools: Path | None, choice: str | None) -> Settings:
    """Return the settings with the tools that answers may call."""
    if tools is None:
        if choice is not None:
            raise ConfigError("--tool-choice: needs --tools TOOLS.json")
        return settings
    if settings.api not in _WITH_TOOLS:
        raise ConfigError(f"--tools: got --api {settings.api}, expected chat, responses or messages")
    return replace(settings, tools=read_tools(tools, choice=choice or "auto"))
