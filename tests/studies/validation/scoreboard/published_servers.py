"""Four servers that LLMServingSim measured: its own published predictions, and vtwin's, fitted and not.

The errors are kept in ``answers/llmservingsim.json``; ``measure`` counts them anew. All judge the second half of the
requests by arrival (``tests.studies.validation.servers``).
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

from tests.studies.validation.scoreboard.board import cells, clearly_behind
from tests.studies.validation.scoreboard.tools.recorded import ANSWERS
from tests.studies.validation.servers import SERVERS, fitted_errors, peer_errors, unfitted_errors

KEPT = ANSWERS / "llmservingsim.json"
METRICS = {"E2E": "e2e_us", "TTFT": "ttft_us", "TPOT": "tpot_us"}
FITTED = "vtwin, fitted to the first half"


def measure(data: Path) -> None:
    """Count the errors of all, and keep them. ``data``: the folder of public data. The fits take minutes."""
    bench = data / "llmservingsim_bench"
    kept = {}
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        for server in SERVERS:
            found = {"LLMServingSim": peer_errors(server, bench)}
            found[FITTED] = fitted_errors(server, bench, work, "auto")
            found |= {name: unfitted_errors(server, bench, work, name) for name in ("roofline", "physics")}
            kept[server.folder] = {
                tool: [round(errors[key], 3) for key in METRICS.values()] for tool, errors in found.items()
            }
    KEPT.write_text(json.dumps(kept, indent=0) + "\n")


def errors() -> dict[str, dict[str, list[float]]]:
    """Return the kept errors, MAPE of E2E, TTFT and TPOT in %, by server and tool."""
    kept: dict[str, dict[str, list[float]]] = json.loads(KEPT.read_text())
    return kept


def markdown() -> str:
    """Return the table, and where each tool is clearly behind."""
    kept = errors()
    tools = list(next(iter(kept.values())))
    lines = [f"| server | {' | '.join(tools)} |", "|---|" + "---|" * len(tools)]
    lines += [f"| {server} | {' | '.join(cells(found, tools))} |" for server, found in kept.items()]
    return "\n".join([*lines, "", clearly_behind(kept, tools, list(METRICS))])
