"""Which tests answer for which room, and what is known to change nothing."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """Modules (glob patterns) and the tests that must notice when one of them is changed."""

    modules: tuple[str, ...]
    tests: tuple[str, ...]


ROOMS = {
    "compare": Room(
        modules=("calibrate/compare/*.py",),
        tests=("tests/calibrate/compare", "tests/calibrate/fit/test_order_of_arrival.py"),
    ),
    "objective": Room(
        modules=("calibrate/fit/objective/*.py",),
        tests=("tests/calibrate/fit/objective", "tests/calibrate/fit/test_fit_extended.py"),
    ),
    "gate": Room(
        modules=("calibrate/gate/*.py",),
        tests=(
            "tests/calibrate/gate",
            "tests/calibrate/ci",
            "tests/calibrate/compare/test_errors_by_other_means.py",
        ),
    ),
    "capacity": Room(
        modules=("replay/capacity/capacity.py", "replay/search/evaluation.py", "replay/search/highest.py"),
        tests=("tests/replay/search", "tests/replay/capacity"),
    ),
    "verdict": Room(
        modules=("replay/verdict/*.py",),
        tests=("tests/replay/verdict",),
    ),
    "fleet": Room(modules=("sim/fleet/*.py",), tests=("tests/sim/fleet",)),
    "autoscaler": Room(
        modules=("sim/cluster/infrastructure/autoscaling.py", "sim/cluster/infrastructure/instance_lives.py"),
        tests=("tests/sim/cluster/infrastructure", "tests/sim/cluster/run/changes/test_operations.py"),
    ),
    "observe": Room(
        modules=("observe/response/*.py", "observe/record/*.py"),
        tests=("tests/observe/response", "tests/observe/record", "tests/observe/run/test_early_stop.py"),
    ),
    "metrics": Room(
        modules=("traces/metrics.py", "traces/slo.py"),
        tests=(
            "tests/traces/test_metrics_by_hand.py",
            "tests/traces/test_metrics.py",
            "tests/traces/test_slo.py",
            "tests/traces/exporters/test_describe_trace.py",
            "tests/traces/test_trace_summary.py",
            "tests/observe/result/test_client_verdict.py",
            "tests/calibrate/compare/test_compare_by_hand.py",
        ),
    ),
}
