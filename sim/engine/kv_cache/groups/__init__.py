"""KV cache groups: layers that cache differently (vLLM's single_type_kv_cache_manager.py and kv_cache_coordinator.py)."""
