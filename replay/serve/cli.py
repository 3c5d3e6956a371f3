"""``vtwin serve``. The command imports what is heavy."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from replay.console.twins import load_twin
from replay.serve.options import EndpointOptions
from replay.twin.own.own_code import with_code_option
from traces.strict.option_table import with_option_tables
from traces.strict.tell import say

if TYPE_CHECKING:
    from replay.serve.server import Listening


@with_code_option
@with_option_tables
def serve(asked: EndpointOptions) -> None:
    """Serve the simulated engine over HTTP in real time, as vLLM does: an OpenAI-compatible endpoint.

    With `cluster:` in TWIN.yaml, or --instances, it answers as the fleet behind its router.
    """
    twin = load_twin(
        asked.config,
        asked.defaults,
        instances=asked.instances,
        routing=asked.routing,
        anyway=asked.anyway,
    )
    if asked.port_per_instance and twin.is_plain_server:
        from traces import ConfigError

        raise ConfigError(
            "--port-per-instance: got it without a cluster, expected cluster in TWIN.yaml or --instances"
        )
    from replay.serve.server import run_server

    run_server(
        twin,
        announce=_announce,
        port_per_instance=asked.port_per_instance,
        host=asked.host,
        port=asked.port,
        model=asked.model,
        api_key=asked.api_key,
        request_metrics=asked.enable_per_request_metrics,
        limits=asked.limits(),
    )


def _announce(listening: Listening) -> None:
    """Print the address of a server at once: a script may wait for the line."""
    whose = f" (instance {listening.name})" if listening.name else ""
    say(f"serving {listening.model} on {listening.url}{whose}")
    sys.stdout.flush()
