"""``vtwin fleet``: its commands, each in a module of its own."""

from __future__ import annotations

import typer

from replay.fleet.commands.question_commands import flex, reserve, routers
from replay.fleet.commands.size_command import show_profile, size

fleet_app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    help="How many GPUs a fleet needs, which, and at what cost: by formulas, checked by simulated engines.",
)


@fleet_app.callback()
def _fleet() -> None:
    """Size a fleet."""


fleet_app.command(
    "size",
    epilog="Example: vtwin fleet size --workload azure_cdf.json --rate 200 --slo ttft_p99=500ms --profile A100",
)(size)
fleet_app.command(
    "profile", epilog="Example: vtwin fleet profile --from twin.yaml --workload azure_cdf.json > a100.yaml"
)(show_profile)
fleet_app.command(
    "routers",
    epilog="Example: vtwin fleet routers --workload cdf.json --rate 200 --slo ttft_p99=1s --profile A100 --split 2048",
)(routers)
fleet_app.command(
    "flex",
    epilog="Example: vtwin fleet flex --workload azure_cdf.json --rate 200 --slo ttft_p99=2s --profile A100",
)(flex)
fleet_app.command(
    "reserve",
    epilog="Example: vtwin fleet reserve --workload cdf.json --diurnal 200:40 --slo ttft_p99=1s --profile A100 "
    "--burst-price 1.8x",
)(reserve)
