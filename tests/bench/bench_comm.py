#!/usr/bin/env python3
"""How fast Motley's ranks talk beside named rivals, on this host, in one run: Motley, rival, Motley, rival, ...

Arguments: the program, the folder of the rivals' programs; --json prints JSON; --rounds N (default 5); --patience S
waits so long for a quiet host, and repeats rounds that other processes disturbed (default 60); --real-time runs Motley
and its rivals alike before all other processes (SCHED_RR), which a host that is never quiet needs; --smoke runs once,
with few calls, and does not ask who is faster.

A time of a message is that of one way of a ping-pong, for Motley and for UCX (tag_lat), and the ratio that is asked
compares these. Motley's receives are posted two ahead; UCX sends small messages without waiting for a receive. UCX's
tag_bw and iperf3 have many messages on their way at once, which helps them. Verbs are not here yet: ib_write_bw and
Motley are to be compared in one boot of a guest (tools/rdma-vm).
"""

import json
import os
import pathlib
import resource
import socket
import statistics
import subprocess
import sys
import tempfile
import time

MIB = 1 << 20
QUIET = 0.1  # processors that others take at most, and that the hypervisor takes at most
UCX_SHM = ("posix,cma", "sysv,cma")


class Processors:
    """What others have taken since: other processes, and the hypervisor; in processors."""

    def __init__(self):
        self.began = self.now()

    @staticmethod
    def now():
        ticks = [int(each) for each in pathlib.Path("/proc/stat").read_text().split("\n")[0].split()[1:]]
        user, nice, system, _, _, irq, softirq, steal = (each / os.sysconf("SC_CLK_TCK") for each in ticks[:8])
        mine = sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
        return time.monotonic(), user + nice + system + irq + softirq - mine, steal

    def taken_by_others(self):
        wall, others, steal = (after - before for before, after in zip(self.began, self.now()))
        return max(0.0, others / wall), steal / wall


class Bench:
    def __init__(self, program, rivals, smoke):
        self.program, self.rivals = program, rivals
        self.seconds, self.times, self.bytes = (0.002, 1, 64 * MIB) if smoke else (0.03, 5, 2048 * MIB)
        self.calls = (lambda each_s: 10) if smoke else (lambda each_s: max(20, int(0.15 / each_s)))

    # What is run. Each returns the seconds of one call, or of one way of a message.

    def motley(self, operation, path, size, ranks=2):
        answer = run(self.program, "bench", "comm", "-n", ranks, "--operations", operation, "--paths", path,
                     "--bytes", f"{size} B", "--seconds-a-time", self.seconds, "--json")
        return json.loads(answer)["calls"][0]["seconds"]

    def ucx(self, tls, test, size, about_s):
        port = free_port()
        command = ["ucx_perftest", "-p", port, "-t", test, "-s", size, "-n", self.calls(about_s), "-w", 10, "-f", "-v"]
        environment = {"UCX_TLS": tls}
        with served(port, *command, environment=environment):
            answer = run(command[0], "127.0.0.1", *command[1:], environment=environment)
        return float(answer.strip().splitlines()[-1].split(",")[3]) * 1e-6

    def iperf3(self, size, *options):
        port = free_port()
        with served(port, "iperf3", "-s", "-1", "-p", port, environment={}):
            answer = run("iperf3", "-c", "127.0.0.1", "-p", port, "-n", self.bytes, "-J", *options)
        return size * 8 / json.loads(answer)["end"]["sum_received"]["bits_per_second"]

    def mpi(self, size, ranks):
        environment = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        if ranks > os.cpu_count():
            environment["OMPI_MCA_mpi_yield_when_idle"] = "1"
        return float(run("mpirun", "--oversubscribe", "-n", ranks, "--mca", "pml", "ob1", "--mca", "btl", "self,vader",
                         self.rivals / "rival_mpi", size, self.seconds, self.times, environment=environment))

    def gloo(self, size, ranks):
        with tempfile.TemporaryDirectory() as meeting:
            processes = [start(self.rivals / "rival_gloo", meeting, rank, ranks, size, self.seconds, self.times)
                         for rank in range(ranks)]
            answers = [result(process) for process in processes]
        return float(answers[0])


def start(*arguments, environment=None):
    return subprocess.Popen([str(each) for each in arguments], text=True, stdin=subprocess.DEVNULL,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=dict(os.environ, **(environment or {})))


def result(process):
    out, errors = process.communicate(timeout=120)
    if process.returncode != 0:
        sys.exit(f"{' '.join(process.args)} ended with {process.returncode}\n{out}{errors}")
    return out


def run(*arguments, environment=None):
    return result(start(*arguments, environment=environment))


class served:
    """A server that ends by itself once its client has gone; the client is not started before it listens."""

    def __init__(self, port, *command, environment):
        self.server = start(*command, environment=environment)
        mark = f":{port:04X} 00000000:0000 0A"
        mark_six = f":{port:04X} {'0' * 32}:0000 0A"
        for _ in range(500):
            tables = [pathlib.Path(f"/proc/net/{each}") for each in ("tcp", "tcp6")]
            text = "".join(each.read_text() for each in tables if each.exists())
            if mark in text or mark_six in text:
                return
            time.sleep(0.01)
        self.server.kill()
        sys.exit(f"{' '.join(self.server.args)} does not listen")

    def __enter__(self):
        return self.server

    def __exit__(self, kind, *_):
        if kind is not None:
            self.server.kill()
        self.server.communicate()


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as door:
        return door.getsockname()[1]


