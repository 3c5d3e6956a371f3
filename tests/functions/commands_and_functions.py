"""Which function of a door answers as a command does, and what of its answer is the command's document."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tests.docs.pages import ROOT, rows_below

PAGE: Final = ROOT / "docs" / "how-to" / "use-from-python.md"
HEADING: Final = "Every command as a function"


@dataclass(frozen=True, slots=True)
class Row:
    """``functions``: of doors, the one that answers first. ``document``: what the command prints or writes, of it."""

    functions: tuple[str, ...]
    document: str = "`document()`"

    def cells(self, command: str) -> list[str]:
        """Return the row as the page has it."""
        return [f"`vtwin {command}`", ", ".join(f"`{each}`" for each in self.functions), self.document]


ROWS: Final[dict[str, Row]] = {
    "observe": Row(
        ("observe.observe_with", "observe.summarize_observed", "observe.find_capacity"),
        "`summarize_observed(observation.trace)`; of `find_capacity` `document()`",
    ),
    "receive": Row(("observe.receive_spans",), "the traces that it writes"),
    "selfcheck": Row(("observe.check_client",)),
    "report": Row(("observe.report_runs",), "`html()`, the page"),
    "compare": Row(("calibrate.compare_files",)),
    "validate": Row(
        ("observe.observe_with", "calibrate.calibrate_twin"), "the commands `observe`, `calibrate`"
    ),
    "demo": Row(("observe.observe_with", "calibrate.calibrate_twin"), "the commands `observe`, `calibrate`"),
    "run": Row(("replay.run", "traces.workload.trace_from_options")),
    "replay": Row(("replay.run", "traces.read_trace")),
    "explore": Row(("replay.exploring",), "the page"),
    "capacity": Row(("replay.find_capacity", "replay.find_sessions")),
    "tune": Row(("replay.tune",)),
    "sweep": Row(("replay.sweep", "replay.find_front"), "the table; `find_front(grid, table).document()`"),
    "rollouts": Row(("replay.run_rollouts",)),
    "serve": Row(("replay.run_server", "replay.serving"), "the answers to requests"),
    "calibrate": Row(
        ("calibrate.calibrate_twin", "calibrate.compare_with_twin", "calibrate.compare_with_simulated"),
        "what `write_report` returns",
    ),
    "calibrate guided": Row(("calibrate.fit_guided",)),
    "calibrate host": Row(("calibrate.fit_host",)),
    "calibrate models": Row(("calibrate.score_models",)),
    "profiles list": Row(("replay.find_profiles",)),
    "profiles show": Row(("replay.read_profile",)),
    "profiles check": Row(("replay.check_profile",)),
    "predictor list": Row(("replay.twin.shipped_tables",), "`document()` of each"),
    "predictor train": Row(("calibrate.train_step_tables",), "`document()`, and the file's size and time"),
    "config show": Row(("replay.dump_config", "replay.load_config"), "the text"),
    "config from-serve": Row(("replay.start_twin",), "`text`"),
    "fleet size": Row(
        (
            "replay.size_fleet",
            "replay.plan_fleet",
            "replay.compare_fleets",
            "replay.split_fleet",
            "replay.disaggregate_fleet",
            "replay.size_pools",
        )
    ),
    "fleet profile": Row(("replay.fleet_profile",)),
    "fleet routers": Row(("replay.compare_routers",)),
    "fleet flex": Row(("replay.shed_power",)),
    "fleet reserve": Row(("replay.reserve_fleet",)),
    "model info": Row(("replay.model_card",)),
    "model compare": Row(("replay.compare_gpus",)),
    "trace check": Row(("traces.check_recorded",)),
    "trace info": Row(("traces.describe_file",)),
    "trace convert": Row(("traces.convert", "traces.write_trace", "traces.export"), "the files"),
    "trace synth": Row(("traces.workload.trace_from_options", "traces.write_trace"), "the trace"),
    "trace export": Row(("traces.write_table",), "the table"),
}
"""By command, without ``vtwin``."""


def rows_on_the_page() -> list[list[str]]:
    """Return the table of the page on Python, a list of cells a row."""
    return rows_below(PAGE, HEADING)
