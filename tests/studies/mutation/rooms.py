"""Which tests answer for which room."""

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
    "counting": Room(
        modules=("sim/engine/counting/*.py", "sim/countable.py"),
        tests=("tests/sim/engine/counting",),  # each change has the engine compiled: half a minute
    ),
    "answers": Room(
        modules=("sim/engine/deadlines.py", "sim/engine/abort.py"),
        tests=("tests/sim/engine/test_deadlines.py", "tests/sim/engine/test_reference.py"),
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
    "weka": Room(
        modules=("traces/importers/weka.py",),
        tests=("tests/traces/importers/test_weka.py", "tests/traces/importers/test_short_names.py"),
    ),
    "otel": Room(modules=("traces/importers/otel/*.py",), tests=("tests/traces/importers/otel",)),
    "receive": Room(
        modules=("observe/receive/*.py",),
        tests=("tests/observe/receive/test_plain_windows.py", "tests/observe/receive"),
    ),
    "layers": Room(
        modules=("replay/model/layers/*.py",),
        tests=(
            "tests/replay/model/layers/test_shapes.py",
            "tests/replay/model/layers",
            "tests/replay/model/test_families.py",
        ),
    ),
    "recorded": Room(
        modules=(
            "traces/importers/recorded.py",
            "traces/importers/recognise.py",
            "traces/importers/without_requests.py",
        ),
        tests=(
            "tests/traces/importers/test_reading_door.py",
            "tests/traces/importers/test_files_without_requests.py",
        ),
    ),
    "turns": Room(
        modules=("traces/importers/conversation_turns.py", "traces/importers/hash_blocks.py"),
        tests=(
            "tests/traces/importers/test_conversation_turns.py",
            "tests/traces/importers/test_hash_blocks.py",
        ),
    ),
    "benchmarks": Room(
        modules=("traces/importers/benchmarks/*.py",),
        tests=("tests/traces/importers/benchmarks", "tests/traces/importers/test_importers.py"),
    ),
    "logs": Room(
        modules=("traces/importers/logs/*.py",),
        tests=("tests/traces/importers/logs", "tests/traces/importers/test_importers.py"),
    ),
    "simulators": Room(
        modules=("traces/importers/simulators/*.py",),
        tests=("tests/traces/importers/simulators", "tests/traces/importers/test_importers.py"),
    ),
    "findings": Room(
        modules=("traces/findings/*.py",),
        tests=("tests/traces/findings/test_plain_findings.py", "tests/traces/findings"),
    ),
    "measured": Room(
        modules=("traces/measured/*.py",),
        tests=("tests/traces/measured", "tests/traces/findings/test_run_findings.py"),
    ),
    "owner": Room(
        modules=("traces/files/output_lock.py",),
        tests=("tests/traces/files/test_output_lock.py",),
    ),
    "options": Room(
        modules=("traces/console/values.py", "traces/console/old_spellings.py"),
        tests=("tests/traces/console/test_values.py", "tests/traces/console/test_old_spellings.py"),
    ),
    "strict": Room(
        modules=(
            "traces/strict/arguments.py",
            "traces/strict/free_memory.py",
            "traces/strict/json_text.py",
        ),
        tests=(
            "tests/traces/strict/test_arguments.py",
            "tests/traces/strict/test_free_memory.py",
            "tests/traces/strict/test_json_text.py",
        ),
    ),
    "starting": Room(
        modules=(
            "replay/twin/start/manifests.py",
            "replay/twin/start/container_tags.py",
            "replay/twin/start/shell_words.py",
            "replay/twin/start/several_engines.py",
        ),
        tests=(
            "tests/replay/twin/start/test_manifests.py",
            "tests/replay/twin/start/test_launches.py",
            "tests/replay/twin/start/test_several_engines.py",
        ),
    ),
    "stretches": Room(
        modules=("replay/verdict/stretches.py", "replay/verdict/sentences.py"),
        tests=(
            "tests/replay/verdict/test_known_queues.py",
            "tests/replay/verdict/test_stretches_by_hand.py",
            "tests/replay/verdict/test_plain_stretches.py",
            "tests/replay/verdict",
        ),
    ),
    "ceiling": Room(modules=("replay/search/ceiling.py",), tests=("tests/replay/search/test_ceiling.py",)),
    "profiles": Room(
        modules=("calibrate/predictor/profiles/*.py",),
        tests=(
            "tests/calibrate/predictor/profiles/test_plain_tables.py",
            "tests/calibrate/predictor/profiles",
            "tests/calibrate/predictor/test_measured_windows.py",
        ),
    ),
    "sessions": Room(
        modules=("replay/sessions/*.py",),
        tests=(
            "tests/replay/sessions/test_plain_sessions.py",
            "tests/replay/sessions/test_sessions_by_hand.py",
            "tests/replay/sessions/test_reuse.py",
            "tests/replay/sessions",
        ),
    ),
    "notebook": Room(modules=("traces/pages/notebook.py",), tests=("tests/traces/pages/test_notebook.py",)),
    "steps": Room(
        modules=("calibrate/steps/*.py",),
        tests=("tests/calibrate/steps/test_plain_steps.py", "tests/calibrate/steps"),
    ),
    "passes": Room(modules=("traces/steps/*.py",), tests=("tests/traces/steps",)),
    "beyond the fit": Room(
        modules=("calibrate/fit/beyond.py", "replay/search/beyond_fit.py"),
        tests=(
            "tests/calibrate/fit/test_beyond_by_hand.py",
            "tests/calibrate/fit/test_beyond.py",
            "tests/replay/search/test_beyond_fit.py",
        ),
    ),
    "throttling": Room(
        modules=("sim/latency/throttling.py",), tests=("tests/sim/latency/test_throttling.py",)
    ),
    "joining": Room(modules=("sim/fleet/joining.py",), tests=("tests/sim/fleet/test_joining.py",)),
    "profile files": Room(modules=("replay/profiles/*.py",), tests=("tests/replay/profiles",)),
    "kernels": Room(modules=("replay/model/kernels/*.py",), tests=("tests/replay/model/kernels",)),
    "fitted twin": Room(
        modules=("replay/twin/fitted/*.py",),
        tests=(
            "tests/replay/twin/fitted/test_fitted_by_hand.py",
            "tests/replay/twin/fitted/test_plain_ranges.py",
            "tests/replay/twin/fitted/test_fitted_on.py",
            "tests/replay/twin/fitted/test_like_against_like.py",
            "tests/replay/twin/fitted/test_tiles_and_pace.py",
            "tests/replay/profiles",
            "tests/replay/search/test_beyond_fit.py",
        ),
    ),
    "peers": Room(modules=("traces/peers/*.py",), tests=("tests/traces/peers",)),
    "swapped": Room(modules=("traces/strict/swapped.py",), tests=("tests/traces/strict/test_swapped.py",)),
}
