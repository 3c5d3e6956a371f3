"""Replay: a trace and a configuration in, a simulated trace out; and the same engine answering HTTP.

The Python API of this room (everything is imported when first used):

- ``run(trace, config)`` simulates the requests of a trace, for one server and for a cluster, and returns a ``Run``: its
  summary, verdict, latencies, pace band and more, worked out when first asked for. ``RunSettings`` say how to simulate.
- ``find_capacity(workload, config, slo)`` is the highest rate within latency limits, ``find_sessions`` the most
  sessions at once, ``tune(workload, path, slo)`` the engine flags that serve the highest rate, ``sweep(grid)`` the
  table of many runs, ``find_front`` its Pareto front. ``answer.document()`` is what the command's ``--json`` prints.
- ``fleet_demand(workload, slo, profiles)`` is what a fleet is sized for, and ``FleetCheck`` how it is simulated;
  ``size_fleet``, ``compare_fleets``, ``split_fleet``, ``disaggregate_fleet``, ``compare_routers``, ``shed_power`` and
  ``reserve_fleet`` are the questions of ``vtwin fleet`` about it. ``plan_fleet`` is the first of them in one call,
  ``size_pools`` takes the pools of a file.
- ``model_card`` and ``compare_gpus`` are ``vtwin model``, ``find_profiles``, ``read_profile`` and ``check_profile``
  ``vtwin profiles``, ``start_twin`` is ``vtwin config from-serve``.
- ``run_rollouts(workload, config, settings)`` is how long batches of reinforcement learning take, and what would make
  them shorter.
- ``load_config(path)`` reads TWIN.yaml into a ``TwinConfig``, ``dump_config(config)`` is its text again.
- ``simulate_trace(trace, config)`` simulates the requests of a trace; ``summarize(simulation, trace)`` is the
  part of ``vtwin run --json`` about all requests; ``Run.document()`` is the whole.
- ``requests_from_trace(trace, block_size=16)`` is the trace as the columns that ``sim.simulate`` takes;
  ``pacing_of(trace)`` says whether answers set its pace, ``paced_requests(trace, pacing, block_size=16)`` applies it.
- ``lookup_defaults(model, gpu, tp=1)`` finds coefficients on record, ``write_defaults_entry(path, entry)``
  puts them there.
- ``tell_when_compiling()`` prints a line on stderr when the first call that simulates compiles the engine.
- ``serving(config)`` is an OpenAI-compatible server around the engine, as an async context manager; ``run_server``
serves until SIGINT or SIGTERM. ``exploring(path, workload)`` is the page of ``vtwin explore``, likewise.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from traces.strict.lazy_door import homes_of, opened

if TYPE_CHECKING:
    from replay.capacity.question import find_capacity as find_capacity
    from replay.capacity.question import find_sessions as find_sessions
    from replay.cluster.simulate import simulate_trace as simulate_trace
    from replay.config.question import StartedTwin as StartedTwin
    from replay.config.question import start_twin as start_twin
    from replay.console.ready import tell_when_compiling as tell_when_compiling
    from replay.explore.page_server import exploring as exploring
    from replay.fleet.answers import FleetAnswer as FleetAnswer
    from replay.fleet.answers import SizedFleet as SizedFleet
    from replay.fleet.demand import FleetCheck as FleetCheck
    from replay.fleet.demand import FleetDemand as FleetDemand
    from replay.fleet.demand import fleet_demand as fleet_demand
    from replay.fleet.other_questions import FleetProfile as FleetProfile
    from replay.fleet.other_questions import fleet_profile as fleet_profile
    from replay.fleet.other_questions import size_pools as size_pools
    from replay.fleet.question import HandoffLinks as HandoffLinks
    from replay.fleet.question import compare_fleets as compare_fleets
    from replay.fleet.question import compare_routers as compare_routers
    from replay.fleet.question import disaggregate_fleet as disaggregate_fleet
    from replay.fleet.question import plan_fleet as plan_fleet
    from replay.fleet.question import reserve_fleet as reserve_fleet
    from replay.fleet.question import shed_power as shed_power
    from replay.fleet.question import size_fleet as size_fleet
    from replay.fleet.question import split_fleet as split_fleet
    from replay.gpus.model_card import ModelCard as ModelCard
    from replay.gpus.model_card import model_card as model_card
    from replay.gpus.options import GpuCompareOptions as GpuCompareOptions
    from replay.gpus.options import ModelInfoOptions as ModelInfoOptions
    from replay.gpus.question import ComparedGpus as ComparedGpus
    from replay.gpus.question import compare_gpus as compare_gpus
    from replay.profiles.fitted_profile import read_profile as read_profile
    from replay.profiles.question import CheckedProfile as CheckedProfile
    from replay.profiles.question import FoundProfiles as FoundProfiles
    from replay.profiles.question import check_profile as check_profile
    from replay.profiles.question import find_profiles as find_profiles
    from replay.rollouts.rollouts import Rollouts as Rollouts
    from replay.rollouts.rollouts import RolloutSettings as RolloutSettings
    from replay.rollouts.rollouts import run_rollouts as run_rollouts
    from replay.serve.request_limits import RequestLimits as RequestLimits
    from replay.serve.server import run_server as run_server
    from replay.serve.server import serving as serving
    from replay.simulation.pace_band import paced as paced
    from replay.simulation.run_plan import RunSettings as RunSettings
    from replay.simulation.run_verdict import judge_trace as judge_trace
    from replay.simulation.simulated_run import Run as Run
    from replay.simulation.simulated_run import run as run
    from replay.sweeps.question import SweepFront as SweepFront
    from replay.sweeps.question import find_front as find_front
    from replay.sweeps.question import sweep as sweep
    from replay.trace.pacing import Pacing as Pacing
    from replay.trace.pacing import paced_requests as paced_requests
    from replay.trace.pacing import pacing_of as pacing_of
    from replay.trace.request_columns import requests_from_trace as requests_from_trace
    from replay.trace.simulation_summary import summarize as summarize
    from replay.trace.trace_notes import trace_notes as trace_notes
    from replay.tuning.question import tune as tune
    from replay.twin.config_read import load_config as load_config
    from replay.twin.config_write import dump_config as dump_config
    from replay.twin.defaults import DefaultsEntry as DefaultsEntry
    from replay.twin.defaults import Provenance as Provenance
    from replay.twin.defaults import read_defaults as read_defaults
    from replay.twin.defaults_write import write_defaults_entry as write_defaults_entry
    from replay.twin.own.own_code import allowing_code as allowing_code
    from replay.twin.recorded_coefficients import lookup_defaults as lookup_defaults
    from replay.twin.twin_config import TwinConfig as TwinConfig
    from replay.twin.twin_config import check_fits as check_fits
    from replay.verdict.judged import Judged as Judged

_HOMES = homes_of(
    {
        "replay.capacity.question": "find_capacity find_sessions",
        "replay.cluster.simulate": "simulate_trace",
        "replay.config.question": "start_twin StartedTwin",
        "replay.console.ready": "tell_when_compiling",
        "replay.explore.page_server": "exploring",
        "replay.fleet.answers": "FleetAnswer SizedFleet",
        "replay.fleet.demand": "fleet_demand FleetCheck FleetDemand",
        "replay.fleet.other_questions": "fleet_profile FleetProfile size_pools",
        "replay.fleet.question": (
            "compare_fleets compare_routers disaggregate_fleet HandoffLinks plan_fleet reserve_fleet "
            "shed_power size_fleet split_fleet"
        ),
        "replay.gpus.model_card": "model_card ModelCard",
        "replay.gpus.options": "GpuCompareOptions ModelInfoOptions",
        "replay.gpus.question": "compare_gpus ComparedGpus",
        "replay.profiles.fitted_profile": "read_profile",
        "replay.profiles.question": "check_profile CheckedProfile find_profiles FoundProfiles",
        "replay.rollouts.rollouts": "Rollouts RolloutSettings run_rollouts",
        "replay.serve.request_limits": "RequestLimits",
        "replay.serve.server": "run_server serving",
        "replay.simulation.pace_band": "paced",
        "replay.simulation.run_plan": "RunSettings",
        "replay.simulation.run_verdict": "judge_trace",
        "replay.simulation.simulated_run": "Run run",
        "replay.sweeps.question": "find_front sweep SweepFront",
        "replay.trace.pacing": "paced_requests Pacing pacing_of",
        "replay.trace.request_columns": "requests_from_trace",
        "replay.trace.simulation_summary": "summarize",
        "replay.trace.trace_notes": "trace_notes",
        "replay.tuning.question": "tune",
        "replay.twin.config_read": "load_config",
        "replay.twin.config_write": "dump_config",
        "replay.twin.defaults": "DefaultsEntry Provenance read_defaults",
        "replay.twin.defaults_write": "write_defaults_entry",
        "replay.twin.own.own_code": "allowing_code",
        "replay.twin.recorded_coefficients": "lookup_defaults",
        "replay.twin.twin_config": "check_fits TwinConfig",
        "replay.verdict.judged": "Judged",
    }
)
"""Where each name of the door is at home."""
__all__ = list(_HOMES)
__getattr__, __dir__ = opened(__name__, _HOMES)
