"""Rollouts for reinforcement learning: batches of samples, weights updated between them."""
