"""A notebook as a script: editors run each cell between the marks, and `python3 choose_a_layout.py` runs all."""

# %% [markdown]
# Which parallel layout trains Llama 2 7B fastest on 32 A100s, what limits it, and what would other models take there?

# %%
import motley

result = motley.simulate("quickstart")
print(f"{result['scenario']}: {result['iteration_s']:.2f} s a step, MFU {100 * result['mfu']:.1f} %, "
      f"bound by {result['finding']['bound_by']}")

# %% Where the time of each stage goes
for row in result["breakdown"]:
    print(f"  stage {row['stage']}: {row['compute_s']:.2f} s compute, {row['bubble_s']:.2f} s bubble, "
          f"{row['exposed_tensor_parallel_s']:.2f} s exposed tensor parallelism")

# %% A key of the scenario, changed: the same as `--set` on the command line
faster = motley.simulate("quickstart", {"strategy.recompute": "none"}, changes=False)
print(f"without recompute: {faster['iteration_s']:.2f} s")

# %% What is refused is raised, with its place and a hint
try:
    motley.simulate("quickstart", {"strategy.tensor_paralel": 8})
except motley.Refusal as refusal:
    print(f"refused ({refusal.kind}): {refusal}")

# %% A sweep runs on all processors; combinations that cannot run are rows with a reason
rows = motley.sweep("quickstart", {"strategy.tp": [1, 3, 4], "strategy.recompute": ["none", "full"]},
                    front=["time", "memory"])
for each in rows:
    values = ", ".join(f"{key.removeprefix('strategy.')} {value}" for key, value in each["set"].items())
    if "figures" in each:
        figures = each["figures"]
        mark = "  not beaten in time and memory" if each.get("front") else ""
        print(f"  {values:22} {figures['step_s']:6.2f} s {100 * figures['memory_share']:4.0f} % of memory{mark}")
    else:
        print(f"  {values:22} {each['refused']['kind']}")

# %% A scenario can be a dict, so a loop over models is a loop
for model in ("phi-4", "olmo-2-13b", "gemma-3-12b", "deepseek-v2-lite"):
    scenario = {
        "model": model,
        "cluster": "dgx-a100-4",
        "train": {"global_batch": 128, "sequence": 4096, "precision": "bf16"},
        "strategy": {"tp": 2, "pp": 1, "dp": 16, "zero": 1},
    }
    try:
        step = motley.simulate(scenario, changes=False)
    except motley.Refusal as refusal:
        print(f"  {model:16} {refusal.message}")
    else:
        used = max(stage["fraction"] for stage in step["memory"])
        print(f"  {model:16} {step['tokens_per_s'] / 1e3:6.1f} k tokens/s, {100 * used:.0f} % of memory")

# %% What the step spends its time on, and what other strategies bring
explained = motley.explain("quickstart", parts=False)
best = min(explained["changes"], key=lambda change: change["change"] or 0)
print(f"`{best['what']}` changes the step by {100 * (best['change'] or 0):+.1f} %")
