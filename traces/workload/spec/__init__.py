"""Workload specifications: BLIS's WorkloadSpec v2 in YAML, read strictly."""
