"""What a request is, on disk and in memory: TraceV2, its checks, its metrics, its importers.

    from traces import read_trace, request_metrics, write_trace

    trace = read_trace("runs/a")              # stem, header or table
    request_metrics(trace)["ttft_us"].mean()
    write_trace(trace, "runs/a.parquet")

A workload is a trace without outcomes. Times are int64 µs from the run's start; missing is NA, never 0.
Names are imported when first used, so that importing this package costs nothing.
"""

from __future__ import annotations

from traces.strict.lazy_door import homes_of, opened

TYPE_CHECKING = False  # without typing, which is the most that a start costs until Ctrl-C is heeded

if TYPE_CHECKING:
    from traces.atomic import atomic_file as atomic_file
    from traces.atomic import check_place as check_place
    from traces.atomic import make_folder as make_folder
    from traces.atomic import refuse_foreign as refuse_foreign
    from traces.atomic import write_folder as write_folder
    from traces.atomic import write_text as write_text
    from traces.conversion import convert as convert
    from traces.coverage import Coverage as Coverage
    from traces.coverage import Treatment as Treatment
    from traces.errors import ConfigError as ConfigError
    from traces.errors import ExitCode as ExitCode
    from traces.errors import ServerError as ServerError
    from traces.errors import TraceError as TraceError
    from traces.errors import VtwinError as VtwinError
    from traces.errors import cut as cut
    from traces.errors import quoted as quoted
    from traces.errors import with_cut_pieces as with_cut_pieces
    from traces.exporters import export as export
    from traces.exporters.flat_table import write_table as write_table
    from traces.files.check import check_trace as check_trace
    from traces.files.output_lock import sole_owner as sole_owner
    from traces.files.overwrite import note_replaced as note_replaced
    from traces.files.overwrite import refuse_input as refuse_input
    from traces.files.read import read_header as read_header
    from traces.files.read import read_trace as read_trace
    from traces.files.write import write_header as write_header
    from traces.files.write import write_trace as write_trace
    from traces.findings.late_client import early_us as early_us
    from traces.findings.late_client import ttft_too_long_us as ttft_too_long_us
    from traces.findings.prefix_ceiling import prefix_hit_ceiling_frac as prefix_hit_ceiling_frac
    from traces.findings.run_findings import OVERLOADED as OVERLOADED
    from traces.findings.run_findings import finding_lines as finding_lines
    from traces.findings.run_findings import findings_of as findings_of
    from traces.findings.run_findings import marked as marked
    from traces.findings.run_findings import several_engines as several_engines
    from traces.findings.same_requests import same_requests as same_requests
    from traces.findings.saturation import Saturation as Saturation
    from traces.findings.saturation import saturation_of as saturation_of
    from traces.findings.tail_precision import NUM_BATCHES as NUM_BATCHES
    from traces.findings.tail_precision import Precision as Precision
    from traces.findings.tail_precision import TailPrecision as TailPrecision
    from traces.findings.tail_precision import fewest_beyond as fewest_beyond
    from traces.findings.tail_precision import interval_text as interval_text
    from traces.findings.tail_precision import num_effective as num_effective
    from traces.findings.tail_precision import precision_of as precision_of
    from traces.findings.tail_precision import precision_rows as precision_rows
    from traces.header import ClientInfo as ClientInfo
    from traces.header import ClosedLoop as ClosedLoop
    from traces.header import CounterReading as CounterReading
    from traces.header import Header as Header
    from traces.header import Network as Network
    from traces.header import PowerInfo as PowerInfo
    from traces.header import ProbeInfo as ProbeInfo
    from traces.header import ProcessInfo as ProcessInfo
    from traces.header import RunFinding as RunFinding
    from traces.header import RunSpread as RunSpread
    from traces.header import ServerInfo as ServerInfo
    from traces.header import SLOTarget as SLOTarget
    from traces.header import Source as Source
    from traces.header import SpecDecode as SpecDecode
    from traces.header import header_yaml as header_yaml
    from traces.header import tool_version as tool_version
    from traces.importers.recorded import CheckedTrace as CheckedTrace
    from traces.importers.recorded import check_load as check_load
    from traces.importers.recorded import check_recorded as check_recorded
    from traces.importers.recorded import file_at as file_at
    from traces.importers.recorded import format_of as format_of
    from traces.importers.recorded import parts_at as parts_at
    from traces.importers.recorded import read_recorded as read_recorded
    from traces.importers.recorded import reading_notes as reading_notes
    from traces.measured.finish_reasons import failure_status as failure_status
    from traces.measured.http_phases import phase_quantities as phase_quantities
    from traces.measured.http_phases import slow_phases as slow_phases
    from traces.measured.stream_shape import SAME_READ_US as SAME_READ_US
    from traces.measured.stream_shape import StreamShape as StreamShape
    from traces.measured.stream_shape import stream_shape as stream_shape
    from traces.metrics import AS_DRAWN as AS_DRAWN
    from traces.metrics import METRIC_COLUMNS as METRIC_COLUMNS
    from traces.metrics import MetricNotes as MetricNotes
    from traces.metrics import TokenGaps as TokenGaps
    from traces.metrics import cut_short_note as cut_short_note
    from traces.metrics import finished_ok as finished_ok
    from traces.metrics import has_failed as has_failed
    from traces.metrics import is_from_start as is_from_start
    from traces.metrics import latencies_us as latencies_us
    from traces.metrics import mean_rate_per_s as mean_rate_per_s
    from traces.metrics import metric_notes as metric_notes
    from traces.metrics import pooled_itl_us as pooled_itl_us
    from traces.metrics import prompt_tokens as prompt_tokens
    from traces.metrics import request_latencies as request_latencies
    from traces.metrics import request_metrics as request_metrics
    from traces.metrics import send_or_arrival_us as send_or_arrival_us
    from traces.metrics import sent_or_due as sent_or_due
    from traces.metrics import served_output as served_output
    from traces.metrics import token_gaps as token_gaps
    from traces.metrics import was_cancelled as was_cancelled
    from traces.peers.peer_metrics import PEER_METRICS as PEER_METRICS
    from traces.peers.peer_metrics import own_figure as own_figure
    from traces.priorities import PRIORITY_OF_CLASS as PRIORITY_OF_CLASS
    from traces.priorities import by_class as by_class
    from traces.priorities import request_priorities as request_priorities
    from traces.run_slo import RunLimit as RunLimit
    from traces.run_slo import parse_run_slo as parse_run_slo
    from traces.schema import EVENT_FIELDS as EVENT_FIELDS
    from traces.schema import FIELDS as FIELDS
    from traces.slo import MOST_FAILED as MOST_FAILED
    from traces.slo import SLO_METRICS as SLO_METRICS
    from traces.slo import Attainment as Attainment
    from traces.slo import Goodput as Goodput
    from traces.slo import goodput as goodput
    from traces.slo import meets_slo as meets_slo
    from traces.slo import parse_slo as parse_slo
    from traces.statistics.quantities import Quantity as Quantity
    from traces.tables.cells import Cells as Cells
    from traces.tables.cells import all_known as all_known
    from traces.tables.cells import cells_where as cells_where
    from traces.tables.csv_parquet import write_parquet as write_parquet
    from traces.tables.event_rules import request_codes as request_codes
    from traces.tables.hash_chains import HashChains as HashChains
    from traces.tables.hash_chains import chained as chained
    from traces.tables.hash_chains import hashes_of_rows as hashes_of_rows
    from traces.tables.hash_chains import known_before as known_before
    from traces.tables.hash_chains import own_hashes as own_hashes
    from traces.tables.hash_chains import whole_hashes as whole_hashes
    from traces.tables.hash_lists import ranges as ranges
    from traces.tables.image_lists import ImageLists as ImageLists
    from traces.tables.image_lists import image_lists as image_lists
    from traces.tables.paths import companion_file as companion_file
    from traces.tables.paths import locate as locate
    from traces.tables.paths import stem_of as stem_of
    from traces.tables.problems import Problem as Problem
    from traces.tables.session_tree import has_tree as has_tree
    from traces.tables.session_tree import session_tree as session_tree
    from traces.tables.session_tree import waits_for_named as waits_for_named
    from traces.trace import Trace as Trace
    from traces.trace import make_trace as make_trace
    from traces.trace import select_rows as select_rows
    from traces.trace_summary import DescribedFile as DescribedFile
    from traces.trace_summary import Summary as Summary
    from traces.trace_summary import describe_file as describe_file
    from traces.trace_summary import summarize_trace as summarize_trace
    from traces.units import counted as counted
    from traces.units import four_digits as four_digits
    from traces.units import in_unit as in_unit
    from traces.units import or_null as or_null
    from traces.units import parse_seconds as parse_seconds
    from traces.units import shown_time as shown_time
    from traces.units import tail_text as tail_text
    from traces.units import terminal_width as terminal_width
    from traces.units import unit_of as unit_of
    from traces.warm_up import is_warmup as is_warmup
    from traces.warm_up import load_alone as load_alone
    from traces.warm_up import without_warmup as without_warmup
    from traces.workload.recorded.known_lengths import with_known_lengths as with_known_lengths

