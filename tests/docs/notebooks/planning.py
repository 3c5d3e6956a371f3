# %% [markdown]
# # Planning: how much, how many, and in which shape
#
# A twin answers what would cost GPU time to ask: the highest rate within latency limits, the best engine flags, the
# number of GPUs, whether to part prefill from decode, and how many sessions a server takes at once.
#
# The searches here use few requests, so that the notebook takes seconds. Leave `num_requests` and `seeds` out for
# figures with intervals that you can act on.

# %%
import os
import tempfile
from pathlib import Path

import pandas as pd

import replay
from traces.workload import WorkloadOptions, trace_from_options

os.chdir(tempfile.mkdtemp())
Path("twin.yaml").write_text("""
engine: {max_num_seqs: 64, max_num_batched_tokens: 2048, num_gpu_blocks: 4000, max_model_len: 8192}
latency:
  model: extended
  coefficients: {alpha0: 500, alpha1: 2, alpha2: 0, beta0: 1000, beta1: 30, beta2: 20, floor: 9000}
""")
SLO = "ttft_p99=500ms,tpot_p99=25ms"
chat = WorkloadOptions(
    num_requests=2500,
    prompt_tokens=600,
    prompt_tokens_stdev=300,
    output_tokens=60,
    output_tokens_stdev=30,
    seed=1,
)

# %% [markdown]
# ## The highest rate within an SLO
#
# The search simulates many rates. What comes back says which limit breaks first and which resource would have to
# grow.

# %%
replay.find_capacity(chat, "twin.yaml", SLO, seeds=1)

# %% [markdown]
# ## The same over a setting
#
# `settings` are keys of the file, as after `--set` on the command line.

# %%
found = {
    seats: replay.find_capacity(
        chat,
        replay.load_config("twin.yaml", settings=[f"engine.max_num_seqs={seats}"]),
        SLO,
        seeds=1,
        with_binding=False,
    )
    for seats in (8, 16, 32, 64)
}
pd.DataFrame(
    {
        "requests/s": {n: each.rate_per_s for n, each in found.items()},
        "breaks first": {n: each.limiting for n, each in found.items()},
    }
).round(2)

# %% [markdown]
# `replay.tune` looks for the best combination of flags. It drops most candidates early, so it is much faster than a
# grid.

# %%
replay.tune(chat, "twin.yaml", SLO, settings=["engine.max_num_seqs=32,64"], keep=2, seeds=1)

# %% [markdown]
# ## How many GPUs?
#
# `replay.plan_fleet` sizes a fleet for a rate by formulas of queueing theory and then, unless told otherwise, by
# simulation. Here it takes the formulas' word. A profile is a GPU's name or a TWIN.yaml.

# %%
asked = trace_from_options(
    WorkloadOptions(
        rate=8, num_requests=500, prompt_tokens=600, prompt_tokens_stdev=300, output_tokens=60, seed=1
    )
)
replay.plan_fleet(asked, 400, "ttft_p99=500ms", "twin.yaml", verify=False)

# %% [markdown]
# ## Prefill and decode apart, or one pool?
#
# Four servers, in one pool or in two. A long prompt in a step delays every request that decodes in that step; with
# servers of their own, prompts no longer do that, but the KV cache has to move.

# %%
SERVER = """
engine: {max_num_seqs: 64, max_num_batched_tokens: 2048, num_gpu_blocks: 6000, max_model_len: 8192}
latency:
  model: blackbox
  coefficients: {alpha0: 2000, alpha1: 0, alpha2: 0, beta0: 11000, beta1: 40, beta2: 41}
cluster:
  routing: {policy: least-loaded}
"""
Path("one_pool.yaml").write_text(SERVER + "  instances: 4\n")
Path("two_pools.yaml").write_text(
    SERVER
    + """
  pools:
    - {name: prefill, role: prefill, instances: 2}
    - {name: decode, role: decode, instances: 2}
  disaggregation: {decider: always, kv_bandwidth_gbps: 25, kv_base_latency_us: 50, kv_bytes_per_token: 131072}
"""
)
documents = trace_from_options(
    WorkloadOptions(
        rate=9,
        num_requests=600,
        prompt_tokens=3000,
        prompt_tokens_stdev=1200,
        prompt_tokens_max=7000,
        output_tokens=150,
        output_tokens_stdev=80,
        seed=1,
    )
)
shapes = {name: replay.run(documents, f"{name}.yaml") for name in ("one_pool", "two_pools")}
pd.DataFrame(
    {
        name: {
            f"{metric.upper()} {stat}, ms": round(run.summary[f"{metric}_us"][stat] / 1e3, 1)
            for metric in ("ttft", "tpot", "itl")
            for stat in ("p50", "p99")
        }
        for name, run in shapes.items()
    }
)

# %%
shapes["two_pools"]

# %% [markdown]
# ## How many sessions at once?
#
# Agents and chats do not arrive at a rate: each waits for its answer, thinks, and asks again. The question is how
# many can be in progress at a time.

# %%
sessions = WorkloadOptions(
    num_requests=480,
    rounds=6,
    think_time=4,
    context_growth="accumulate",
    prompt_tokens=600,
    output_tokens=120,
    seed=1,
)
replay.find_sessions(sessions, "twin.yaml", "ttft_p99=1s")
