#!/usr/bin/env python3
"""How near predictions on measured kernels are to real steps on this host: one calibration, then `motley rehearse` of
many unlike jobs that it neither ran nor has shapes of. How tokens choose experts is no matter of speed: two steps, of
which no time is used, tell it before.

Arguments: the program, the source tree; --host FILE uses a calibration that is there; --seconds N of calibration
(default 120); --kernels reference computes with the slow kernels (about 15 minutes); --smoke rehearses two cases after
a short calibration.
"""

import json
import pathlib
import subprocess
import sys
import tempfile

HOST = "{fabric: loopback, bandwidth: 4.4 GB/s, latency: 10 us}"

# name, ranks, model, train beyond precision and rate, strategy
CASES = [
    ("one rank, tiny-gpt2", 1, "tiny-gpt2", "{global_batch: 4, micro_batch: 2, sequence: 128", "{}"),
    ("one rank, tiny-llama", 1, "tiny-llama", "{global_batch: 4, micro_batch: 4, sequence: 96", "{}"),
    ("one rank, tiny-mixtral", 1, "tiny-mixtral", "{global_batch: 4, micro_batch: 2, sequence: 64", "{}"),
    ("recompute", 1, "tiny-gpt2", "{global_batch: 8, micro_batch: 4, sequence: 96", "{recompute: full}"),
    ("gpt2 124M", 1, "gpt2", "{global_batch: 1, micro_batch: 1, sequence: 160", "{}"),
    ("offload", 1, "tiny-llama", "{global_batch: 4, micro_batch: 2, sequence: 112",
     "{offload: {optimizer: 1, activations: 0}}"),
    ("tp 2", 2, "tiny-gpt2", "{global_batch: 4, micro_batch: 4, sequence: 80", "{tensor_parallel: 2}"),
    ("tp 2, sequence parallel", 2, "tiny-llama", "{global_batch: 4, micro_batch: 2, sequence: 128",
     "{tensor_parallel: 2, sequence_parallel: true}"),
    ("cp 2", 2, "tiny-llama", "{global_batch: 2, micro_batch: 1, sequence: 128", "{context_parallel: 2}"),
    ("ep 2", 2, "tiny-mixtral", "{global_batch: 4, micro_batch: 2, sequence: 96",
     "{data_parallel: 2, expert_parallel: 2}"),
    ("dp 2, zero 0", 2, "tiny-gpt2", "{global_batch: 8, micro_batch: 2, sequence: 64", "{data_parallel: 2}"),
    ("dp 2, zero 1", 2, "tiny-llama", "{global_batch: 8, micro_batch: 4, sequence: 64", "{data_parallel: 2, zero: 1}"),
    ("dp 2, zero 2", 2, "tiny-gpt2", "{global_batch: 4, micro_batch: 2, sequence: 96", "{data_parallel: 2, zero: 2}"),
    ("dp 2, zero 3", 2, "tiny-llama", "{global_batch: 8, micro_batch: 4, sequence: 112",
     "{data_parallel: 2, zero: 3}"),
    ("1f1b", 2, "tiny-gpt2", "{global_batch: 8, micro_batch: 1, sequence: 112", "{pipeline_parallel: 2}"),
    ("gpipe", 2, "tiny-llama", "{global_batch: 8, micro_batch: 2, sequence: 80",
     "{pipeline_parallel: 2, schedule: gpipe}"),
    ("zb-h1", 2, "tiny-gpt2", "{global_batch: 12, micro_batch: 2, sequence: 80",
     "{pipeline_parallel: 2, schedule: zb-h1}"),
    ("interleaved", 2, "tiny-llama", "{global_batch: 8, micro_batch: 1, sequence: 120",
     "{pipeline_parallel: 2, schedule: interleaved, virtual_stages: 2}"),
    ("unequal stages", 2, "tiny-gpt2", "{global_batch: 8, micro_batch: 2, sequence: 120",
     "{pipeline_parallel: 2, layers: [1, 3]}"),
]


def run(*arguments):
    answer = subprocess.run([str(each) for each in arguments], capture_output=True, text=True)
    if answer.returncode != 0:
        raise RuntimeError(answer.stderr.strip())
    return answer.stdout


