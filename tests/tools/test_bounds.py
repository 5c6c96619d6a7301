#!/usr/bin/env python3
"""What a scenario of 1,024 chips may cost: `motley check` ends within some seconds of the processor and in 1 GiB, or
refuses the scenario with the reason. The scenarios are drawn: well-formed, with figures near the bounds of each key.

Arguments: the program, the source tree. MOTLEY_DRAWS in the environment asks for more of them.
"""

import concurrent.futures
import os
import pathlib
import random
import resource
import subprocess
import sys
import tempfile
import unittest

PROGRAM = pathlib.Path(sys.argv.pop(1)).resolve()
ROOT = pathlib.Path(sys.argv.pop(1)).resolve()

SANITIZED = bool(os.environ.get("MOTLEY_SANITIZED"))
DRAWS = int(os.environ.get("MOTLEY_DRAWS", "12" if SANITIZED else "60"))
FIRST = int(os.environ.get("MOTLEY_FIRST_DRAW", "0"))
CHIPS = 1024
MOST_BYTES = 1 << 30
# Seconds of the processor are compared with those of a scenario that ships, so that a slow or a busy machine changes
# nothing. The dearest of 550 draws took 4 s where this one took 0.5 s.
YARDSTICK = "deepseek-v3-2048.yaml"
MOST_YARDSTICKS = 20
KILLED_AFTER_S = 120

# A chip whose memory is no reason to refuse anything.
CHIP = ("{vendor: none, kind: gpu, peak: {bf16: 1 PFLOP/s, fp8: 2 PFLOP/s}, memory: 60000 TiB, "
        "memory_bandwidth: 3 TB/s, gemm_efficiency: 0.8, attention_efficiency: 0.5, bandwidth_efficiency: 0.8}")


def divisors(number):
    return [each for each in range(1, number + 1) if number % each == 0]


