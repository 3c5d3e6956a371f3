"""The matrix products of a model's layers: their shapes, what they took on real GPUs, and the edges of their tiles."""
