"""The types of the dicts that results are: what `--json` prints, key by key.

Seconds end in `_s`; sizes are bytes. A key is never renamed within a schema, but a later program may add some.
"""

from typing import Any, NotRequired, TypedDict


class Interval(TypedDict):
    low_s: float
    high_s: float
    share: float
    regime: str
    software: str | None
    source: str


class Seconds(TypedDict):
    """Where the step of a rank, or of all chips together, goes."""

    compute_s: float
    recompute_s: float
    bubble_s: float
    waiting_for_slower_s: float
    exposed_tensor_parallel_s: float
    exposed_expert_parallel_s: float
    exposed_context_parallel_s: float
    exposed_pipeline_parallel_s: float
    exposed_data_parallel_s: float
    exposed_offload_s: float
    optimizer_s: float


class StageSeconds(Seconds):
    stage: int
    rank: int
    chip: str
    group: str


class Wait(TypedDict):
    stage: int
    rank: int
    chip: str
    group: str
    waiting_for_slower_s: float
    slower_stage: int
    slower_rank: int
    slower_chip: str
    slower_group: str
    for_slower_rank_s: float


class _HeldMemory(TypedDict):
    stage: int
    parameters: int
    gradients: int
    optimizer: int
    logits: int
    buffers: int
    buckets: int
    runtime: int
    fragmentation: int
    peak: int
    capacity: int
    host: int
    host_capacity: int


class StageMemory(_HeldMemory):
    """Bytes that a chip of the stage holds at its peak."""

    activations: int
    fraction: float


class CheckedMemory(_HeldMemory):
    activations_peak: int


class Run(TypedDict):
    """A whole run of `tokens`."""

    tokens: float
    goodput: float
    steps: int
    seconds: float
    days: float
    usd: float | None
    electricity_usd: float | None
    mwh: float | None
    mwh_at_tdp: float | None
    t_co2e: float | None


class Spending(TypedDict):
    usd_per_step: float | None
    usd_per_billion_tokens: float | None
    kwh_per_step_at_tdp: float | None
    kwh_per_step: float | None
    kwh_per_billion_tokens: float | None
    electricity_usd_per_step: float | None
    electricity_usd_per_billion_tokens: float | None
    kg_co2e_per_step: float | None
    kg_co2e_per_billion_tokens: float | None
    unpriced: list[str]
    unpowered: list[str]
    no_electricity: list[str]
    no_carbon: list[str]
    run: Run | None


class PathSeconds(TypedDict):
    """The parts of the critical path; they sum to the step."""

    compute_s: float
    recompute_s: float
    tensor_parallel_s: float
    expert_parallel_s: float
    context_parallel_s: float
    pipeline_parallel_s: float
    data_parallel_s: float
    offload_s: float
    optimizer_s: float
    gap_s: float
    links: int


class Finding(TypedDict):
    bound_by: str
    share: float


class Advice(TypedDict):
    simulated: int
    change: str | None
    iteration_s: float | None


class Coverage(TypedDict):
    """Shares of the kernels' time by how well it is known, and the share of measured messages."""

    measured: float
    interpolated: float
    extrapolated: float
    assumed: float
    messages: float | None


class SlowPart(TypedDict):
    name: str
    speed: float


class Variation(TypedDict):
    """The step where chips, nodes or NICs of one name differ in speed."""

    parts: int
    alike_s: float
    mean_s: float
    p5_s: float
    p50_s: float
    p95_s: float
    simulated: int
    slowest: list[SlowPart]
    drawn_s: NotRequired[list[float]]


class RouteDraws(TypedDict):
    repeated: int
    others: int
    least_s: NotRequired[float]
    most_s: NotRequired[float]


