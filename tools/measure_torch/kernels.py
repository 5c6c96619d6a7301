"""Micro-benchmarks of the kernels that a training step consists of, in the words of Motley's KernelOp.

flops and bytes are counted as Motley's Programs count them: matmuls 2 m n k; attention over all pairs of tokens,
4 m n^2 k forward and 10 backward (the causal kernel skips half); each input read once, each output written once.
m, n, k are Kernel's: rows, outputs and inputs of a matmul; sequences x heads, tokens, width of a head of attention;
else rows and width (and vocabulary), or elements. Times are between two events: `launch` says what those take.
"""

import csv
import random
import time

import torch
import torch.nn.functional as F

from models import attend, rms_norm, rotate, rotation
from timing import Pool, median

BF16 = torch.bfloat16
COLUMNS = ["op", "variant", "m", "n", "k", "groups", "format", "l2", "flops", "bytes", "median_s", "min_s",
           "max_s", "repeats"]


class Case:
    """One kernel at one shape. `make(pool)` makes fresh inputs and returns the call that is timed."""

    def __init__(self, op, make, m=0, n=0, k=0, groups=0, variant="", format="bf16", flops=0, bytes=0):
        self.op, self.make, self.variant, self.format = op, make, variant, format
        self.m, self.n, self.k, self.groups = m, n, k, groups
        self.flops, self.bytes = flops, bytes
        self.cold, self.warm = [], []

    def name(self):
        return f"{self.op} {self.variant} {self.groups} {self.m} {self.n} {self.k} {self.format}"

    def row(self, l2, times):
        return [self.op, self.variant, self.m, self.n, self.k, self.groups, self.format, l2, f"{self.flops:.0f}",
                f"{self.bytes:.0f}", f"{median(times):.4e}", f"{min(times):.4e}",
                f"{max(times):.4e}", len(times)]


# Rows, outputs and inputs of matrix products: of real layers, powers of two, ragged ones.
LAYERS = [(c, f) for c, f in ((768, 3072), (1024, 4096), (1600, 6400), (2048, 8192), (3072, 8192), (4096, 14336))]
RAGGED = [(1000, 1000, 1000), (4095, 4097, 4099), (1023, 3001, 777), (333, 5120, 5120), (8191, 2048, 2047),
          (77, 4096, 4096), (8192, 50257, 768), (4096, 50304, 1024), (2500, 12288, 3000), (4096, 4096, 80),
          (8192, 130, 4096), (8200, 8200, 1032), (6144, 2560, 10240), (5000, 5000, 5000)]


def matmul_shapes():
    shapes = []
    for m in (1024, 4096, 16384):
        for hidden, ffn in LAYERS:
            shapes += [(m, 3 * hidden, hidden), (m, hidden, ffn)]
    shapes += [(n, n, n) for n in (64, 128, 256, 512, 1024, 2048, 3072, 4096, 6144, 8192, 12288, 16384)]
    shapes += [(m, 4096, 4096) for m in (1, 16, 64, 128, 256, 512, 2048, 8192, 32768)]
    shapes += [(8192, 8192, k) for k in (64, 128, 256, 512, 1024, 2048)]
    shapes += [(4096, 128256, 2048), (8192, 128256, 2048), (8192, 16384, 2048), (8192, 28672, 4096)]
    return shapes + RAGGED


def matmul_case(op, m, n, k, dtype, name):
    width = 2 if dtype == BF16 else 4

    def call(pool):
        if op == "matmul":
            x, w = pool.take(m, k, dtype=dtype), pool.take(n, k, dtype=dtype)
            return lambda: F.linear(x, w)
        dy = pool.take(m, n, dtype=dtype)
        if op == "matmul_input_gradient":
            w = pool.take(n, k, dtype=dtype)
            return lambda: dy.mm(w)
        x = pool.take(m, k, dtype=dtype)
        return lambda: dy.t().mm(x)

    def make(pool):
        product = call(pool)
        return product if dtype == BF16 else lambda: with_tf32(name == "tf32", product)

    return Case(op, make, m, n, k, format=name, flops=2 * m * n * k, bytes=width * (m * n + m * k + n * k))


def with_tf32(allowed, call):
    torch.backends.cuda.matmul.allow_tf32 = allowed
    return call()


