"""The options of ``vtwin serve``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from replay.console.twins import AnywayOption, InstancesOption, RoutingOption
from replay.numbers.argument_ranges import PORT, TOKEN_SECONDS, TOKEN_SIDE
from traces.console.options import ConfigOption, DefaultsOption
from traces.strict.option_table import option_table

if TYPE_CHECKING:
    from replay.serve.request_limits import RequestLimits


@option_table
class EndpointOptions:
    """The server's address, its API key and limits, and the twin."""

    config: ConfigOption
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1"
    port: Annotated[
        int, typer.Option(min=PORT.least, max=PORT.most, help="Port to listen on; 0 picks a free one.")
    ] = 8000
    model: Annotated[str, typer.Option(help="The served model's name.")] = "vtwin"
    api_key: Annotated[
        str | None,
        typer.Option(envvar="VTWIN_API_KEY", help="Require this API key under /v1.", show_envvar=True),
    ] = None
    enable_per_request_metrics: Annotated[
        bool, typer.Option("--enable-per-request-metrics", help="Add vLLM's metrics object to usage.")
    ] = False
    max_body_bytes: Annotated[
        int, typer.Option(min=1, help="The longest body of a request.", metavar="BYTES")
    ] = 16 * 2**20
    max_prompts: Annotated[int, typer.Option(min=1, help="The most prompts of a request.")] = 128
    max_request_tokens: Annotated[
        int, typer.Option(min=1, help="The most tokens of a request: all its prompts and answers.")
    ] = 2**20
    image_side: Annotated[
        int | None,
        typer.Option(
            min=TOKEN_SIDE.least,
            max=TOKEN_SIDE.most,
            metavar="PIXELS",
            help="Take chats, responses and messages with images, chats with videos (data URLs): a token is a "
            "square of this side, as of observe --image-side. They count as prompt tokens. Default: refuse them "
            "(extra: images).",
        ),
    ] = None
    audio_seconds: Annotated[
        float | None,
        typer.Option(
            min=TOKEN_SECONDS.least,
            max=TOKEN_SECONDS.most,
            metavar="S",
            help="Take transcriptions, and chats with audio (WAV): a token is so many seconds, as of observe "
            "--audio-seconds. They count as prompt tokens. Default: refuse them.",
        ),
    ] = None
    port_per_instance: Annotated[
        bool,
        typer.Option(
            "--port-per-instance",
            help="Serve each instance of the cluster as a server of its own, at --port and the ports after it, "
            "to be put behind a real router.",
        ),
    ] = False
    instances: InstancesOption = None
    routing: RoutingOption = None
    anyway: AnywayOption = False
    defaults: DefaultsOption = None

    def limits(self) -> RequestLimits:
        """Return what a request may have."""
        from replay.serve.chat_parts import part_reader
        from replay.serve.request_limits import RequestLimits

        return RequestLimits(
            max_body_bytes=self.max_body_bytes,
            max_prompts=self.max_prompts,
            max_request_tokens=self.max_request_tokens,
            read_part=part_reader(self.image_side, self.audio_seconds),
        )
