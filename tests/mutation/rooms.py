"""Which tests answer for which room, and what is known to change nothing."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """Modules (glob patterns) and the tests that must notice when one of them is changed."""

    modules: tuple[str, ...]
    tests: tuple[str, ...]


_CALIBRATE = "tests/calibrate"
ROOMS = {
    "compare": Room(
        modules=("calibrate/compare/*.py",),
        tests=tuple(
            f"{_CALIBRATE}/test_{name}.py"
            for name in (
                "compare_by_hand",
                "statistics_by_hand",
                "resampling_by_hand",
                "served_by_hand",
                "sides_by_hand",
                "order_of_arrival",
                "saturation",
                "pair",
                "bootstrap",
                "engine_steps",
                "errors_by_other_means",
                "rates",
                "network",
                "phases",
                "equivalence",
                "errors",
            )
        ),
    ),
    "objective": Room(
        modules=("calibrate/fit/objective/*.py",),
        tests=tuple(
            f"{_CALIBRATE}/test_{name}.py"
            for name in ("exposures_by_hand", "objective_by_hand", "fit_inputs_by_hand", "fit_extended")
        ),
    ),
    "gate": Room(
        modules=("calibrate/gate/*.py",),
        tests=(
            f"{_CALIBRATE}/test_gate_by_hand.py",
            f"{_CALIBRATE}/test_gate.py",
            f"{_CALIBRATE}/test_errors_by_other_means.py",
            f"{_CALIBRATE}/test_gate_command.py",
        ),
    ),
    "capacity": Room(
        modules=("replay/plan/capacity.py", "replay/plan/evaluation.py", "replay/plan/highest.py"),
        tests=tuple(
            f"tests/replay/plan/test_{name}.py"
            for name in ("highest_by_hand", "rates_by_hand", "capacity_by_hand", "search_by_hand", "capacity")
        ),
    ),
    "verdict": Room(
        modules=("replay/verdict/*.py",),
        tests=("tests/replay/test_verdict_by_hand.py", "tests/replay/test_verdict.py"),
    ),
    "fleet": Room(modules=("sim/fleet/*.py",), tests=("tests/sim/fleet",)),
    "autoscaler": Room(
        modules=("sim/cluster/infrastructure/sizing.py", "sim/cluster/infrastructure/lives.py"),
        tests=tuple(f"tests/sim/cluster/test_{name}.py" for name in ("sizing", "lives", "operations")),
    ),
    "observe": Room(
        modules=("observe/response/*.py", "observe/record/*.py"),
        tests=tuple(
            f"tests/observe/test_{name}.py"
            for name in (
                "record_by_hand",
                "stream_reader",
                "trace_row",
                "recorder",
                "sse",
                "synced_rows",
                "unstreamed",
                "early_stop",
            )
        ),
    ),
    "metrics": Room(
        modules=("traces/metrics.py", "traces/slo.py"),
        tests=(
            "tests/traces/test_metrics_by_hand.py",
            "tests/traces/test_metrics.py",
            "tests/traces/test_slo.py",
            "tests/traces/test_describe_trace.py",
            "tests/traces/test_trace_summary.py",
            "tests/observe/test_client_verdict.py",
            "tests/calibrate/test_compare_by_hand.py",
        ),
    ),
}
