#!/usr/bin/env python3
"""Steps of two ranks on two hosts with slow links, measured beside predicted, and links as calibrated beside iperf3.

Arguments: the program; --rates 100mbit,1gbit; --chip FILE, a calibrated chip, or --seconds N of calibrating one (60);
--json prints JSON. Root and iperf3 are needed: hosts are network namespaces (tests/tools/network_hosts.py).

Kernels are calibrated once, with two busy ranks. For each rate `motley calibrate --comm` makes a cluster of messages
that were measured between the hosts: its bandwidth is to be within 5 % of what iperf3 says, and predicted steps of data
parallel and of pipelined ranks within 10 % of the measured ones; else the exit code is 1. The other jobs are told, not
asked: tbf lets 2 ms of the rate pass at once, which shortens what is smaller.
"""

import json
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile

from network_hosts import NetworkHosts, why_not

LINK, STEP = 0.05, 0.10
STEPS = 8
# name, model, batch, strategy, whether its error is asked
JOBS = [("data parallel", "tiny-gpt2", "global_batch: 8, micro_batch: 2, sequence: 64", "{data_parallel: 2}", True),
        ("pipeline, messages of 1 MiB", "tiny-gpt2", "global_batch: 32, micro_batch: 8, sequence: 256",
         "{pipeline_parallel: 2}", True),
        ("pipeline, messages of 64 KiB", "tiny-gpt2", "global_batch: 8, micro_batch: 2, sequence: 64",
         "{pipeline_parallel: 2}", False),
        ("zero 3", "tiny-llama", "global_batch: 8, micro_batch: 2, sequence: 64", "{data_parallel: 2, zero: 3}", False)]


def run(*command):
    answer = subprocess.run([str(each) for each in command], capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if answer.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}\nended with {answer.returncode}\n{answer.stderr}")
    return answer.stdout


def on_hosts(hosts, program, *command):
    answer = hosts.launch(program, 1, program, *command)
    if answer.returncode != 0:
        sys.exit(f"motley {' '.join(map(str, command))}\nended with {answer.returncode}\n{answer.stderr}")
    return answer.stdout


def iperf3(hosts):
    """Bytes a second from the first host to the second."""
    server = subprocess.Popen(["ip", "netns", "exec", hosts.namespace("h1"), "iperf3", "-s", "-1"],
                              stdout=subprocess.DEVNULL)
    try:
        for _ in range(20):
            answer = subprocess.run(["ip", "netns", "exec", hosts.namespace("h0"), "iperf3", "-c", hosts.address(1),
                                     "-t", "4", "-O", "1", "-J"], capture_output=True, text=True)
            if answer.returncode == 0:
                return json.loads(answer.stdout)["end"]["sum_received"]["bits_per_second"] / 8
    finally:
        server.kill()
        server.wait()
    sys.exit(f"iperf3: {answer.stdout}")


def bandwidth_in(cluster):
    """Between the hosts of a cluster's file, in bytes a second."""
    number, unit = re.search(r"kind: ethernet, .*?bandwidth: ([\d.]+) ([kMG])b/s", cluster.read_text()).groups()
    return float(number) * {"k": 1e3, "M": 1e6, "G": 1e9}[unit] / 8


def row_of(what, measured, predicted, asked, most):
    error = predicted / measured - 1
    return {"what": what, "measured": measured, "predicted": predicted, "error": error, "asked": asked,
            "holds": abs(error) <= most}


def rows_of(rate, program, chip, folder):
    with NetworkHosts(2, rate) as hosts:
        link_Bps = iperf3(hosts)
        messages, cluster, scenario = (folder / each for each in ("comm.json", "pair.yaml", "step.yaml"))
        messages.write_text(on_hosts(hosts, program, "bench", "comm", "--paths", "tcp", "--json", "--operations",
                                     "message", "--bytes", "8 B,64 KiB,1 MiB,8 MiB"))
        run(program, "calibrate", "--comm", messages, "--cluster", cluster, "--chip", chip)
        yield row_of("link", link_Bps, bandwidth_in(cluster), True, LINK)
        for name, model, batch, strategy, asked in JOBS:
            scenario.write_text(f"model: {model}\ncluster: {cluster}\nstrategy: {strategy}\n"
                                f"train: {{{batch}, precision: fp32, learning_rate: 1e-3, steps: {STEPS}}}\n")
            predicted_s = json.loads(run(program, "simulate", scenario, "--json"))["iteration_s"]
            trained = json.loads(on_hosts(hosts, program, "train", scenario, "--json"))
            yield row_of(name, statistics.median(trained["step_s"][1:]), predicted_s, asked, STEP)


def print_row(rate, row):
    factor, unit = (8e-6, "Mb/s") if row["what"] == "link" else (1e3, "ms")
    values = " | ".join(f"{factor * row[which]:.1f} {unit}" for which in ("measured", "predicted"))
    word = "-" if not row["asked"] else "yes" if row["holds"] else "no"
    print(f"| {rate} | {row['what']} | {values} | {100 * row['error']:+.1f} % | {word} |", flush=True)


def main():
    option = lambda name, default: sys.argv[sys.argv.index(name) + 1] if name in sys.argv else default
    as_json, program = "--json" in sys.argv, pathlib.Path(sys.argv[1]).resolve()
    if missing := why_not():
        sys.exit(missing)
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        chip = option("--chip", None)
        if chip is None:
            chip = folder / "core.yaml"
            run(program, "calibrate", "--seconds", option("--seconds", 60), "--out", chip)
        if not as_json:
            print("| rate | what | measured (a link: by iperf3) | predicted (a link: as calibrated) | error | holds |\n"
                  "|---|---|---|---|---|---|", flush=True)
        rows = []
        for rate in option("--rates", "100mbit,1gbit").split(","):
            for row in rows_of(rate, program, chip, folder):
                rows.append({"rate": rate} | row)
                if not as_json:
                    print_row(rate, row)
    if as_json:
        print(json.dumps({"schema": "motley.bench_network_steps/1", "rows": rows}, indent=2))
    return any(row["asked"] and not row["holds"] for row in rows)


sys.exit(main())
