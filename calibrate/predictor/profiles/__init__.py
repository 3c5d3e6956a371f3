"""Readers of measured profiles: Vidur's CSVs and tables of vLLM kernels."""