class Simulation(TypedDict):
    """What `motley.simulate` returns: schema motley.simulate/1."""

    schema: str
    scenario: str
    strategy_hash: str
    program_hash: str
    iteration_s: float
    interval: NotRequired[Interval]
    measured_s: NotRequired[float]
    error_pct: NotRequired[float]
    coverage: NotRequired[Coverage]
    own_figures_s: NotRequired[float]
    route_draws: NotRequired[RouteDraws]
    real: NotRequired[dict[str, Any]]
    variation: NotRequired[Variation]
    tokens_per_s: float
    tokens_per_s_per_chip: float
    sequences_per_s: float
    tflops_per_chip: float
    tflops_per_chip_megatron: float
    mfu: float
    hfu: float
    flop_formula: str
    chips: int
    simulation_bytes: NotRequired[int]
    breakdown: list[StageSeconds]
    all_chips: Seconds
    waits: list[Wait]
    memory: list[StageMemory]
    spending: Spending
    critical_path: PathSeconds
    notes: NotRequired[list[str]]
    finding: Finding
    advice: Advice


class Check(TypedDict):
    """What `motley.check` returns: schema motley.check/1."""

    schema: str
    strategy_hash: str
    program_hash: str
    ranks: int
    memory: list[CheckedMemory]


class PathPart(TypedDict):
    spent_on: str
    recompute: bool
    on: str
    group: str
    seconds: float
    share: float


class Lever(TypedDict):
    """A part of the cluster, or several together, and the step if they are better. `value` is in SI units."""

    what: str
    where: str
    value: float | None
    better: float | None
    iteration_s: float
    change: float
    on_path_s: float | None


class Change(TypedDict):
    """Another strategy, and its step or the reason why it is refused."""

    what: str
    iteration_s: float | None
    change: float | None
    refused: str | None


class Explanation(TypedDict):
    """What `motley.explain` returns of one scenario: schema motley.explain/1."""

    schema: str
    scenario: str
    strategy_hash: str
    program_hash: str
    chips: int
    iteration_s: float
    tokens_per_s: float
    mfu: float
    stages_wait_share: float
    path_instructions: int
    critical_path: list[PathPart]
    better_by: float
    levers: list[Lever]
    levers_together: list[Lever]
    all_levers: Lever | None
    changes: list[Change]


class Variant(TypedDict):
    what: str
    simulated_s: float | None


class Baseline(TypedDict):
    group: str
    chips: int
    simulated_s: float | None
    recomputes: bool
    offloads: bool


class Plan(TypedDict):
    """What `motley.plan` returns: schema motley.plan/1. `strategy` is YAML, as a scenario's key `strategy` has it."""

    schema: str
    scenario: str
    policy: str
    recollection: str
    ablate: list[str]
    notes: list[str]
    variants: list[Variant]
    objective: str
    strategy: str
    transport: str
    strategy_hash: str
    simulated_s: float
    bound_s: float
    gap: float
    form_bound_s: float | None
    value: float | None
    value_bound: float | None
    value_gap: float | None
    chips: int
    step_usd: float | None
    step_kwh: float | None
    step_kg_co2e: float | None
    own_s: float | None
    upper_bound_pct: float | None
    speedup_ratio: float | None
    baselines: list[Baseline]
    cannot_hold_the_model: list[str]
    explored: int
    pruned: int
    simulated: int
    bounded: int
    refused: int
    ended: str
    search_s: float


class SweepFigures(TypedDict):
    step_s: float
    tokens_per_s: float
    mfu: float
    memory_bytes: float
    memory_share: float
    chips: int
    strategy_hash: str
    likely_s: NotRequired[list[float]]
    usd_billion_tokens: NotRequired[float]
    kwh_billion_tokens: NotRequired[float]


class SweepRefusal(TypedDict):
    kind: str
    message: str


class SweepRow(TypedDict):
    """A combination of values: what it gives (`figures`), or why it cannot run (`refused`)."""

    values: list[str]
    set: dict[str, str]
    figures: NotRequired[SweepFigures]
    refused: NotRequired[SweepRefusal]
    front: NotRequired[bool]
