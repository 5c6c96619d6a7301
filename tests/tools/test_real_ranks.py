#!/usr/bin/env python3
"""motley simulate --world mixed, whose real ranks a launcher has started: motley launch, or one that sets variables;
and motley train while it runs.

Arguments: the program, the source tree. tests/hw/world tests the real ranks themselves.
"""

import json
import os
import pathlib
import re
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import unittest

from refusal_pages import expected_refusal, message_of

PROGRAM = str(pathlib.Path(sys.argv.pop(1)).resolve())
ROOT = pathlib.Path(sys.argv.pop(1)).resolve()
TRAIN = "scenarios/quickstart-train.yaml"
MIXED = ["simulate", TRAIN, "--world", "mixed", "--real-rank", "0,1"]
ENDLESS = [*MIXED, "--repeats", "1000"]  # for longer than any test waits

OK, FAILED, USAGE, INFEASIBLE = range(4)


def motley(*arguments):
    return subprocess.run([PROGRAM, *map(str, arguments)], capture_output=True, text=True, cwd=ROOT,
                          stdin=subprocess.DEVNULL, timeout=500)


def start(*arguments, **variables):
    return subprocess.Popen([PROGRAM, *arguments], cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, text=True, env=os.environ | variables)


def children(process):
    listed = pathlib.Path(f"/proc/{process}/task/{process}/children")
    return [int(child) for child in listed.read_text().split()] if listed.exists() else []


def is_alive(process):
    state = pathlib.Path(f"/proc/{process}/stat")
    try:
        return state.read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


