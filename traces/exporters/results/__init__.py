"""A run as the results of other benchmarks have it, for dashboards that read those."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from traces.exporters.results.exported_run import exported_run
from traces.exporters.results.genai_perf_summary import genai_perf_summary
from traces.exporters.results.guidellm_report import guidellm_report
from traces.exporters.results.vllm_bench_result import vllm_bench_result

if TYPE_CHECKING:
    from traces.exporters.target import ResultTarget
    from traces.trace import Trace

_DOCUMENTS: Final = {
    "vllm-bench-result": vllm_bench_result,
    "guidellm-report": guidellm_report,
    "genai-perf-summary": genai_perf_summary,
}


def result_document(trace: Trace, target: ResultTarget) -> str:
    """Return the run as a JSON text of this format, warm-up left out.

    Raises TraceError for a workload that has not been run, or without a time of each answer's first token.
    """
    run = exported_run(trace, target=target)
    return json.dumps(_DOCUMENTS[target](run), allow_nan=False) + "\n"