class Draw:
    """A scenario. Most of its figures fit each other, so that most draws are not refused for a wrong divisor."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.degrees()
        self.model()
        self.batch()

    def one(self, *choices):
        return self.random.choice(choices)

    def often(self, share=0.5):
        return self.random.random() < share

    def degrees(self):
        left = CHIPS
        order = ["tp", "pp", "cp", "dp"]
        self.random.shuffle(order)
        self.degree = dict.fromkeys(order, 1)
        for name in order[:-1]:
            self.degree[name] = self.random.choice(divisors(left))
            left //= self.degree[name]
        self.degree[order[-1]] = left
        self.schedule = self.one("1f1b", "gpipe", "interleaved", "zb-h1", "zb-v", "dualpipe-v", "1f1b", "interleaved")
        self.chunks = 2 if self.schedule in ("zb-v", "dualpipe-v") else 1
        if self.schedule == "interleaved":
            self.chunks = self.one(2, 2, 4, 8, 64, 1024)

    def model(self):
        tp, pp = self.degree["tp"], self.degree["pp"]
        head_dim = self.one(1, 16, 128, 1024)
        heads = tp * self.one(1, 1, 8, 1024)
        stages = pp * self.chunks
        layers = self.one(1, 1, 2, 8, 61, 1024, 2048)
        self.layers = min(2048, max(stages, layers) if self.often(0.9) else layers)
        model = {"family": self.one("llama", "llama", "gpt2"), "vocabulary": self.one(1, 128, 1 << 17, 1 << 22),
                 "hidden": min(1 << 20, self.one(heads * head_dim, tp * 64, 1 << 20)), "layers": self.layers,
                 "heads": min(heads, 1 << 20), "ffn": tp * self.one(1, 128, 1 << 12), "max_positions": 1 << 22}
        if model["family"] == "llama":
            model["head_dim"] = 2 * head_dim
            model["kv_heads"] = tp if self.often() else model["heads"]
            if self.often(0.3):
                model[self.one("sliding_window", "attention_chunk")] = self.one(1, 7, 4096, 1 << 22)
            if self.often(0.2):
                model["extra_predictions"] = self.one(1, 16)
            self.experts(model)
        else:
            model["hidden"] = model["heads"] * self.one(1, 2, 64)
        self.text_of_model = self.map_of(model)

    def experts(self, model):
        self.ep = 1
        if not self.often(0.5):
            return
        count = self.one(1, 2, 8, 256, 1024, 4096, 1 << 14)
        within = [each for each in divisors(count) if each <= self.degree["tp"] * self.degree["cp"] * self.degree["dp"]]
        self.ep = self.one(within[-1], self.random.choice(within))
        experts = {"count": count, "per_token": self.one(1, 1, 2, min(8, count), max(1, count // 2), count),
                   "ffn": self.degree["tp"] * self.one(1, 64, 4096)}
        experts["per_token"] = min(experts["per_token"], count)
        if self.often(0.3):
            experts["shared_ffn"] = experts["ffn"]
        if self.often(0.3):
            groups = self.random.choice(divisors(count))
            taken = [each for each in range(1, min(groups, 64) + 1) if each * (count // groups) >= experts["per_token"]]
            if taken:
                experts.update(groups=groups, groups_per_token=self.random.choice(taken))
        model["experts"] = self.map_of(experts)

    def batch(self):
        dp, cp = self.degree["dp"], self.degree["cp"]
        micro_batch = self.one(1, 1, 1, 2, 1 << 10, 1 << 20)
        micro_batches = self.one(1, 2, 8, self.degree["pp"], 4 * self.degree["pp"], 1024, 1 << 15, 1 << 20)
        sequence = min(1 << 22, 2 * cp * self.one(1, 1, 8, 1 << 10, 1 << 20))
        if self.often(0.9):
            micro_batch = min(micro_batch, (1 << 20) // dp, (1 << 30) // sequence)
        if self.often(0.8):
            micro_batches = max(1, min(micro_batches, (1 << 20) // (dp * micro_batch)))
        train = {"global_batch": min(1 << 20, max(1, dp * micro_batch * micro_batches)), "micro_batch": micro_batch,
                 "sequence": sequence, "precision": "bf16"}
        if self.often(0.3):
            length = [each for each in (1, 2, 128, 4096, train["sequence"]) if train["sequence"] % each == 0]
            train["documents"] = self.random.choice(length)
        if self.often(0.3):
            train["expert_skew"] = self.one(0.1, 1, 3, 30)
        if self.often(0.3):
            train["expert_room"] = self.one(1, 1.5, 1000)
        if self.often(0.2):
            train["lora"] = "{rank: 8}"
        self.text_of_train = self.map_of(train)

    @staticmethod
    def map_of(values):
        return "{" + ", ".join(f"{key}: {value}" for key, value in values.items()) + "}"

    def strategy(self):
        strategy = {**self.degree, "schedule": self.schedule}
        if self.schedule == "interleaved":
            strategy["virtual_stages"] = self.chunks
        if getattr(self, "ep", 1) > 1:
            strategy["ep"] = self.ep
            if self.often() or self.degree["tp"] * self.ep > CHIPS // self.degree["pp"]:
                strategy["etp"] = self.one(1, self.degree["tp"])
        if self.often(0.3):
            strategy["recompute"] = self.one("full", "selective")
        if self.often(0.3):
            strategy["sequence_parallel"] = "true"
        if self.often(0.5):
            strategy["zero"] = self.one(1, 2, 3)
            if self.often(0.3):
                strategy["prefetch"] = self.one(0, 1, 64)
        overlap = [key for key in ("gradients", "parameters", "experts", "context") if self.often(0.25)]
        if overlap:
            strategy["overlap"] = ("{" + ", ".join(f"{key}: {self.one('true', 'true', 'false')}" for key in overlap)
                                   + f", bucket_bytes: {self.one('1 B', '1 kB', '100 MB', '1 TB')}" + "}")
        if self.often(0.1):
            strategy["p2p_buffers"] = self.one(1, 2, 1024)
        return self.map_of(strategy)

    def cluster(self):
        groups = []
        counts = self.one([CHIPS], [CHIPS], [CHIPS], [CHIPS // 2] * 2, [1] * 64 + [CHIPS - 64])
        for number, chips in enumerate(counts):
            each = self.random.choice(divisors(chips)[:11])
            groups.append(f"{{name: g{number}, nodes: {chips // each}, chips_per_node: {each}, chip: &chip{number} "
                          f"{CHIP if number == 0 else '*chip0'}, inside: {{fabric: nvswitch, bandwidth: 300 GB/s}}, "
                          "nics: [{kind: infiniband, count: 1, bandwidth: 400 Gb/s}]}".replace(f"&chip{number} *", "*"))
        links = [f"{{between: [g{a}, g{b}], over: infiniband}}" for b in range(len(counts)) for a in range(b)]
        network = ""
        if self.often(0.4):
            network = (f", networks: [{{over: infiniband, shape: leaf_spine, nodes_per_leaf: {self.one(1, 16)}, "
                       f"spines: {self.one(1, 32, 1024)}}}]")
        return f"{{groups: [{', '.join(groups)}], links: [{', '.join(links)}]{network}}}"

    def fidelity(self):
        fidelity = {}
        if self.often(0.3):
            fidelity["tensor_parallel"] = self.one("fluid", "expanded")
        if self.often(0.3):
            fidelity["expert_copies"] = "node"
        return self.map_of(fidelity)

    def text(self):
        return (f"model: {self.text_of_model}\ncluster: {self.cluster()}\ntrain: {self.text_of_train}\n"
                f"strategy: {self.strategy()}\nfidelity: {self.fidelity()}\n")


def limit():
    if not SANITIZED:  # its shadow memory is terabytes of address space
        resource.setrlimit(resource.RLIMIT_AS, (MOST_BYTES, MOST_BYTES))
    seconds = KILLED_AFTER_S * (10 if SANITIZED else 1)
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))


def check(path):
    """Exit code, what was printed, seconds of the processor."""
    with subprocess.Popen([PROGRAM, "check", path], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          preexec_fn=limit) as process:
        printed = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    return process.returncode, printed, usage.ru_utime + usage.ru_stime


class Bounds(unittest.TestCase):
    def test_scenarios_of_1024_chips_are_checked_at_a_bounded_cost_or_refused(self):
        yardstick_s = max(check(ROOT / "scenarios" / YARDSTICK)[2] for _ in range(2))
        seeds = range(FIRST, FIRST + DRAWS)
        codes = []
        with tempfile.TemporaryDirectory() as folder:
            def run(seed):
                path = pathlib.Path(folder) / f"draw-{seed}.yaml"
                path.write_text(Draw(seed).text(), encoding="utf-8")
                return check(path)
            with concurrent.futures.ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
                for seed, (code, printed, seconds) in zip(seeds, pool.map(run, seeds)):
                    with self.subTest(seed=seed):
                        self.assertIn(code, (0, 2, 3), printed[:2000] + Draw(seed).text())
                        if code != 0:
                            self.assertRegex(printed, r"motley: error: \S+draw-\d+\.yaml:\d+:\d+: .+")
                        self.assertLess(seconds, MOST_YARDSTICKS * yardstick_s, printed[:2000] + Draw(seed).text())
                    codes.append(code)
        self.assertGreater(codes.count(0), DRAWS // 5, "too few of the draws are accepted to say anything")
        self.assertGreater(DRAWS - codes.count(0), DRAWS // 5)


if __name__ == "__main__":
    unittest.main()
