"""Which GPU: one model on several GPUs, simulated under the same load, with the known error of what simulates it."""
