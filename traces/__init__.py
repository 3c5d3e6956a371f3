"""What a request is, on disk and in memory: TraceV2, its checks, its metrics, its importers.

    from traces import read_trace, request_metrics, write_trace

    trace = read_trace("runs/a")              # stem, header or table
    request_metrics(trace)["ttft_us"].mean()
    write_trace(trace, "runs/a.parquet")

A workload is a trace without outcomes. Times are int64 µs from the run's start; missing is NA, never 0.
Names are imported when first used, so that importing this package costs nothing.
"""

from __future__ import annotations

from importlib import import_module

TYPE_CHECKING = False  # without typing, which is the most that a start costs until Ctrl-C is heeded

if TYPE_CHECKING:
    from traces.atomic import atomic_file, check_place, make_folder, refuse_foreign, write_folder, write_text
    from traces.conversion import convert
    from traces.coverage import Coverage, Treatment
    from traces.errors import (
        ConfigError,
        ExitCode,
        ServerError,
        TraceError,
        VtwinError,
        cut,
        quoted,
        with_cut_pieces,
    )
    from traces.exporters import export
    from traces.exporters.flat_table import write_table
    from traces.files.check import check_trace
    from traces.files.output_lock import sole_owner
    from traces.files.overwrite import note_replaced, refuse_input
    from traces.files.read import read_header, read_trace
    from traces.files.write import write_trace
    from traces.findings.late_client import early_us, ttft_too_long_us
    from traces.findings.prefix_ceiling import prefix_hit_ceiling_frac
    from traces.findings.run_findings import finding_lines, findings_of, marked, several_engines
    from traces.findings.tail_precision import (
        Precision,
        TailPrecision,
        fewest_beyond,
        precision_of,
        precision_rows,
    )
    from traces.header import (
        ClientInfo,
        ClosedLoop,
        CounterReading,
        Header,
        Network,
        ProcessInfo,
        RunFinding,
        ServerInfo,
        SLOTarget,
        Source,
        SpecDecode,
        header_yaml,
        tool_version,
    )
    from traces.importers.recorded import (
        CheckedTrace,
        check_load,
        check_recorded,
        file_at,
        format_of,
        parts_at,
        read_recorded,
        reading_notes,
    )
    from traces.measured.finish_reasons import failure_status
    from traces.measured.stream_shape import SAME_READ_US, StreamShape, stream_shape
    from traces.metrics import (
        AS_DRAWN,
        METRIC_COLUMNS,
        MetricNotes,
        TokenGaps,
        cut_short_note,
        finished_ok,
        has_failed,
        is_from_start,
        latencies_us,
        mean_rate_per_s,
        metric_notes,
        pooled_itl_us,
        prompt_tokens,
        request_latencies,
        request_metrics,
        send_or_arrival_us,
        sent_or_due,
        served_output,
        token_gaps,
    )
    from traces.peers.peer_metrics import PEER_METRICS, own_figure
    from traces.priorities import PRIORITY_OF_CLASS, by_class, request_priorities
    from traces.run_slo import RunLimit, parse_run_slo
    from traces.schema import EVENT_FIELDS, FIELDS
    from traces.slo import MOST_FAILED, Attainment, Goodput, goodput, meets_slo, parse_slo
    from traces.tables.cells import Cells, all_known, cells_where
    from traces.tables.csv_parquet import write_parquet
    from traces.tables.event_rules import request_codes
    from traces.tables.hash_chains import HashChains, chained, known_before, own_hashes, whole_hashes
    from traces.tables.image_lists import ImageLists, image_lists
    from traces.tables.paths import companion_file, locate, stem_of
    from traces.tables.problems import Problem
    from traces.tables.session_tree import has_tree, session_tree, waits_for_named
    from traces.trace import Trace, make_trace, select_rows
    from traces.trace_summary import DescribedFile, Quantity, Summary, describe_file, summarize_trace
    from traces.units import (
        counted,
        four_digits,
        in_unit,
        or_null,
        parse_seconds,
        shown_time,
        tail_text,
        terminal_width,
        unit_of,
    )
    from traces.warm_up import is_warmup, load_alone, without_warmup
    from traces.workload.recorded.known_lengths import with_known_lengths