class RealRanks(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def right(self, *arguments):
        answer = motley(*arguments)
        self.assertEqual((OK, ""), (answer.returncode, answer.stderr), arguments)
        return answer.stdout

    def launched(self):
        """A launch that runs until it is ended, and its processes: two ranks, and the one that the first has forked."""
        run = start("launch", "-n", "2", "--", PROGRAM, *ENDLESS)
        self.addCleanup(run.kill)
        while not (len(ranks := children(run.pid)) == 2 and children(ranks[0])):
            self.assertIsNone(run.poll())
        return run, [*ranks, *children(ranks[0])]

    def on_variables(self):
        """The same, started by another launcher: the two processes."""
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        ranks = [start(*ENDLESS, RANK=str(rank), WORLD_SIZE="2", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
                 for rank in range(2)]
        for rank in ranks:
            self.addCleanup(rank.kill)
        while not children(ranks[0].pid):
            self.assertIsNone(ranks[0].poll())
        return ranks

    def test_a_launch_prints_one_report_whose_tape_replays_byte_for_byte(self):
        tape, trace, trace_again = (self.folder / name for name in ["tape.json", "trace.json", "again.json"])
        mixed = self.right("launch", "-n", "2", "--", PROGRAM, *MIXED, "--record", tape, "--trace", trace, "--json")
        replayed = self.right("simulate", TRAIN, "--world", "replay", "--tape", tape, "--json", "--trace", trace_again)
        self.assertEqual(mixed, replayed)
        self.assertEqual(trace.read_bytes(), trace_again.read_bytes())
        self.assertEqual([0, 1], json.loads(mixed)["real"]["ranks"])

    def test_doctor_asks_each_rank_how_it_reaches_each_other(self):
        for count, command in [(3, ["doctor", "--peers", "-n", "3", "--json"]),
                               (2, ["launch", "-n", "2", "--", PROGRAM, "doctor", "--peers", "--json"])]:
            answer = json.loads(self.right(*command))
            self.assertEqual(count, answer["ranks"])
            pairs = [(pair["from"], pair["to"]) for pair in answer["pairs"]]
            self.assertEqual([(a, b) for a in range(count) for b in range(count) if a != b], pairs)
            self.assertEqual({("tcp", "shm")}, {(pair["small"], pair["large"]) for pair in answer["pairs"]})
            self.assertEqual([f"one host: rank {b} reads the memory of rank {a}" for a, b in pairs],
                             [pair["why"] for pair in answer["pairs"]])

    def test_a_launch_leaves_its_json_to_the_ranks(self):
        run = motley("launch", "-n", "2", "--json", "--", "sh", "-c", "exit 3")
        self.assertEqual((3, ""), (run.returncode, run.stdout))

    def test_a_lone_rank_has_no_peers_to_ask(self):
        run = motley("launch", "-n", "1", "--", PROGRAM, "doctor", "--peers", "--json")
        self.assertEqual(2, run.returncode)
        self.assertIn("one rank has no peers", run.stderr)

    def on_machine(self, machine, nodes=1):
        """A scenario on a cluster whose links were measured on that machine."""
        nics = "" if nodes == 1 else ", nics: [{kind: ethernet, count: 1, bandwidth: 10 Gb/s, latency: 10 us}]"
        path = self.folder / "measured.yaml"
        path.write_text(f"model: tiny-gpt2\ncluster:\n  name: here\n  links_measured_on: '{machine}'\n  groups:\n"
                        f"    - {{name: host, nodes: {nodes}, chip: host-core, chips_per_node: {2 // nodes}, "
                        f"inside: {{fabric: loopback, bandwidth: 4 GB/s, latency: 10 us}}{nics}}}\n"
                        "train: {global_batch: 8, micro_batch: 2, sequence: 32, precision: fp32}\n"
                        "strategy: {pipeline_parallel: 2}\n"
                        "world: {kind: mixed, real_ranks: [0, 1], transfers: measured}\n")
        return path

    def test_ranks_of_bench_and_calibrate_with_unlike_options_are_refused_by_all(self):
        bench = ["bench", "comm", "--operations", "all_reduce", "--algorithms", "ring", "--paths", "tcp", "--memory",
                 "host", "--bytes", "1 KiB", "--seconds-a-time", "0.002"]
        transfers = ["calibrate", "--transfers", str(self.folder / "none.csv"), "--seconds", "5"]
        unlike = [(bench, name, value) for name, value in [
            ("--operations", "all_gather"), ("--algorithms", "tree"), ("--paths", "shm"),
            ("--memory", "guarded"), ("--bytes", "2 KiB"), ("--seconds-a-time", "0.003")]]
        for words, name, value in [*unlike, (transfers, "--seconds", "6")]:
            with self.subTest(name):
                at = words.index(name) + 1
                others = [*words[:at], value, *words[at + 1:]]
                first, second = (shlex.join([PROGRAM, *each]) for each in [words, others])
                script = f"[ $MOTLEY_RANK = 1 ] && exec {second}\nexec {first}"
                answer = motley("launch", "-n", "2", "--", "sh", "-c", script)
                self.assertEqual((INFEASIBLE, ""), (answer.returncode, answer.stdout), answer.stderr)
                told = [line for line in answer.stderr.splitlines() if "rank 1 has " in line]
                self.assertEqual(2, len(told), answer.stderr)  # both ranks say it
                self.assertRegex(told[0], f"rank 1 has .* {value}.*, rank 0 has {words[at]}")
        self.assertFalse((self.folder / "none.csv").exists())

    def this_machine(self):
        """What Motley calls this machine."""
        answer = motley("simulate", self.on_machine("another machine"))
        self.assertEqual((INFEASIBLE, ""), (answer.returncode, answer.stdout))
        return re.search("runs on `(.*)`", answer.stderr).group(1)

    def test_transfers_are_not_measured_where_the_links_were_not(self):
        this_machine = self.this_machine()
        for machine, nodes, title in [
            ("another machine", 1, "other-fabric: links that were measured on another machine"),
            (this_machine, 2, "other-fabric: two nodes on one host"),
        ]:
            told = message_of(motley("simulate", self.on_machine(machine, nodes)))
            self.assertEqual(expected_refusal(title),
                             told.replace(f"{self.folder}/", "").replace(f"`{this_machine}`", "`this machine`"))

    def test_transfers_are_measured_where_the_links_were_and_their_tape_replays(self):
        this_machine = self.this_machine()
        tape = self.folder / "tape.json"
        for launch in [[], ["launch", "-n", "2", "--", PROGRAM]]:
            scenario = self.on_machine(this_machine)
            mixed = self.right(*launch, "simulate", scenario, "--record", tape, "--json")
            self.assertEqual(mixed, self.right("simulate", scenario, "--world", "replay", "--tape", tape, "--json"))
            real = json.loads(mixed)["real"]
            self.assertEqual(("measured", 0), (real["moved_timed"], real["filled_in"]))
            self.assertGreater(real["moved"], 0)
            priced = json.loads(self.right(*launch, "simulate", scenario, "--transfers", "priced", "--json"))["real"]
            self.assertEqual(real | {"moved_timed": "priced"}, priced)

    def test_what_real_ranks_move_with_simulated_ones_is_filled_in(self):
        real = json.loads(self.right("simulate", TRAIN, "--world", "mixed", "--real-rank", "1", "--json"))["real"]
        self.assertEqual((0, 0, 9), (real["moved"], real["moved_bytes"], real["filled_in"]))

    def test_what_real_ranks_of_one_host_send_each_other_names_its_path(self):
        trace = self.folder / "trace.json"
        for launch in [[], ["launch", "-n", "2", "--", PROGRAM]]:
            report = self.right(*launch, "simulate", "scenarios/mixed-rdma.yaml", "--json", "--trace", trace)
            real = json.loads(report)["real"]
            self.assertEqual(([0, 1], 16), (real["ranks"], real["moved"]))
            self.assertIn(real["moved_by"], ["shm", "tcp"])
            moved = [event["pid"] for event in json.loads(trace.read_text())["traceEvents"]
                     if event.get("args", {}).get("paths") == real["moved_by"]]
            self.assertEqual(16 * [0] + 16 * [1], sorted(moved))

    def test_a_process_alone_starts_all_real_ranks(self):
        report = json.loads(self.right("launch", "-n", "1", "--", PROGRAM, *MIXED, "--json"))
        self.assertEqual([0, 1], report["real"]["ranks"])

    def test_more_processes_than_real_ranks_are_refused(self):
        answer = motley("launch", "-n", "3", "--", PROGRAM, *MIXED)
        self.assertEqual((USAGE, ""), (answer.returncode, answer.stdout))
        self.assertIn("3 processes were started, and 2 ranks are real", answer.stderr)
        self.assertIn("motley launch -n 2 -- motley simulate", answer.stderr)

    def test_a_rank_of_a_launch_that_is_killed_is_named_and_none_is_left(self):
        run, processes = self.launched()
        os.kill(processes[1], signal.SIGKILL)
        output, errors = run.communicate(timeout=100)
        # Either the first process says so, with what it asked for, or the launcher, which then ends it.
        self.assertIn((run.returncode, output), [(FAILED, ""), (128 + signal.SIGKILL, "")])
        self.assertIn(f"rank 1 (process {processes[1]}", errors)
        while any(is_alive(process) for process in processes):
            pass  # the kernel ends them

    def test_no_process_outlives_the_launch(self):
        for end in [signal.SIGKILL, signal.SIGINT, signal.SIGTERM]:
            with self.subTest(end=end):
                run, processes = self.launched()
                run.send_signal(end)
                run.communicate(timeout=100)
                self.assertNotEqual(OK, run.returncode)
                while any(is_alive(process) for process in processes):
                    pass

    def test_a_real_rank_that_another_launcher_started_is_named_when_it_dies(self):
        first, second = self.on_variables()
        second.kill()
        second.communicate(timeout=100)
        _, errors = first.communicate(timeout=100)
        self.assertEqual(FAILED, first.returncode)
        self.assertIn(f"real rank 1 (process {second.pid} at 127.0.0.1) is gone (", errors)

    def test_a_real_rank_that_another_launcher_started_ends_with_the_first(self):
        first, second = self.on_variables()
        first.kill()
        first.communicate(timeout=100)
        output, errors = second.communicate(timeout=100)
        self.assertEqual((FAILED, ""), (second.returncode, output))
        self.assertIn("real rank 1: the process of real rank 0, which simulates, is gone", errors)


class Training(unittest.TestCase):
    """`motley train` while it runs, and what an interrupt leaves of it. No run here would end by itself."""

    SCENARIO = ROOT / "scenarios" / "quickstart-train.yaml"

    def start(self, folder, *words, launcher=()):
        command = [*launcher, PROGRAM, "train", self.SCENARIO, "--steps", "1000000", *words]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=folder)

    def test_losses_come_through_a_pipe_while_it_trains_and_an_interrupt_keeps_them_and_a_trace(self):
        for launcher in [(), (PROGRAM, "launch", "-n", "2", "--")]:
            with self.subTest(launcher=launcher), tempfile.TemporaryDirectory() as folder:
                train = self.start(folder, "--trace", "run.json", launcher=launcher)
                begin = [train.stdout.readline() for _ in range(6)]  # the first three losses
                self.assertRegex(begin[5], r"^ +2  \d\.\d{4}$")
                train.send_signal(signal.SIGINT)
                end, errors = train.communicate(timeout=120)
                self.assertEqual(130, train.returncode, errors)
                steps = int(re.search(r"interrupted after (\d+) of 1000000 steps", errors)[1])
                losses = re.findall(r"^ +\d+  \d\.\d{4}$", "".join(begin) + end, re.M)
                self.assertEqual(steps, len(losses))
                self.assertIn("tokens/s", end)
                self.assertTrue(json.loads(pathlib.Path(folder, "run.json").read_text(encoding="utf-8")))

    def test_an_interrupt_is_answered_by_one_document(self):
        with tempfile.TemporaryDirectory() as folder:
            train = self.start(folder, "--json", "--trace", "run.json")
            children = pathlib.Path(f"/proc/{train.pid}/task/{train.pid}/children")
            while len(children.read_text(encoding="utf-8").split()) < 2 and train.poll() is None:
                pass  # until both ranks are there; whether they train already makes no difference
            train.send_signal(signal.SIGINT)
            answer, errors = train.communicate(timeout=120)
            self.assertEqual(130, train.returncode, errors)
            self.assertIn(json.loads(answer)["schema"], ["motley.train/1", "motley.refusal/1"])

    def test_many_large_ranks_are_refused_by_one_error_before_any_starts(self):
        chip = (ROOT / "platforms" / "chips" / "host-core.yaml").read_text(encoding="utf-8")
        with tempfile.TemporaryDirectory() as folder:
            pathlib.Path(folder, "large-core.yaml").write_text(
                re.sub(r"^memory: \{value: [^,]*,", "memory: {value: 2 TiB,", chip, flags=re.M), encoding="utf-8")
            pathlib.Path(folder, "large.yaml").write_text("""
model: llama-2-70b
cluster:
  groups:
    - name: hosts
      nodes: 20
      chip: large-core
      chips_per_node: 8
      inside: {fabric: loopback, bandwidth: 4 GB/s}
      nics: [{kind: ethernet, count: 1, bandwidth: 10 Gb/s}]
train: {global_batch: 160, sequence: 128, precision: fp32}
strategy: {tp: 8, pp: 20}
""", encoding="utf-8")
            for command in [["train"], ["compare"], ["launch", "-n", "160", "--", PROGRAM, "train"]]:
                answer = subprocess.run([PROGRAM, *command, "large.yaml", "--memory", "64GB"], capture_output=True,
                                        text=True, cwd=folder, timeout=120, check=False)
                self.assertEqual((3, ""), (answer.returncode, answer.stdout))
                self.assertEqual(1, answer.stderr.count("error:"), answer.stderr)
                self.assertRegex(answer.stderr, r"tensors of 160 ranks take 1\.\d+ TiB of memory here, and may")


if __name__ == "__main__":
    unittest.main()