def cases(bench):
    """What is compared, in which unit, Motley's run, the rival and its run, and how fast Motley is to be beside it."""
    message = lambda path, size: lambda: bench.motley("message", path, size)
    reduce = lambda path, ranks: lambda: bench.motley("all_reduce", path, 16 * MIB, ranks)
    yield "tcp, message of 8 B", 0, message("tcp", 8), "UCX", lambda: bench.ucx("tcp", "tag_lat", 8, 6e-6), 1 / 1.5
    # Motley's connections within a host use reno; what the system uses otherwise may be slower.
    yield ("tcp, message of 16 MiB", 16 * MIB, message("tcp", 16 * MIB), "iperf3 -C reno",
           lambda: bench.iperf3(16 * MIB, "-C", "reno"), 0.9)
    yield "tcp, message of 16 MiB", 16 * MIB, message("tcp", 16 * MIB), "iperf3", lambda: bench.iperf3(16 * MIB), None
    yield ("tcp, message of 16 MiB", 16 * MIB, message("tcp", 16 * MIB), "UCX",
           lambda: bench.ucx("tcp", "tag_lat", 16 * MIB, 4e-3), None)
    for tls in UCX_SHM:
        for size, about_s in ((MIB, 1e-4), (16 * MIB, 2e-3)):
            for test in ("tag_lat", "tag_bw"):
                yield (f"shm, message of {size // MIB} MiB", size, message("shm", size), f"UCX {tls} {test}",
                       lambda tls=tls, test=test, size=size, about_s=about_s: bench.ucx(tls, test, size, about_s),
                       0.8 if test == "tag_lat" else None)
    for ranks in (2, 4):
        yield (f"shm, all-reduce of 16 MiB, {ranks} ranks", None, reduce("shm", ranks), "Open MPI vader",
               lambda ranks=ranks: bench.mpi(16 * MIB, ranks), 1)
    for ranks in (2, 4):
        yield (f"tcp, all-reduce of 16 MiB, {ranks} ranks", None, reduce("tcp", ranks), "Gloo tcp",
               lambda ranks=ranks: bench.gloo(16 * MIB, ranks), 1.5)


def wait_for_quiet(until):
    while time.monotonic() < until:
        processors = Processors()
        time.sleep(0.25)
        if max(processors.taken_by_others()) <= QUIET:
            return


def compare(motley, rival, rounds, patience, judges_load):
    """Medians of the rounds that nothing disturbed, or else of all, and what disturbed them."""
    until = time.monotonic() + patience
    quiet, disturbed = [], []
    while len(quiet) < rounds and (time.monotonic() < until or len(quiet) + len(disturbed) < rounds):
        if judges_load:
            wait_for_quiet(until)
        processors = Processors()
        times = motley(), rival()
        others, steal = processors.taken_by_others()
        is_quiet = steal <= QUIET and (others <= QUIET or not judges_load)
        (quiet if is_quiet else disturbed).append((*times, others, steal))
    taken = quiet if len(quiet) >= min(3, rounds) else quiet + disturbed
    motley_s, rival_s, others, steal = (statistics.median(each) for each in zip(*taken))
    return {"motley_s": motley_s, "rival_s": rival_s, "others_processors": others, "steal_processors": steal,
            "disturbed": taken is not quiet, "rounds": taken}


def print_time(seconds, size):
    if size == 0:
        return f"{1e6 * seconds:.2f} us"
    return f"{1e3 * seconds:.2f} ms" if size is None else f"{size / seconds / 1e9:.2f} GB/s"


def print_row(row, size):
    asked = "-" if row["asked"] is None else f"{row['asked']:.2f}"
    holds = {None: "-", True: "yes", False: "no"}[row["holds"]]
    mark = ""
    if row["disturbed"]:
        mark = f"  disturbed: others took {row['others_processors']:.1f} processors, the hypervisor " \
               f"{row['steal_processors']:.1f}"
    times = (print_time(row[whose], size) for whose in ("motley_s", "rival_s"))
    print(f"| {row['what']} | {row['rival']} | {' | '.join(times)} | {row['ratio']:.2f} | {asked} | {holds} |{mark}",
          flush=True)


def main():
    smoke, as_json, real_time = ("--" + each in sys.argv for each in ("smoke", "json", "real-time"))
    option = lambda name, default: float(sys.argv[sys.argv.index(name) + 1]) if name in sys.argv else default
    program, rivals = (pathlib.Path(each).resolve() for each in sys.argv[1:3])
    if real_time:
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    # Processes that are not ours run only while ours wait: what they take then disturbs nothing.
    judges_load = not real_time and not smoke
    rounds, patience = (1, 0) if smoke else (int(option("--rounds", 5)), option("--patience", 60))
    if not as_json:
        print("| what | rival | Motley | rival | Motley is so many times as fast | asked | holds |\n"
              "|---|---|---|---|---|---|---|", flush=True)
    rows = []
    for what, size, motley, rival, run_rival, asked in cases(Bench(program, rivals, smoke)):
        row = {"what": what, "rival": rival, "asked": asked}
        row.update(compare(motley, run_rival, rounds, patience, judges_load))
        row["ratio"] = row["rival_s"] / row["motley_s"]
        row["holds"] = None if asked is None or smoke else row["ratio"] >= asked
        rows.append(row)
        if not as_json:
            print_row(row, size)
    if as_json:
        print(json.dumps({"schema": "motley.bench_rivals/1", "real_time": real_time, "rows": rows}, indent=2))
    return any(row["holds"] is False and not row["disturbed"] for row in rows)


sys.exit(main())
