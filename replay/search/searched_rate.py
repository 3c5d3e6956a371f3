"""Which options of a workload a search for a rate refuses: it sets the load itself."""

from __future__ import annotations

from typing import Final

SEARCHED: Final = ("rate", "stages", "concurrency", "batch", "duration")
"""Options that cannot be combined with a search for a rate."""
NOT_FOR_A_SEARCH: Final = (*SEARCHED, "waves")
"""The options of a workload that such a command does not list: those, and one that needs one of them."""
NOT_FOR_A_COMPARISON: Final = tuple(name for name in NOT_FOR_A_SEARCH if name != "rate")
"""Those of a command that takes the rate at which it compares."""