def fp8_case(m, n, k):
    def make(pool):
        x = pool.take(m, k).to(torch.float8_e4m3fn)
        w = pool.take(n, k).to(torch.float8_e4m3fn)
        one = torch.ones((), device=x.device)
        return lambda: torch._scaled_mm(x, w.t(), scale_a=one, scale_b=one, out_dtype=BF16, use_fast_accum=True)

    return Case("matmul", make, m, n, k, variant="scaled by tensor, fast accumulation", format="fp8",
                flops=2 * m * n * k, bytes=m * k + n * k + 2 * m * n)


def grouped_case(experts, rows, n, k):
    def make(pool):
        x, w = pool.take(rows, k), pool.take(experts, n, k).transpose(1, 2)
        ends = torch.arange(1, experts + 1, device=x.device, dtype=torch.int32) * (rows // experts)
        return lambda: torch._grouped_mm(x, w, offs=ends)

    return Case("grouped_matmul", make, rows, n, k, experts, "equal groups", flops=2 * rows * n * k,
                bytes=2 * (rows * k + experts * n * k + rows * n))


def attention_cases(batch, heads, kv, T, D, backend="flash"):
    m = batch * heads
    row = 2 * batch * T * D * (heads + 2 * kv)  # bytes of q, k and v
    y = 2 * batch * T * D * heads
    lse = 4 * m * T

    def inputs(pool):
        shape = [(batch, T, each, D) for each in (heads, kv, kv)]
        return [pool.take(*each).transpose(1, 2).detach().requires_grad_() for each in shape]

    def forward(pool):
        q, k, v = [each.detach() for each in inputs(pool)]
        return with_backend(lambda: attend(q, k, v))

    def backward(pool):
        leaves = inputs(pool)
        out = with_backend(lambda: attend(*leaves))()
        dy = pool.take(batch, T, heads, D).transpose(1, 2)
        return lambda: torch.autograd.grad(out, leaves, dy, retain_graph=True)

    def with_backend(call):
        if backend == "flash":
            return call
        from torch.nn.attention import SDPBackend, sdpa_kernel

        def other():
            with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
                return call()
        return other

    text = f"causal, {backend}, batch {batch}, {kv} kv heads"
    return [Case("attention", forward, m, T, D, 0, text, flops=4 * m * T * T * D, bytes=row + y + lse),
            Case("attention_backward", backward, m, T, D, 0, text, flops=10 * m * T * T * D,
                 bytes=2 * row + 2 * y + lse)]


def with_backward(op, variant, m, n, forward, leaves, forward_bytes, backward_bytes):
    """A memory-bound kernel and its backward; `leaves(pool)` makes the inputs, each of which has a gradient."""

    def make(pool):
        x = leaves(pool)
        return lambda: forward(*x)

    def make_backward(pool):
        x = [each.detach().requires_grad_() for each in leaves(pool)]
        out = forward(*x)
        dy = pool.take(*out.shape) if out.dim() else None
        return lambda: torch.autograd.grad(out, x, dy, retain_graph=True)

    return [Case(op, make, m, n, 0, variant=variant, bytes=forward_bytes),
            Case(op + "_backward", make_backward, m, n, 0, variant=variant, bytes=backward_bytes)]


def norm_cases(N, C):
    return (with_backward("norm", "layer", N, C, lambda x, w, b: F.layer_norm(x, (C,), w, b),
                          lambda p: [p.take(N, C), p.take(C), p.take(C)], 4 * N * C, 6 * N * C) +
            with_backward("norm", "rms", N, C, rms_norm,
                          lambda p: [p.take(N, C), p.take(C)], 4 * N * C, 6 * N * C))


def swiglu(inner):
    gate, up = inner.chunk(2, dim=-1)
    return F.silu(gate) * up


def elementwise_cases(N, C, F_width):
    gelu = with_backward("activation", "gelu", N, F_width, F.gelu, lambda p: [p.take(N, F_width)],
                         4 * N * F_width, 6 * N * F_width)
    glu = with_backward("activation", "swiglu: silu, then product", N, F_width, swiglu,
                        lambda p: [p.take(N, 2 * F_width)], 6 * N * F_width, 10 * N * F_width)

    def add(pool):
        x, residual = pool.take(N, C), pool.take(N, C)
        return lambda: x + residual

    def scale(pool):
        x = pool.take(N, C)
        return lambda: x * 0.5

    return gelu + glu + [Case("add_residual", add, N, C, variant="out of place", bytes=6 * N * C),
                         Case("scale", scale, N, C, bytes=4 * N * C)]


def rope_case(batch, T, heads, D):
    def make(pool):
        x = pool.take(batch, T, heads, D).transpose(1, 2)
        angles = rotation(T, D, x.device)
        return lambda: rotate(x, *angles)

    return Case("rope", make, batch * heads, T, D, variant="halves, plain operations",
                bytes=4 * batch * T * heads * D)


def vocabulary_cases(N, C, V):
    def embed(pool):
        table, tokens = pool.take(V, C), torch.randint(V, (N,), device=pool.numbers.device)
        return lambda: F.embedding(tokens, table)

    def embed_backward(pool):
        table = pool.take(V, C).detach().requires_grad_()
        out = F.embedding(torch.randint(V, (N,), device=table.device), table)
        dy = pool.take(N, C)
        return lambda: torch.autograd.grad(out, table, dy, retain_graph=True)

    def loss_case(pool):
        x = pool.take(N, V)
        tokens = torch.randint(V, (N,), device=x.device)
        return lambda: F.cross_entropy(x.float(), tokens)

    def loss_backward(pool):
        x = pool.take(N, V).detach().requires_grad_()
        out = F.cross_entropy(x.float(), torch.randint(V, (N,), device=x.device))
        return lambda: torch.autograd.grad(out, x, retain_graph=True)

    return [Case("embed", embed, N, C, V, bytes=4 * N * C),
            Case("embed_backward", embed_backward, N, C, V, variant="dense: the whole gradient is written",
                 bytes=6 * N * C),
            Case("loss", loss_case, N, V, variant="to fp32, log_softmax, nll_loss", bytes=2 * N * V),
            Case("loss_backward", loss_backward, N, V, variant="in fp32, then to bf16", bytes=4 * N * V)]


def adamw_case(machine, elements, tensors):
    def make(pool):
        parameters = [torch.zeros(elements // tensors, device=machine.device) for _ in range(tensors)]
        for each in parameters:
            each.normal_()
            each.grad = torch.full_like(each, 1e-3)
        optimizer = torch.optim.AdamW(parameters, lr=1e-4, **({} if machine.cpu else {"fused": True}))
        optimizer.step()
        return optimizer.step

    return Case("optimizer", make, elements, tensors, variant="AdamW, fused", format="fp32", bytes=28 * elements)


def memory_cases(machine, elements):
    def accumulate(pool):
        total, part = torch.zeros(elements, device=machine.device), pool.take(elements)
        return lambda: total.add_(part)

    def clear(pool):
        total = torch.empty(elements, device=machine.device)
        return lambda: total.zero_()

    def copy(pool):
        into, x = torch.empty(elements, dtype=BF16, device=machine.device), pool.take(elements)
        return lambda: into.copy_(x)

    def narrow(pool):
        into, x = torch.empty(elements, dtype=BF16, device=machine.device), pool.take(elements, dtype=torch.float32)
        return lambda: into.copy_(x)

    return [Case("accumulate", accumulate, elements, variant="fp32 += bf16", format="fp32", bytes=10 * elements),
            Case("clear", clear, elements, format="fp32", bytes=4 * elements),
            Case("copy", copy, elements, variant="on the device", bytes=4 * elements),
            Case("copy", narrow, elements, variant="fp32 to bf16", bytes=6 * elements)]


def host_cases(machine, elements):
    def buffers(pool):
        host = torch.empty(elements, dtype=BF16)
        return (host if machine.cpu else host.pin_memory()), pool.take(elements).clone()

    def to_host(pool):
        host, x = buffers(pool)
        return lambda: host.copy_(x, non_blocking=True)

    def to_device(pool):
        host, x = buffers(pool)
        return lambda: x.copy_(host, non_blocking=True)

    return [Case("copy_to_host", to_host, elements, variant="pinned", bytes=2 * elements),
            Case("copy_to_device", to_device, elements, variant="pinned", bytes=2 * elements)]


def launch_cases(machine):
    def nothing(pool):
        return lambda: None

    def tiny(pool):
        x = torch.zeros(1, device=machine.device)
        return lambda: x.add_(1)

    def hundred(pool):
        x = torch.zeros(1, device=machine.device)
        return lambda: [x.add_(1) for _ in range(100)]

    return [Case("launch", nothing, variant="two events, no kernel between"),
            Case("launch", tiny, variant="one kernel of one element"),
            Case("launch", hundred, m=100, variant="100 kernels of one element, the host ahead as far as it can be")]


def cases(machine):
    if machine.cpu:
        return small_cases(machine)
    matmuls = ("matmul", "matmul_input_gradient", "matmul_weight_gradient")
    result = [matmul_case(op, *shape, BF16, "bf16") for shape in dict.fromkeys(matmul_shapes()) for op in matmuls]
    for m, n, k in [(512, 512, 512), (1024, 3072, 1024), (4096, 4096, 4096), (4096, 3072, 768), (2048, 8192, 8192),
                    (8192, 8192, 8192), (4095, 4097, 4099)]:
        result += [matmul_case("matmul", m, n, k, torch.float32, name) for name in ("fp32", "tf32")]
    result += [fp8_case(*shape) for shape in [
        (128, 128, 128), (512, 512, 512), (1024, 1024, 1024), (2048, 2048, 2048), (4096, 4096, 4096),
        (8192, 8192, 8192), (16384, 16384, 16384), (4096, 6144, 2048), (8192, 16384, 2048), (8192, 2048, 8192),
        (16384, 14336, 4096), (16384, 4096, 14336), (8192, 8192, 512), (64, 4096, 4096)]]
    result += [grouped_case(*shape) for shape in [(8, 8192, 14336, 4096), (8, 8192, 4096, 14336),
                                                  (64, 16384, 1408, 2048), (64, 16384, 2048, 1408)]]
    for batch, heads, kv, T, D in [(1, 8, 8, 512, 64), (8, 12, 12, 512, 64), (8, 12, 12, 1024, 64),
                                   (4, 25, 25, 1024, 64), (8, 16, 16, 1024, 64), (2, 32, 8, 4096, 64),
                                   (1, 32, 8, 4096, 64), (1, 32, 8, 8192, 64), (1, 24, 8, 4096, 128),
                                   (1, 32, 8, 4096, 128), (2, 32, 32, 2048, 128), (1, 64, 8, 4096, 128),
                                   (1, 128, 16, 2048, 128), (1, 32, 8, 8192, 128), (1, 16, 16, 16384, 128),
                                   (1, 32, 32, 16384, 64), (16, 32, 32, 512, 128), (1, 8, 8, 16384, 128)]:
        result += attention_cases(batch, heads, kv, T, D)
    for shape in [(8, 12, 12, 1024, 64), (1, 32, 8, 4096, 64), (1, 32, 8, 4096, 128), (1, 16, 16, 16384, 128)]:
        result += attention_cases(*shape, backend="cudnn")
    for N, C, F_width in [(1024, 768, 3072), (8192, 768, 3072), (4096, 1600, 6400), (2048, 2048, 8192),
                          (8192, 2048, 8192), (4096, 4096, 14336), (16384, 4096, 14336)]:
        result += norm_cases(N, C) + elementwise_cases(N, C, F_width)
    result += [rope_case(*shape) for shape in [(8, 1024, 12, 64), (1, 4096, 40, 64), (2, 4096, 40, 64),
                                               (1, 4096, 32, 128), (4, 4096, 40, 128)]]
    for shape in [(1024, 768, 50257), (8192, 768, 50257), (4096, 2048, 128256), (4096, 4096, 32000)]:
        result += vocabulary_cases(*shape)
    result += [adamw_case(machine, elements, tensors) for elements, tensors in [
        (1 << 16, 1), (1 << 20, 1), (1 << 24, 1), (1 << 24, 100), (124_000_000, 148), (1 << 28, 1), (1 << 29, 200)]]
    for elements in (1 << 12, 1 << 16, 1 << 20, 1 << 23, 1 << 25, 1 << 27, 1 << 29):
        result += memory_cases(machine, elements)
        if elements <= 1 << 27:
            result += host_cases(machine, elements)
    return result + launch_cases(machine)


def small_cases(machine):
    matmuls = ("matmul", "matmul_input_gradient", "matmul_weight_gradient")
    result = [matmul_case(op, 17, 33, 65, BF16, "bf16") for op in matmuls]
    result += [matmul_case("matmul", 16, 16, 16, torch.float32, "fp32"), fp8_case(16, 16, 16)]
    result += [grouped_case(2, 16, 8, 8)] + attention_cases(2, 4, 2, 16, 8)
    result += norm_cases(8, 16) + elementwise_cases(8, 16, 32) + [rope_case(1, 8, 2, 8)]
    result += vocabulary_cases(8, 16, 50) + [adamw_case(machine, 4096, 2)]
    return result + memory_cases(machine, 4096) + host_cases(machine, 4096) + launch_cases(machine)


class Sentinel:
    """One matrix product through the whole run: where its time moves, the machine did."""

    def __init__(self, machine):
        self.size = 64 if machine.cpu else 8192
        self.machine = machine
        self.case = matmul_case("matmul", self.size, self.size, self.size, BF16, "bf16")
        self.call = self.case.make(Pool(machine, 2 * self.size * self.size))
        self.rows, self.begin = [], time.time()

    def look(self, phase):
        times = self.machine.time_back_to_back(self.call, 0.01)
        row = self.case.row("sentinel", times)
        row[1] = f"{phase}, {time.time() - self.begin:.1f} s"
        self.rows.append(row)


def measure(machine, pool, sentinel, deadline, most_rounds, not_measured):
    """Visits every case once a round, in another order each round, until the rounds or the time are over."""
    everything = cases(machine)
    order = random.Random(1)
    rounds = 0
    while rounds < most_rounds and (rounds == 0 or time.time() < deadline):
        order.shuffle(everything)
        kept = []
        for index, case in enumerate(everything):
            if index % 60 == 0:
                sentinel.look("kernels")
            if rounds > 0 and time.time() > deadline:
                kept += everything[index:]
                break
            try:
                with torch.enable_grad():
                    call = case.make(pool)
                if rounds == 0:
                    call()  # libraries choose and load their kernels
                    machine.synchronize()
                cold, warm = machine.time_cold_and_warm(call, 2)
                case.cold.append(cold)
                case.warm += warm
                kept.append(case)
            except Exception as error:  # a case that this version of PyTorch does not know
                not_measured.append({"case": case.name(), "why": str(error).split("\n")[0][:200]})
                machine.free_memory()
            call = None
        everything = kept
        rounds += 1
    return everything, rounds


def measure_steady(machine, pool, seconds):
    """Calls in a row, at the clock of steady work: the products of large layers."""
    rows = []
    shapes = [(64, 64, 64)] if machine.cpu else [(8192, 8192, 8192), (8192, 16384, 2048), (4096, 50304, 1024),
                                                (4096, 2304, 768)]
    for shape in shapes:
        for op in ("matmul", "matmul_input_gradient", "matmul_weight_gradient"):
            case = matmul_case(op, *shape, BF16, "bf16")
            times = machine.time_back_to_back(case.make(pool), seconds)
            rows.append(case.row("steady, first tenth", times[:max(1, len(times) // 10)]))
            rows.append(case.row("steady, last half", times[len(times) // 2:]))
    return rows


def measure_launches(machine):
    """Wall time of a launch: what the host pays, and what a wait for the result costs."""
    x = torch.zeros(1, device=machine.device)
    rows = []
    for variant, wait in (("host: launch and wait", True), ("host: 1000 launches, then one wait", False)):
        times = []
        for _ in range(200 if wait else 10):
            machine.synchronize()
            begin = time.perf_counter()
            for _ in range(1 if wait else 1000):
                x.add_(1)
            machine.synchronize()
            times.append((time.perf_counter() - begin) / (1 if wait else 1000))
        rows.append(Case("launch", None, variant=variant).row("warm", times))
    return rows


def write(path, everything, extra):
    everything = sorted((case for case in everything if case.cold), key=lambda case: (case.op, case.variant,
                        case.format, case.flops, case.bytes, case.m))
    with open(path, "w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(COLUMNS)
        for case in everything:
            rows.writerow(case.row("cold", case.cold))
            rows.writerow(case.row("warm", case.warm))
        rows.writerows(extra)
