"""One load from several machines: the senders of ``observe.processes``, on the workers of a Dask or Ray cluster."""
