"""Which of vLLM's kernels a GPU and a version have for a model, and what follows for its cache."""
