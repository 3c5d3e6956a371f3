"""What a checkpoint is kept in: the precision of each part of a model, out of its quantization."""
