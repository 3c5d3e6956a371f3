"""Two real vLLM schedulers with a KV connector, prefill and decode, in virtual time; and the comparison with vtwin."""
