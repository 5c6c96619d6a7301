"""Times of whole training steps of decoder-only models on one GPU, and profiles of a few."""

import contextlib
import csv
import json
import os
import time

import torch

from models import MasterWeights, Model, NarrowStates, Shape, parameter_count, rotation
from timing import median

GPT2 = Shape("gpt2-124m", "gpt", 12, 768, 12, 12, 3072, 50257)
GPT2_MEDIUM = Shape("gpt2-medium", "gpt", 24, 1024, 16, 16, 4096, 50257)
GPT2_XL = Shape("gpt2-xl", "gpt", 48, 1600, 25, 25, 6400, 50257)
LLAMA_1B = Shape("llama-1b", "llama", 16, 2048, 32, 8, 8192, 128256)
LLAMA_3B = Shape("llama-3b", "llama", 28, 3072, 24, 8, 8192, 128256)

COLUMNS = ["model", "family", "layers", "hidden", "heads", "kv_heads", "ffn", "vocabulary", "tied_embeddings",
           "parameters", "sequence", "micro_batch", "accumulation", "recompute", "precision", "optimizer",
           "compiled", "warmup_steps", "steps", "median_s", "min_s", "max_s", "tokens_per_s",
           "memory_allocated_bytes", "memory_reserved_bytes", "state_bytes", "loss"]


class Step:
    def __init__(self, shape, sequence, micro_batch, accumulation=1, recompute=False, states=MasterWeights,
                 compiled=False):
        self.shape, self.sequence, self.micro_batch = shape, sequence, micro_batch
        self.accumulation, self.recompute, self.states, self.compiled = accumulation, recompute, states, compiled

    def name(self):
        return (f"{self.shape.name} sequence {self.sequence} micro batch {self.micro_batch} x {self.accumulation}"
                f"{' recompute' if self.recompute else ''} {self.states.__name__}"
                f"{' compiled' if self.compiled else ''}")


STEPS = [
    Step(GPT2, 1024, 8), Step(LLAMA_1B, 4096, 1), Step(GPT2_XL, 1024, 4), Step(GPT2_MEDIUM, 1024, 8),
    Step(LLAMA_1B, 4096, 2), Step(LLAMA_1B, 4096, 2, recompute=True), Step(GPT2, 1024, 1), Step(GPT2, 1024, 32),
    Step(LLAMA_3B, 2048, 1, recompute=True), Step(GPT2_XL, 1024, 8, recompute=True), Step(LLAMA_1B, 4096, 1, 4),
    Step(LLAMA_1B, 2048, 4), Step(LLAMA_1B, 8192, 1), Step(GPT2, 1024, 4, 8),
    Step(LLAMA_3B, 4096, 1, states=NarrowStates), Step(GPT2_MEDIUM, 2048, 4), Step(GPT2_MEDIUM, 512, 4),
    Step(LLAMA_1B, 1024, 1)]
COMPILED = [Step(LLAMA_1B, 4096, 2, compiled=True), Step(GPT2_XL, 1024, 4, compiled=True)]


class Training:
    """A model, its optimizer and its data: step() trains one step."""

    def __init__(self, machine, case):
        self.case = case
        torch.manual_seed(1)
        with torch.device(machine.device) if hasattr(machine.device, "__enter__") else contextlib.nullcontext():
            self.model = Model(case.shape, case.sequence)
        self.model.to(device=machine.device, dtype=torch.bfloat16)
        self.model.recompute = case.recompute
        self.states = case.states(self.model, fused=not machine.cpu)
        llama = case.shape.family == "llama"
        self.rotations = rotation(case.sequence, case.shape.head_dim, machine.device) if llama else ()
        size = (case.accumulation, case.micro_batch, case.sequence + 1)
        tokens = torch.randint(case.shape.vocabulary, size, device=machine.device)
        self.batches = [(each[:, :-1].contiguous(), each[:, 1:].contiguous()) for each in tokens]
        self.loss = None
        if case.compiled:
            for layer in self.model.layers:
                layer.compile()

    def step(self):
        for tokens, targets in self.batches:
            loss = self.model(tokens, targets, self.rotations)
            loss.backward()
        self.loss = loss.detach()
        self.states.step()


