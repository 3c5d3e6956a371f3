"""What takes minutes or hours and is no test: comparisons with the world, benches, a real vLLM, mutants."""