def scenario(ranks, model, train, strategy):
    host = ", host: {memory: 8 GiB, memory_bandwidth: 10 GB/s, link: 5 GB/s}" if "offload" in strategy else ""
    return (f"model: {model}\n"
            f"cluster:\n  groups:\n    - {{name: host, nodes: 1, chip: host-core, chips_per_node: {ranks}, "
            f"inside: {HOST}{host}}}\n"
            f"train: {train}, precision: fp32, learning_rate: 1e-3, steps: 8}}\n"
            f"strategy: {strategy}\nworld: real\n")


def without_shapes(chip):
    """The speeds alone: no shape of a case may have been measured, not even by chance."""
    lines, inside = [], None
    for line in chip.splitlines():
        depth = len(line) - len(line.lstrip())
        if inside is not None and depth > inside:
            continue
        inside = depth if line.strip() == "shapes:" else None
        if inside is None:
            lines.append(line)
    return "\n".join(lines) + "\n"


def order_errors(results):
    """Pairs of cases whose measured steps differ by more than 15 %, of which the faster is predicted the slower."""
    wrong = pairs = 0
    for i, a in enumerate(results):
        for b in results[:i]:
            low, high = sorted((a, b), key=lambda each: each["measured_s"])
            if high["measured_s"] < 1.15 * low["measured_s"]:
                continue
            pairs += 1
            wrong += low["predicted_s"] >= high["predicted_s"]
    return wrong, pairs


def remark_on_routing(result):
    """What the prediction would have been with an even share, and what the load was that it took."""
    if (before := result.get("routing_before")) is None:
        return ""
    load = before["busiest_" + before["by"]]
    return (f"two steps before, the busiest {before['by']} got {load:.2f} times its even "
            f"share, so it is predicted; {1e3 * before['stated_predicted_s']:.1f} ms "
            f"({before['stated_error_pct']:+.1f} %) with an even share")


def main():
    program = pathlib.Path(sys.argv[1]).resolve()
    smoke = "--smoke" in sys.argv
    option = lambda name, default: sys.argv[sys.argv.index(name) + 1] if name in sys.argv else default
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        host, kernels = option("--host", None), option("--kernels", "fast")
        if host is None:
            host = folder / "host.yaml"
            print(run(program, "calibrate", "--seconds", 5 if smoke else option("--seconds", 120), "--cluster", host,
                      "--kernels", kernels))
        speeds = folder / "speeds.yaml"
        speeds.write_text(without_shapes(pathlib.Path(host).read_text()))
        print(f"{'case':26}{'measured':>11}{'predicted':>11}{'error':>9}{'80 % interval':>22}{'noise':>8}"
              f"{'uncalibrated':>14}", flush=True)
        results = []
        for name, *job in CASES[:2] if smoke else CASES:
            path = folder / "case.yaml"
            path.write_text(scenario(*job))
            # Slow kernels need 30 s for a step of 124 million parameters.
            few = ("--rounds", 2, "--steps", 3) if smoke or (kernels != "fast" and "124M" in name) else ()
            try:
                result = json.loads(run(program, "rehearse", path, "--host", speeds, "--json",
                                        "--kernels", kernels, *few))
            except RuntimeError as error:
                print(f"{name:26}{error}", flush=True)
                continue
            results.append(result)
            low, high = (f"{1e3 * each:.1f}" for each in result["interval_s"])
            mark = " " if result["interval_holds"] else "!"
            print(f"{name:26}{1e3 * result['measured_s']:8.1f} ms{1e3 * result['predicted_s']:8.1f} ms"
                  f"{result['error_pct']:+7.1f} %{low + ' to ' + high + ' ms' + mark:>22}{result['noise_pct']:6.1f} %"
                  f"{result['uncalibrated_error_pct']:+12.1f} %", flush=True)
            if remark := remark_on_routing(result):
                print(f"{'':28}{remark}", flush=True)
    errors = sorted(abs(each["error_pct"]) for each in results)
    wrong, pairs = order_errors(results)
    print(f"\n{len(results)} cases: error mean {sum(errors) / len(errors):.1f} %, "
          f"median {errors[len(errors) // 2]:.1f} %, worst {errors[-1]:.1f} %; uncalibrated mean "
          f"{sum(abs(each['uncalibrated_error_pct']) for each in results) / len(results):.1f} %")
    print(f"80 % intervals hold {sum(each['interval_holds'] for each in results)} of {len(results)}; "
          f"order wrong in {wrong} of {pairs} pairs that differ by more than 15 %")


main()