__all__ = [
    "AS_DRAWN",
    "EVENT_FIELDS",
    "FIELDS",
    "METRIC_COLUMNS",
    "MOST_FAILED",
    "PEER_METRICS",
    "PRIORITY_OF_CLASS",
    "SAME_READ_US",
    "Attainment",
    "Cells",
    "CheckedTrace",
    "ClientInfo",
    "ClosedLoop",
    "ConfigError",
    "CounterReading",
    "Coverage",
    "DescribedFile",
    "ExitCode",
    "Goodput",
    "HashChains",
    "Header",
    "ImageLists",
    "MetricNotes",
    "Network",
    "Precision",
    "Problem",
    "ProcessInfo",
    "Quantity",
    "RunFinding",
    "RunLimit",
    "SLOTarget",
    "ServerError",
    "ServerInfo",
    "Source",
    "SpecDecode",
    "StreamShape",
    "Summary",
    "TailPrecision",
    "TokenGaps",
    "Trace",
    "TraceError",
    "Treatment",
    "VtwinError",
    "all_known",
    "atomic_file",
    "by_class",
    "cells_where",
    "chained",
    "check_load",
    "check_place",
    "check_recorded",
    "check_trace",
    "companion_file",
    "convert",
    "counted",
    "cut",
    "cut_short_note",
    "describe_file",
    "early_us",
    "export",
    "failure_status",
    "fewest_beyond",
    "file_at",
    "finding_lines",
    "findings_of",
    "finished_ok",
    "format_of",
    "four_digits",
    "goodput",
    "has_failed",
    "has_tree",
    "header_yaml",
    "image_lists",
    "in_unit",
    "is_from_start",
    "is_warmup",
    "known_before",
    "latencies_us",
    "load_alone",
    "locate",
    "make_folder",
    "make_trace",
    "marked",
    "mean_rate_per_s",
    "meets_slo",
    "metric_notes",
    "note_replaced",
    "or_null",
    "own_figure",
    "own_hashes",
    "parse_run_slo",
    "parse_seconds",
    "parse_slo",
    "parts_at",
    "pooled_itl_us",
    "precision_of",
    "precision_rows",
    "prefix_hit_ceiling_frac",
    "prompt_tokens",
    "quoted",
    "read_header",
    "read_recorded",
    "read_trace",
    "reading_notes",
    "refuse_foreign",
    "refuse_input",
    "request_codes",
    "request_latencies",
    "request_metrics",
    "request_priorities",
    "select_rows",
    "send_or_arrival_us",
    "sent_or_due",
    "served_output",
    "session_tree",
    "several_engines",
    "shown_time",
    "sole_owner",
    "stem_of",
    "stream_shape",
    "summarize_trace",
    "tail_text",
    "terminal_width",
    "token_gaps",
    "tool_version",
    "ttft_too_long_us",
    "unit_of",
    "waits_for_named",
    "whole_hashes",
    "with_cut_pieces",
    "with_known_lengths",
    "without_warmup",
    "write_folder",
    "write_parquet",
    "write_table",
    "write_text",
    "write_trace",
]

