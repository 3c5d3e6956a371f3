# %% [markdown]
# # A first loop: a trace, a twin, a verdict
#
# A vtwin *twin* is a model of one vLLM endpoint: the engine's settings, and how long a step of the engine takes. You
# give it a *trace*, the requests of some traffic, and it says what each of them would have seen.
#
# You need no GPU and no server for this notebook. It takes a few seconds. Files that it writes go to a temporary
# folder.

# %%
import os
import tempfile
from importlib.resources import files
from pathlib import Path

import pandas as pd

import replay
import traces

SAMPLES = files("traces") / "samples"
os.chdir(tempfile.mkdtemp())

# %% [markdown]
# ## The trace
#
# These are 200 requests of a public Azure trace: when each arrived, and how many tokens went in and came out. vtwin
# reads the file as it is. A trace is a pandas table, one row per request. Times are microseconds from the start, and
# what a trace does not know is missing, never zero.

# %%
trace = traces.read_recorded(SAMPLES / "azure_code_200.csv")
trace.requests[["arrival_time_us", "input_tokens", "output_tokens"]].describe().round()

# %% [markdown]
# ## The twin
#
# A twin is a YAML file. This one is not measured: `physics` computes the time of a step from the model's
# `config.json` (this one ships with vtwin) and the GPU's data sheet. With measurements of your own server, `vtwin
# calibrate` fits the coefficients and writes such a file. The engine's keys have vLLM's names and defaults.

# %%
Path("twin.yaml").write_text("""
hardware: {gpu: H100, tp: 1}
latency: {model: physics, model_config: meta-llama/Llama-3.1-8B}
engine: {max_num_seqs: 256, max_num_batched_tokens: 8192, max_model_len: 32768}
""")
twin = replay.load_config("twin.yaml")
print(f"{twin.engine.num_gpu_blocks:,} KV blocks fit beside the weights")

# %% [markdown]
# ## The run
#
# `replay.run` simulates every step of the engine. What comes back draws itself: the verdict, the table that `vtwin
# replay` prints, and the figures of its HTML page. Open *Over time* and *In use* to see more of them.

# %%
limits = {"ttft": 500_000, "tpot": 30_000}  # µs, for each request
run = replay.run(trace, twin, replay.RunSettings(slo_us=limits))
run

# %% [markdown]
# Every figure is at hand as a number. `run.summary` is the document of `vtwin replay --json`, `run.latencies()` has a
# row for each request.

# %%
print(run.summary["verdict"], run.summary["goodput"]["good_frac"])
run.latencies()[["ttft_us", "tpot_us", "e2e_us"]].describe().round()

# %% [markdown]
# ## The verdict under more load
#
# The same requests, arriving four times and eight times as fast. A server that cannot keep up has no useful
# percentiles: its queue grows as long as the run lasts, so look at the verdict first.


# %%
def faster(times):
    return trace.with_columns(arrival_time_us=trace.column("arrival_time_us") // times)


for times in (1, 4, 8):
    print(f"{times}x: {replay.run(faster(times), twin)!r}")

# %%
busy = replay.run(faster(8), twin, replay.RunSettings(slo_us=limits))
busy

# %% [markdown]
# ## Where does the time go?
#
# Two questions. Between requests: does a request wait for a seat, for KV blocks or for the step's token budget?
# Inside a step: which operators of the model take the time? For the second one the steps are simulated one at a time.

# %%
print(busy.waiting)
print(busy.usage.waits_for)

# %%
times = busy.operator_times
shares = pd.Series({name: each["us"] for name, each in times["by_operator"].items()}) / times["step_time_us"]
shares.sort_values(ascending=False).head(6).map("{:.1%}".format).to_frame("share of the steps")

# %% [markdown]
# ## Keep it
#
# A simulated trace is a trace like any other: `vtwin report`, `vtwin compare` and `calibrate` read it.

# %%
traces.write_trace(run.trace, "simulated")
len(traces.read_trace("simulated"))
