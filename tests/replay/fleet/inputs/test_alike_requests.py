"""A fleet's requests that all have the same lengths move in step; its notes say so."""

from __future__ import annotations

import numpy as np
import pytest

from replay.fleet.demand import fleet_demand
from sim.fleet import Lengths


@pytest.mark.parametrize(("spread", "num_said"), [(0, 1), (1, 0)])
def test_requests_that_are_all_alike_are_called_so(spread: int, num_said: int) -> None:
    outputs = np.array([20.0, 20.0, 20.0, 20.0 + spread])
    lengths = Lengths(input_tokens=np.full(4, 100.0), output_tokens=outputs)
    notes = fleet_demand(lengths, "ttft_p99=1s", "H100").notes
    assert sum("all requests have the same lengths" in each for each in notes) == num_said