_HOMES = {
    "export": "traces.exporters",
    "write_table": "traces.exporters.flat_table",
    "describe_file": "traces.trace_summary",
    "DescribedFile": "traces.trace_summary",
    "check_recorded": "traces.importers.recorded",
    "CheckedTrace": "traces.importers.recorded",
    "AS_DRAWN": "traces.metrics",
    "Attainment": "traces.slo",
    "Cells": "traces.tables.cells",
    "RunFinding": "traces.header",
    "cut": "traces.errors",
    "finding_lines": "traces.findings.run_findings",
    "findings_of": "traces.findings.run_findings",
    "marked": "traces.findings.run_findings",
    "quoted": "traces.errors",
    "several_engines": "traces.findings.run_findings",
    "failure_status": "traces.measured.finish_reasons",
    "SAME_READ_US": "traces.measured.stream_shape",
    "StreamShape": "traces.measured.stream_shape",
    "stream_shape": "traces.measured.stream_shape",
    "ClientInfo": "traces.header",
    "ClosedLoop": "traces.header",
    "ConfigError": "traces.errors",
    "ExitCode": "traces.errors",
    "CounterReading": "traces.header",
    "Coverage": "traces.coverage",
    "EVENT_FIELDS": "traces.schema",
    "FIELDS": "traces.schema",
    "Goodput": "traces.slo",
    "HashChains": "traces.tables.hash_chains",
    "Header": "traces.header",
    "ImageLists": "traces.tables.image_lists",
    "METRIC_COLUMNS": "traces.metrics",
    "MOST_FAILED": "traces.slo",
    "PEER_METRICS": "traces.peers.peer_metrics",
    "MetricNotes": "traces.metrics",
    "Network": "traces.header",
    "PRIORITY_OF_CLASS": "traces.priorities",
    "Problem": "traces.tables.problems",
    "ProcessInfo": "traces.header",
    "Quantity": "traces.trace_summary",
    "RunLimit": "traces.run_slo",
    "Precision": "traces.findings.tail_precision",
    "TailPrecision": "traces.findings.tail_precision",
    "SLOTarget": "traces.header",
    "ServerError": "traces.errors",
    "ServerInfo": "traces.header",
    "Source": "traces.header",
    "SpecDecode": "traces.header",
    "Summary": "traces.trace_summary",
    "TokenGaps": "traces.metrics",
    "Trace": "traces.trace",
    "TraceError": "traces.errors",
    "Treatment": "traces.coverage",
    "VtwinError": "traces.errors",
    "all_known": "traces.tables.cells",
    "atomic_file": "traces.atomic",
    "by_class": "traces.priorities",
    "cells_where": "traces.tables.cells",
    "chained": "traces.tables.hash_chains",
    "check_load": "traces.importers.recorded",
    "check_place": "traces.atomic",
    "check_trace": "traces.files.check",
    "companion_file": "traces.tables.paths",
    "convert": "traces.conversion",
    "counted": "traces.units",
    "cut_short_note": "traces.metrics",
    "early_us": "traces.findings.late_client",
    "file_at": "traces.importers.recorded",
    "finished_ok": "traces.metrics",
    "format_of": "traces.importers.recorded",
    "four_digits": "traces.units",
    "in_unit": "traces.units",
    "goodput": "traces.slo",
    "has_failed": "traces.metrics",
    "has_tree": "traces.tables.session_tree",
    "header_yaml": "traces.header",
    "image_lists": "traces.tables.image_lists",
    "is_from_start": "traces.metrics",
    "is_warmup": "traces.warm_up",
    "known_before": "traces.tables.hash_chains",
    "latencies_us": "traces.metrics",
    "load_alone": "traces.warm_up",
    "locate": "traces.tables.paths",
    "make_folder": "traces.atomic",
    "make_trace": "traces.trace",
    "mean_rate_per_s": "traces.metrics",
    "meets_slo": "traces.slo",
    "own_figure": "traces.peers.peer_metrics",
    "metric_notes": "traces.metrics",
    "note_replaced": "traces.files.overwrite",
    "or_null": "traces.units",
    "own_hashes": "traces.tables.hash_chains",
    "parse_run_slo": "traces.run_slo",
    "fewest_beyond": "traces.findings.tail_precision",
    "precision_of": "traces.findings.tail_precision",
    "precision_rows": "traces.findings.tail_precision",
    "parse_seconds": "traces.units",
    "parse_slo": "traces.slo",
    "parts_at": "traces.importers.recorded",
    "pooled_itl_us": "traces.metrics",
    "prefix_hit_ceiling_frac": "traces.findings.prefix_ceiling",
    "prompt_tokens": "traces.metrics",
    "read_header": "traces.files.read",
    "read_recorded": "traces.importers.recorded",
    "read_trace": "traces.files.read",
    "reading_notes": "traces.importers.recorded",
    "refuse_foreign": "traces.atomic",
    "refuse_input": "traces.files.overwrite",
    "request_codes": "traces.tables.event_rules",
    "request_latencies": "traces.metrics",
    "request_metrics": "traces.metrics",
    "request_priorities": "traces.priorities",
    "select_rows": "traces.trace",
    "send_or_arrival_us": "traces.metrics",
    "sent_or_due": "traces.metrics",
    "served_output": "traces.metrics",
    "session_tree": "traces.tables.session_tree",
    "shown_time": "traces.units",
    "unit_of": "traces.units",
    "sole_owner": "traces.files.output_lock",
    "stem_of": "traces.tables.paths",
    "summarize_trace": "traces.trace_summary",
    "tail_text": "traces.units",
    "terminal_width": "traces.units",
    "token_gaps": "traces.metrics",
    "tool_version": "traces.header",
    "ttft_too_long_us": "traces.findings.late_client",
    "waits_for_named": "traces.tables.session_tree",
    "whole_hashes": "traces.tables.hash_chains",
    "with_cut_pieces": "traces.errors",
    "with_known_lengths": "traces.workload.recorded.known_lengths",
    "without_warmup": "traces.warm_up",
    "write_folder": "traces.atomic",
    "write_parquet": "traces.tables.csv_parquet",
    "write_text": "traces.atomic",
    "write_trace": "traces.files.write",
}


def __getattr__(name: str) -> object:
    """Import a public name from its module when it is first asked for."""
    if name not in _HOMES:
        raise AttributeError(f"module 'traces' has no attribute {name!r}")
    value: object = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Return what this room offers, for whoever looks around in a shell."""
    return sorted(__all__)
