#!/usr/bin/env python3
"""Collectives between hosts with slow links, measured beside predicted: by how much an algorithm that knows the hosts
beats the flat one, and whether `automatic` takes the fastest.

Arguments: the program; --rates 100mbit,1gbit,- (the links of the hosts; "-": as fast as this machine is); --hosts N and
--ranks N of each host (2 and 2); --operations A,B (all that there are); --rounds N (3, medians of them count); --json
prints JSON; --smoke runs once, at 100 Mbit/s, with one operation. Root is needed: hosts are network namespaces
(tests/tools/network_hosts.py).

For each rate, messages are measured first; `motley calibrate --comm` makes the cluster of them that predictions rest
on. At a stated rate a factor is to be within 15 % of the predicted one, and what `automatic` takes within 10 % of the
fastest (other processes of a busy machine move times of equal algorithms by as much); else the exit code is 1. Without
a rate the processors are the link, which the simulator does not know: nothing is asked there.
"""

import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

from network_hosts import NetworkHosts, why_not

MIB = 1 << 20
NEAR, FASTEST = 0.15, 0.1
KNOWS_HOSTS = ("hierarchical", "double_binary_tree")
FLAT = {"all_to_all": "flat"}  # others: ring


class Bench:
    def __init__(self, program, hosts, ranks_per_host, folder):
        self.program, self.hosts, self.ranks_per_host = program, hosts, ranks_per_host
        self.cluster = pathlib.Path(folder) / "hosts.yaml"
        self.measured = pathlib.Path(folder) / "comm.json"

    def comm(self, *options):
        answer = self.hosts.launch(self.program, self.ranks_per_host, self.program, "bench", "comm", "--paths", "tcp",
                                   "--json", *options)
        if answer.returncode != 0:
            sys.exit(f"motley bench comm ended with {answer.returncode}\n{answer.stderr}")
        return answer.stdout

    def calibrate(self):
        self.measured.write_text(self.comm("--operations", "message", "--bytes", "8 B,1 MiB,8 MiB"))
        subprocess.run([self.program, "calibrate", "--comm", self.measured, "--cluster", self.cluster], check=True,
                       stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL)

    def times(self, operations, size):
        """By operation and algorithm: seconds, predicted seconds, and for `automatic` what was chosen."""
        told = self.comm("--cluster", self.cluster, "--operations", operations, "--bytes", f"{size} B", "--algorithms",
                         "ring,flat,tree,double_binary_tree,recursive,hierarchical,automatic")
        return {(call["operation"], call["algorithm"]): call for call in json.loads(told)["calls"]}


def rows_of(rate, rounds):
    """One row for each operation and algorithm, by the medians of the rounds."""
    rows = []
    seconds = {key: statistics.median(each[key]["seconds"] for each in rounds) for key in rounds[0]}
    for (operation, algorithm), call in rounds[0].items():
        if algorithm == "automatic":
            continue
        flat = operation, FLAT.get(operation, "ring")
        row = {"rate": rate, "operation": operation, "algorithm": algorithm, "bytes": call["bytes"],
               "measured_s": seconds[operation, algorithm], "predicted_s": call["predicted_s"],
               "between_hosts_bytes": call["between_hosts_bytes"]}
        row["factor"] = seconds[flat] / row["measured_s"]
        row["predicted_factor"] = rounds[0][flat]["predicted_s"] / row["predicted_s"]
        row["asked"] = rate != "-" and algorithm in KNOWS_HOSTS and operation != "all_to_all"
        row["holds"] = abs(row["factor"] / row["predicted_factor"] - 1) <= NEAR
        rows.append(row)
    return rows


def choices_of(rate, rounds, rows):
    """What `automatic` took of each operation, beside the fastest measured."""
    for operation in dict.fromkeys(row["operation"] for row in rows):
        times = {row["algorithm"]: row["measured_s"] for row in rows if row["operation"] == operation}
        chosen, fastest = rounds[0][operation, "automatic"]["chosen"], min(times, key=times.get)
        yield {"rate": rate, "operation": operation, "automatic": chosen, "fastest": fastest,
               "slower": times[chosen] / times[fastest] - 1, "asked": rate != "-",
               "holds": times[chosen] <= (1 + FASTEST) * times[fastest]}


def word(row):
    return "-" if not row["asked"] else "yes" if row["holds"] else "no"


def print_rows(rows):
    print("| rate | operation | algorithm | between hosts | measured | predicted | times as fast as the flat one | "
          "predicted | holds |\n|---|---|---|---|---|---|---|---|---|")
    for row in rows:
        print(f"| {row['rate']} | {row['operation']} of {row['bytes'] / MIB:.0f} MiB | {row['algorithm']} | "
              f"{row['between_hosts_bytes'] / MIB:.1f} MiB | {1e3 * row['measured_s']:.1f} ms | "
              f"{1e3 * row['predicted_s']:.1f} ms | {row['factor']:.2f} | {row['predicted_factor']:.2f} | "
              f"{word(row)} |")


def print_choices(choices):
    print("\n| rate | operation | automatic takes | fastest measured | slower by | holds |\n|---|---|---|---|---|---|")
    for row in choices:
        print(f"| {row['rate']} | {row['operation']} | {row['automatic']} | {row['fastest']} | "
              f"{100 * row['slower']:.1f} % | {word(row)} |")


def main():
    option = lambda name, default: sys.argv[sys.argv.index(name) + 1] if name in sys.argv else default
    smoke, as_json = "--smoke" in sys.argv, "--json" in sys.argv
    program = pathlib.Path(sys.argv[1]).resolve()
    if missing := why_not():
        sys.exit(missing)
    rates = option("--rates", "100mbit" if smoke else "100mbit,1gbit,-").split(",")
    operations = option("--operations",
                        "all_reduce" if smoke else "all_reduce,all_gather,reduce_scatter,all_to_all")
    rows, choices = [], []
    for rate in rates:
        with NetworkHosts(int(option("--hosts", 2)), rate) as hosts, tempfile.TemporaryDirectory() as folder:
            bench = Bench(program, hosts, int(option("--ranks", 2)), folder)
            bench.calibrate()
            size = (1 if smoke else 4 if rate.endswith("mbit") else 16) * MIB
            rounds = [bench.times(operations, size) for _ in range(1 if smoke else int(option("--rounds", 3)))]
            rows += (mine := rows_of(rate, rounds))
            choices += choices_of(rate, rounds, mine)
    if as_json:
        print(json.dumps({"schema": "motley.bench_namespaces/1", "rows": rows, "choices": choices}, indent=2))
    else:
        print_rows(rows)
        print_choices(choices)
    return any(row["asked"] and not row["holds"] for row in rows + choices)


sys.exit(main())
