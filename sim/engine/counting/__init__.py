"""The way of runs in which no block of the KV cache is shared and none can lack: blocks are counted, not handed out."""