def measure_step(machine, case, seconds):
    """The case's row: 3 steps to warm up, then at least 7, and more while they take less than `seconds`."""
    machine.free_memory()
    training = Training(machine, case)
    for _ in range(3):
        training.step()
    machine.synchronize()
    if not machine.cpu:
        torch.cuda.reset_peak_memory_stats()
    begin = time.perf_counter()
    marks = [machine.mark()]
    while len(marks) <= 7 or (len(marks) <= 30 and time.perf_counter() - begin < seconds):
        training.step()
        marks.append(machine.mark())
        if len(marks) % 4 == 0 and not machine.cpu:
            marks[-2].synchronize()  # the host is never more than a few steps ahead
    machine.synchronize()
    times = [machine.seconds(a, b) for a, b in zip(marks, marks[1:])]
    middle = median(times)
    allocated = reserved = state = 0
    if not machine.cpu:
        allocated, reserved = torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved()
        state = torch.cuda.memory_allocated()
    shape = case.shape
    tokens = case.sequence * case.micro_batch * case.accumulation
    return [shape.name, shape.family, shape.layers, shape.hidden, shape.heads, shape.kv_heads, shape.ffn,
            shape.vocabulary, shape.tied, parameter_count(training.model), case.sequence, case.micro_batch,
            case.accumulation, "full" if case.recompute else "none", "bf16", case.states.name,
            "layers" if case.compiled else "no", 3, len(times), f"{middle:.5e}", f"{min(times):.5e}",
            f"{max(times):.5e}", f"{tokens / middle:.1f}", allocated, reserved, state,
            f"{float(training.loss):.4f}"]


class StepFile:
    """steps.csv: each row is on the disk as soon as it is known."""

    def __init__(self, path):
        self.file = open(path, "w", newline="")
        self.rows = csv.writer(self.file)
        self.add(COLUMNS)

    def add(self, row):
        self.rows.writerow(row)
        self.file.flush()


def small(case):
    shape = case.shape
    heads = min(shape.heads, 4)
    kv_heads = 2 if shape.family == "llama" else heads
    tiny = Shape(shape.name, shape.family, 2, 8 * heads, heads, kv_heads, 64, 100)
    return Step(tiny, 16, min(case.micro_batch, 2), min(case.accumulation, 2), case.recompute, case.states)


def measure(machine, cases, file, sentinel, deadline, seconds, not_measured):
    for case in cases:
        if time.time() > deadline:
            not_measured.append({"case": case.name(), "why": "the time was over"})
            continue
        if sentinel is not None:
            sentinel.look("before " + case.name())
        begin = time.time()
        try:
            file.add(measure_step(machine, small(case) if machine.cpu else case, seconds))
        except Exception as error:  # out of memory, or unknown to this version of PyTorch
            not_measured.append({"case": case.name(), "why": str(error).split("\n")[0][:300]})
        print(f"{case.name()}: {time.time() - begin:.1f} s", flush=True)


def profile(machine, case, path):
    """A Chrome trace of one step with the shapes of all operations; what names this machine's files is left out."""
    from torch.profiler import ProfilerActivity, profile as profiler
    machine.free_memory()
    training = Training(machine, case)
    for _ in range(3):
        training.step()
    machine.synchronize()
    activities = [ProfilerActivity.CPU] + ([] if machine.cpu else [ProfilerActivity.CUDA])
    with profiler(activities=activities):  # the first use loads the library that traces
        training.step()
        machine.synchronize()
    with profiler(activities=activities, record_shapes=True) as trace:
        training.step()
        machine.synchronize()
    trace.export_chrome_trace(path)
    with open(path) as file:
        events = json.load(file)
    if isinstance(events, list):  # PyTorch 1
        events = {"traceEvents": events}
    for key in ("traceName", "distributedInfo"):
        events.pop(key, None)
    unread = ("python_function", "ac2g", "fwdbwd", "overhead", "Trace")
    events["traceEvents"] = [event for event in events["traceEvents"] if event.get("cat") not in unread]
    with open(path, "w") as file:
        json.dump(events, file, separators=(",", ":"))
    return os.path.getsize(path)


def profiles(machine, folder, not_measured):
    """Two small models of two layers, whose traces are short, and a whole one."""
    sizes = {}
    cases = [("profile-gpt2.json", Step(Shape("gpt2-2-layers", "gpt", 2, 768, 12, 12, 3072, 50257), 1024, 4)),
             ("profile-llama.json", Step(Shape("llama-2-layers", "llama", 2, 2048, 32, 8, 8192, 128256), 4096, 1)),
             ("profile-llama-1b.json", Step(LLAMA_1B, 4096, 2))]
    for name, case in cases:
        try:
            case = small(case) if machine.cpu else case
            sizes[name] = profile(machine, case, os.path.join(folder, name))
        except Exception as error:
            not_measured.append({"case": name, "why": str(error).split("\n")[0][:300]})
    return sizes
