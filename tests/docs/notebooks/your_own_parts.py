# %% [markdown]
# # A router and a latency model of your own
#
# You have an idea for a router, or you know better than a formula how long your server's steps take. This notebook
# puts both into the simulation, beside the built-in ones, and compares schedulers at the end.
#
# A twin that names code runs that code. `replay.allowing_code()` says that you trust it; without it, such a twin is
# refused.

# %%
import os
import tempfile
from pathlib import Path

import pandas as pd

import replay
from traces import ConfigError
from traces.workload import WorkloadOptions, trace_from_options

os.chdir(tempfile.mkdtemp())

# %% [markdown]
# ## The load
#
# Conversations of four rounds. Each prompt holds the whole conversation so far, so a server that has seen the session
# before finds most of the prompt in its prefix cache.

# %%

load = WorkloadOptions(
    rate=6,
    num_requests=2000,
    rounds=4,
    context_growth="accumulate",
    prompt_tokens=600,
    output_tokens=120,
    seed=1,
)
Path("fleet.yaml").write_text("""
engine: {max_num_seqs: 24, max_num_batched_tokens: 2048, num_gpu_blocks: 2500, max_model_len: 16384}
latency:
  model: extended
  coefficients: {alpha0: 500, alpha1: 2, alpha2: 0, beta0: 1000, beta1: 40, beta2: 20, floor: 9000}
cluster:
  instances: 4
  routing: {policy: round-robin}
""")
asked = trace_from_options(load)

# %% [markdown]
# ## A router
#
# A router is a function that is called for each request. It gets the fleet as the router knows it, and returns the
# number of an instance. This one keeps a session where it was, unless that server has more requests than another by
# eight.

# %%
Path("sticky.py").write_text("""
homes = {}


def sticky(fleet, request, time_us):
    idlest = min(fleet.candidates, key=lambda instance: fleet.num_in_flight[instance])
    home = homes.get(request.session)
    if home not in fleet.candidates or fleet.num_in_flight[home] > fleet.num_in_flight[idlest] + 8:
        home = idlest
    if request.session >= 0:
        homes[request.session] = home
    return home
""")

runs = {}
with replay.allowing_code():
    for policy in ("round-robin", "least-loaded", "session", "sticky.py:sticky"):
        twin = replay.load_config("fleet.yaml", settings=[f"cluster.routing.policy={policy}"])
        runs[policy] = replay.run(asked, twin)

pd.DataFrame(
    {
        policy: {
            "prefix hits": f"{run.summary['prefix_hit_frac']:.1%}",
            "TTFT p50, ms": f"{run.summary['ttft_us']['p50'] / 1e3:.0f}",
            "TTFT p99, ms": f"{run.summary['ttft_us']['p99'] / 1e3:.0f}",
            "E2E p99, ms": f"{run.summary['e2e_us']['p99'] / 1e3:.0f}",
            "verdict": run.summary["verdict"],
        }
        for policy, run in runs.items()
    }
).T

# %% [markdown]
# The run of your own router draws itself as any other does. What is too large for a notebook is left out, and that is
# told: here the maps of every instance over time. `vtwin run --report` draws them, too.

# %%
runs["sticky.py:sticky"]

# %% [markdown]
# An exception in your code ends the run, and the line names yours.

# %%
Path("broken.py").write_text("""
def broken(fleet, request, time_us):
    return {}[request.number]
""")
try:
    with replay.allowing_code():
        replay.run(
            asked, replay.load_config("fleet.yaml", settings=["cluster.routing.policy=broken.py:broken"])
        )
except ConfigError as error:
    print(error)

# %% [markdown]
# ## A latency model
#
# Suppose you timed steps without context on your server: 11 ms for one token, 13 ms for 256, 42 ms for 2,048. The
# engine is compiled and does not call Python in every step, so a model fills a table once: here the times in between
# are interpolated.

# %%
Path("timed.py").write_text("""
from dataclasses import dataclass

import numpy as np

from sim import TABULATED, LatencyModel, StepTable

TOKENS = np.array([0, 1, 256, 2048, 16384])
TIMED_US = np.array([0, 11000, 13000, 42000, 310000])


@dataclass(frozen=True, slots=True, kw_only=True)
class Timed(LatencyModel):
    entry_us: float = 0.02  # a decode's reading of a token of its context

    @property
    def engine_kind(self):
        return TABULATED

    def step_table(self):
        tokens = np.arange(TOKENS[-1] + 1)
        none = np.zeros(len(tokens))
        return StepTable(compute=none, reading=none, rest=np.interp(tokens, TOKENS, TIMED_US), entry=self.entry_us)

    def engine_terms(self):
        return self.step_table().terms()

    def durations_us(self, batch):
        return np.rint(self.step_table().durations(batch)).astype(np.int64)
""")
Path("timed.yaml").write_text("""
engine: {max_num_seqs: 24, max_num_batched_tokens: 2048, num_gpu_blocks: 2500, max_model_len: 16384}
latency: {model: "timed.py:Timed", coefficients: {entry_us: 0.03, alpha0: 4000}}
""")

chat = trace_from_options(
    WorkloadOptions(rate=5, num_requests=400, prompt_tokens=600, output_tokens=80, seed=2)
)
with replay.allowing_code():
    timed = replay.run(chat, "timed.yaml")
formula = replay.run(chat, replay.load_config("fleet.yaml", settings=["cluster.instances=1"]))
pd.DataFrame(
    {
        name: run.latencies()[["ttft_us", "tpot_us", "e2e_us"]].median().div(1e3).round(1)
        for name, run in {"timed, ms": timed, "extended, ms": formula}.items()
    }
)

# %%
timed

# %% [markdown]
# ## Schedulers
#
# The engine batches as vLLM does. `engine.batching` lets it batch as other systems do, so that you can see what
# continuous batching and chunked prefill are worth on your load. Long documents among short chats show it best.

# %%
mixed = trace_from_options(
    WorkloadOptions(
        rate=4,
        num_requests=400,
        prompt_tokens=1200,
        prompt_tokens_stdev=1500,
        prompt_tokens_max=6000,
        output_tokens=100,
        output_tokens_stdev=60,
        seed=3,
    )
)
Path("server.yaml").write_text("""
engine:
  max_num_seqs: 32
  max_num_batched_tokens: 512
  num_gpu_blocks: 2500
  max_model_len: 8192
  async_scheduling: false
  enable_prefix_caching: false
latency:
  model: blackbox
  coefficients: {alpha0: 2000, alpha1: 0, alpha2: 0, beta0: 11000, beta1: 40, beta2: 41}
""")
rows = {}
for batching in ("vllm", "sarathi", "orca", "static"):
    twin = replay.load_config("server.yaml", settings=[f"engine.batching={batching}"])
    summary = replay.run(mixed, twin).summary
    rows[batching] = {
        "TTFT p99, s": f"{summary['ttft_us']['p99'] / 1e6:.2f}",
        "TPOT p99, ms": f"{summary['tpot_us']['p99'] / 1e3:.1f}",
        "ITL p99, ms": f"{summary['itl_us']['p99'] / 1e3:.1f}",
        "verdict": summary["verdict"],
    }
pd.DataFrame(rows).T
