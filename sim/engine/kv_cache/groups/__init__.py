"""KV cache groups: layers that cache differently (vLLM's single_type_kv_cache_manager.py, kv_cache_coordinator.py)."""
