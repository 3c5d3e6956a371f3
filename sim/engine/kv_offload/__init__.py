"""KV blocks in host memory as vLLM keeps them: its OffloadingConnector with the CPU tier (``--kv-offloading-size``)."""
