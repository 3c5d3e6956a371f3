"""What a fleet is sized for and of: lengths of requests, and profiles of GPUs."""

OUTPUT_FRAC = 0.2
"""Share of a total length that is output, where a file says only totals: the fleet simulator's 80 to 20."""

SPILL_PER_ENGINE = 64.0
"""Requests per engine from which spillover sends on, unless told otherwise: still low for GPUs with many seats. With
two nearly every short request would go to the long pool (docs/explanation/fleet-models.md)."""