_HOMES = homes_of(
    {
        "traces.atomic": "atomic_file check_place make_folder refuse_foreign write_folder write_text",
        "traces.conversion": "convert",
        "traces.coverage": "Coverage Treatment",
        "traces.errors": "ConfigError cut ExitCode quoted ServerError TraceError VtwinError with_cut_pieces",
        "traces.exporters": "export",
        "traces.exporters.flat_table": "write_table",
        "traces.files.check": "check_trace",
        "traces.files.output_lock": "sole_owner",
        "traces.files.overwrite": "note_replaced refuse_input",
        "traces.files.read": "read_header read_trace",
        "traces.files.write": "write_header write_trace",
        "traces.findings.late_client": "early_us ttft_too_long_us",
        "traces.findings.prefix_ceiling": "prefix_hit_ceiling_frac",
        "traces.findings.run_findings": "finding_lines findings_of marked OVERLOADED several_engines",
        "traces.findings.same_requests": "same_requests",
        "traces.findings.saturation": "Saturation saturation_of",
        "traces.findings.tail_precision": (
            "fewest_beyond interval_text NUM_BATCHES num_effective Precision precision_of precision_rows TailPrecision"
        ),
        "traces.header": (
            "ClientInfo ClosedLoop CounterReading Header header_yaml Network PowerInfo ProbeInfo ProcessInfo "
            "RunFinding RunSpread ServerInfo SLOTarget Source SpecDecode tool_version"
        ),
        "traces.importers.recorded": (
            "check_load check_recorded CheckedTrace file_at format_of parts_at read_recorded reading_notes"
        ),
        "traces.measured.finish_reasons": "failure_status",
        "traces.measured.http_phases": "phase_quantities slow_phases",
        "traces.measured.stream_shape": "SAME_READ_US stream_shape StreamShape",
        "traces.metrics": (
            "AS_DRAWN cut_short_note finished_ok has_failed is_from_start latencies_us mean_rate_per_s "
            "METRIC_COLUMNS metric_notes MetricNotes pooled_itl_us prompt_tokens request_latencies "
            "request_metrics send_or_arrival_us sent_or_due served_output token_gaps TokenGaps was_cancelled"
        ),
        "traces.peers.peer_metrics": "own_figure PEER_METRICS",
        "traces.priorities": "by_class PRIORITY_OF_CLASS request_priorities",
        "traces.run_slo": "parse_run_slo RunLimit",
        "traces.schema": "EVENT_FIELDS FIELDS",
        "traces.slo": "Attainment Goodput goodput meets_slo MOST_FAILED parse_slo SLO_METRICS",
        "traces.statistics.quantities": "Quantity",
        "traces.tables.cells": "all_known Cells cells_where",
        "traces.tables.csv_parquet": "write_parquet",
        "traces.tables.event_rules": "request_codes",
        "traces.tables.hash_chains": "chained HashChains hashes_of_rows known_before own_hashes whole_hashes",
        "traces.tables.hash_lists": "ranges",
        "traces.tables.image_lists": "image_lists ImageLists",
        "traces.tables.paths": "companion_file locate stem_of",
        "traces.tables.problems": "Problem",
        "traces.tables.session_tree": "has_tree session_tree waits_for_named",
        "traces.trace": "make_trace select_rows Trace",
        "traces.trace_summary": "describe_file DescribedFile summarize_trace Summary",
        "traces.units": (
            "counted four_digits in_unit or_null parse_seconds shown_time tail_text terminal_width unit_of"
        ),
        "traces.warm_up": "is_warmup load_alone without_warmup",
        "traces.workload.recorded.known_lengths": "with_known_lengths",
    }
)
"""Where each name of the door is at home."""
__all__ = list(_HOMES)
__getattr__, __dir__ = opened(__name__, _HOMES)
