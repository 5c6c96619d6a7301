#!/usr/bin/env python3
"""motley calibrate and motley rehearse as a person types them: what was measured survives kills and full disks, samples
of unlike origins are refused, and a scenario keeps its hash from simulate through rehearse to train.

No test depends on how fast this machine is: accuracy is measured by tools/bench rehearse.
Arguments: the program, the source tree.
"""

import csv
import json
import os
import pathlib
import random
import re
import resource
import signal
import subprocess
import sys
import tempfile
import time
import unittest

from refusal_pages import expected_refusal, message_of, without_figures

PROGRAM = pathlib.Path(sys.argv.pop(1)).resolve()
ROOT = pathlib.Path(sys.argv.pop(1)).resolve()
SCENARIO = ROOT / "scenarios" / "quickstart-train.yaml"
KILLS = 3 if os.environ.get("MOTLEY_SANITIZED") else 10
SLOWER = 6 if os.environ.get("MOTLEY_SANITIZED") else 1


def probes_of(path):
    """The names of the probes in a table, each with its number of rows; a line without its end is left out."""
    text = path.read_text() if path.exists() else ""
    rows = list(csv.DictReader(text[: text.rfind("\n") + 1].splitlines()))
    wanted = {row["probe"]: int(row["rows"]) for row in rows}
    there = {}
    for row in rows:
        there[row["probe"]] = there.get(row["probe"], 0) + 1
    return {name: count for name, count in there.items() if count == wanted[name]}, there


CHIP = """vendor: amd
kind: cpu
peak: {fp32: {value: 117 GFLOP/s, source: assumed}}
memory: {value: 4 GiB, source: assumed}
memory_bandwidth: {value: 28 GB/s, source: assumed}
gemm_efficiency: {value: 0.9, source: assumed}
attention_efficiency: {value: 0.3, source: assumed}
bandwidth_efficiency: {value: 0.8, source: assumed}
kernel_overhead: {value: 5 us, source: assumed}
power: null
price: null
kernels:
  source: assumed
  library: fast kernels, oneDNN 2.6.3, code 1c2d3e4f
  matmul: {flops: 50 GFLOP/s}
"""
OTHER_SAMPLES = """machine,library,ranks,probe,row,rows,kernel,format,m,n,k,groups,flops,bytes,times
another machine,fast kernels,1,0000 a,1,1,optimizer,fp32,0,0,0,0,0,4096,1e-05
"""


class Calibrate(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.folder = pathlib.Path(holder.name)

    def motley(self, *arguments, code=0, **options):
        run = subprocess.run([PROGRAM, *map(str, arguments)], capture_output=True, text=True, cwd=self.folder,
                             timeout=600, **options)
        self.assertEqual(code, run.returncode, run.stdout + run.stderr)
        return run

    def assert_told(self, title, run):
        """It says what the page has under this title, but for figures that were measured."""
        self.assertEqual(without_figures(expected_refusal(title)), without_figures(message_of(run)))

    def calibrate(self, *arguments, ranks=1, **options):
        return self.motley("calibrate", "--keep-disturbed", "--ranks", ranks, *arguments, **options)

    def test_kills_lose_no_finished_probe_and_count_none_twice(self):
        table = self.folder / "samples.csv"
        dice = random.Random(7)
        kept = {}
        for _ in range(KILLS):
            run = subprocess.Popen(
                [PROGRAM, "calibrate", "--keep-disturbed", "--ranks", "2", "--seconds", "60", "--samples", str(table)],
                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=self.folder)
            size = table.stat().st_size if table.exists() else 0
            for _ in range(6000):  # until a probe was added, and then a little more
                if table.exists() and table.stat().st_size > size + 1000:
                    break
                time.sleep(0.01)
            time.sleep(0.4 * dice.random())
            run.send_signal(signal.SIGKILL)
            run.wait()
            complete, there = probes_of(table)
            for name, rows in kept.items():
                self.assertEqual(rows, complete.get(name), "a finished probe was lost, or counted twice")
            self.assertLessEqual(len(set(there) - set(complete)), 1)
            kept = complete
        answer = json.loads(self.calibrate("--seconds", 0.01, "--samples", table, "--json", ranks=2).stdout)
        self.assertEqual(len(kept), answer["probes_kept"])
        self.assertGreater(len(kept), 0)

    def test_full_disk_keeps_what_was_finished(self):
        table = self.folder / "samples.csv"

        def little_room():
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (40_000, 40_000))

        run = self.calibrate("--seconds", 60, "--samples", table, code=1, preexec_fn=little_room)
        self.assertIn("samples.csv", run.stderr)
        self.assertIn("what was measured before is kept", run.stderr)
        complete, there = probes_of(table)
        self.assertEqual(complete, there, "a probe that did not fit was left behind")
        self.assertGreater(len(complete), 0)
        answer = json.loads(self.calibrate("--seconds", 0.01, "--samples", table, "--json").stdout)
        self.assertEqual(len(complete), answer["probes_kept"])

    def test_a_calibration_is_a_chip_that_scenarios_name(self):
        self.calibrate("--seconds", 3 * SLOWER, "--out", "core.yaml")
        self.assertTrue((self.folder / "core.csv").exists())
        scenario = self.folder / "own.yaml"
        scenario.write_text("model: tiny-gpt2\ncluster:\n  groups:\n    - {name: host, nodes: 1, chip: ./core.yaml, "
                            "chips_per_node: 2, inside: {fabric: loopback, bandwidth: 4 GB/s, latency: 10 us}}\n"
                            "train: {global_batch: 8, micro_batch: 2, sequence: 128, precision: fp32}\n"
                            "strategy: {pipeline_parallel: 2}\n")
        plain = json.loads(self.motley("simulate", SCENARIO, "--world", "sim", "--json").stdout)
        answer = json.loads(self.motley("simulate", scenario, "--json").stdout)
        self.assertEqual(plain["strategy_hash"], answer["strategy_hash"])
        self.assertNotEqual(plain["iteration_s"], answer["iteration_s"])
        # --strict says no if and only if a part of the prediction lies outside what was measured.
        rests_on = answer["coverage"]
        outside = rests_on["extrapolated"] + rests_on["assumed"] > 0
        for command in ("simulate", "explain"):
            run = self.motley(command, scenario, "--no-changes", "--strict", code=4 if outside else 0)
            self.assertEqual(outside, "outside what was measured" in run.stderr)
        # Samples of other kernels or another number of ranks are not added to the same table.
        for ranks, kernels in ((1, "reference"), (2, "fast")):
            run = self.calibrate("--seconds", 1, "--samples", "core.csv", "--kernels", kernels, ranks=ranks, code=2)
            self.assertIn("name another file", run.stderr)

    def test_what_is_of_another_machine_or_library_or_too_far_off_is_refused_with_its_message(self):
        (self.folder / "core.csv").write_text(OTHER_SAMPLES)
        run = self.calibrate("--seconds", 1, "--samples", "core.csv", code=2)
        told = re.sub("here are `.*`", "here are `this machine, fast kernels, 1 ranks`", message_of(run))
        self.assertEqual(expected_refusal("two-origins: samples of another machine in the table to go on with"), told)
        (self.folder / "core.yaml").write_text(CHIP)
        run = self.motley("rehearse", SCENARIO, "--chip", "core.yaml", "--kernels", "reference", code=2)
        self.assert_told("other-library: plain loops on a chip whose oneDNN was measured", run)
        (self.folder / "core.yaml").write_text(re.sub("  library: .*\n", "", CHIP))
        run = self.motley("rehearse", SCENARIO, "--chip", "core.yaml", "--steps", 1, "--rounds", 1,
                          "--keep-disturbed", "--within", 1e-9, code=4)
        self.assert_told("not-within: a prediction that must be exact", run)
        data = self.folder / "data"
        (data / "platforms").mkdir(parents=True)
        (data / "platforms" / "measured").write_text("a file in place of the folder")
        run = self.calibrate("--seconds", 1, "--out", "our-core", code=2, env={**os.environ, "MOTLEY_DATA": str(data)})
        self.assertEqual(expected_refusal("unwritable-file: a folder for what was measured that is a file"),
                         message_of(run).replace(f"{data}/", ""))

    def test_what_was_measured_is_found_by_its_name(self):
        data = self.folder / "data"
        (data / "platforms").mkdir(parents=True)
        for each in (ROOT / "platforms").iterdir():
            if each.name != "measured":
                (data / "platforms" / each.name).symlink_to(each)
        (data / "scenarios").symlink_to(ROOT / "scenarios")
        environment = {**os.environ, "MOTLEY_DATA": str(data)}
        inside = "chips_per_node: 2, inside: {fabric: loopback, bandwidth: 4 GB/s, latency: 10 us}"
        text = ("model: tiny-gpt2\ncluster: %s\nstrategy: {data_parallel: 2, offload: {optimizer: 1}}\n"
                "train: {global_batch: 4, micro_batch: 2, sequence: 64, precision: fp32}\n")
        offloads, offloads_here = self.folder / "offloads.yaml", self.folder / "offloads-here.yaml"
        offloads.write_text(text % ("{groups: [{name: host, nodes: 1, chip: host-core, " + inside + ", host: "
                                    "{memory: 8 GiB, memory_bandwidth: 10 GB/s, link: 5 GB/s}}]}"))
        offloads_here.write_text(text % "our-host")
        before = json.loads(self.motley("simulate", offloads, "--json", env=environment).stdout)
        self.assertNotIn("coverage", before)
        cluster = [] if os.environ.get("MOTLEY_SANITIZED") else ["--cluster", "our-host"]
        text = self.calibrate(offloads, "--seconds", 1, "--out", "our-core", *cluster, env=environment).stdout
        self.assertIn(f"`chip: our-core` names {data}/platforms/measured/our-core.yaml", text)
        self.assertTrue((data / "platforms/measured/our-core.csv").exists())
        scenario = self.folder / "by-name.yaml"
        written_out = "cluster: {groups: [{name: host, nodes: 1, chip: our-core, " + inside + "}]}"
        scenario.write_text(re.sub(r"^cluster: .*$", written_out, SCENARIO.read_text(), flags=re.M))
        answer = json.loads(self.motley("simulate", scenario, "--world", "sim", "--json", env=environment).stdout)
        self.assertGreater(answer["coverage"]["interpolated"] + answer["coverage"]["extrapolated"], 0)
        if not cluster:
            return  # training in a hundred processes takes minutes
        self.assertIn(f"`cluster: our-host` names {data}/platforms/measured/our-host.yaml", text)
        # The cluster says what its links and its host were measured to do: a job that offloads runs on it.
        answer = json.loads(self.motley("simulate", offloads_here, "--json", env=environment).stdout)
        self.assertEqual(0, answer["coverage"]["assumed"])
        wrong = self.folder / "wrong.yaml"
        wrong.write_text(offloads_here.read_text().replace("our-host", "our-hos"))
        run = self.motley("simulate", wrong, "--world", "sim", env=environment, code=2)
        self.assertIn("did you mean `our-host`?", run.stderr)

    def test_one_hash_through_simulate_rehearse_and_train(self):
        rehearsed = json.loads(self.motley("rehearse", SCENARIO, "--seconds", 1, "--steps", 2, "--rounds", 2,
                                           "--keep-disturbed", "--out", "core.yaml", "--json").stdout)
        simulated = json.loads(self.motley("simulate", SCENARIO, "--world", "sim", "--json").stdout)
        trained = json.loads(self.motley("train", SCENARIO, "--steps", 2, "--json").stdout)
        for other in (simulated, trained):
            self.assertEqual(rehearsed["strategy_hash"], other["strategy_hash"])
        self.assertEqual(trained["program_hash"], rehearsed["program_hash"])
        self.assertEqual(2, len(trained["step_s"]))
        self.assertEqual(4, len(rehearsed["steps_s"]))
        for error, predicted in (("error_pct", "predicted_s"), ("uncalibrated_error_pct", "uncalibrated_s")):
            ratio = rehearsed[predicted] / rehearsed["measured_s"]
            self.assertAlmostEqual(rehearsed[error], 100 * (ratio - 1), places=6)
        low, high = rehearsed["interval_s"]
        self.assertEqual(low <= rehearsed["measured_s"] <= high, rehearsed["interval_holds"])
        self.assertAlmostEqual(simulated["iteration_s"], rehearsed["uncalibrated_s"], places=12)
        self.assertAlmostEqual(1, sum(rehearsed["coverage"].values()), places=9)
        self.assertGreater(rehearsed["coverage"]["measured"], 0.5)  # its own kernels were measured first
        # A strict rehearsal says no if and only if a kernel lies outside what was measured.
        large = self.folder / "large.yaml"
        large.write_text(SCENARIO.read_text().replace("micro_batch: 2", "micro_batch: 8"))
        missing = json.loads(self.motley("calibrate", large, "--chip", "core.yaml", "--missing", "--json").stdout)
        outside = {"extrapolated", "assumed"} & {shape["known"] for shape in missing["scenarios"][0]["missing"]}
        run = self.motley("rehearse", large, "--chip", "core.yaml", "--strict", "--steps", 1, "--rounds", 1,
                          "--keep-disturbed", code=4 if outside else 0)
        self.assertEqual(bool(outside), "outside what was measured" in run.stderr)
        low, high = rehearsed["interval_s"]
        self.assertLess(low, rehearsed["predicted_s"])
        self.assertLess(rehearsed["predicted_s"], high)
        run = self.motley("rehearse", SCENARIO, "--chip", "host-core", code=2)
        self.assertIn("has no measured kernels", run.stderr)

    def consistent(self, routing, ranks, experts, per_token):
        """Loads of real steps: at least even, at most all copies on as few ranks or experts as a token allows."""
        for busiest_rank, busiest_expert in zip(routing["busiest_rank_of_steps"], routing["busiest_expert_of_steps"]):
            self.assertLessEqual(1, busiest_rank)
            self.assertLessEqual(busiest_rank, min(ranks, busiest_expert + 1e-9))
            self.assertLessEqual(busiest_expert, experts / per_token + 1e-9)
        for layer in routing["layers"]:
            self.assertEqual(ranks, layer["ranks"])
            self.assertEqual(experts, len(layer["shares"]))
            self.assertAlmostEqual(1, sum(layer["shares"]), places=9)
            self.assertLessEqual(1, layer["busiest_rank"])
        layers = [layer["busiest_rank"] for layer in routing["layers"]]
        self.assertAlmostEqual(sum(layers) / len(layers), routing["busiest_rank"], places=9)

    def test_real_ranks_say_how_their_tokens_chose_experts(self):
        self.calibrate("--seconds", 2 * SLOWER, "--out", "core.yaml")
        scenario = self.folder / "experts.yaml"
        text = ("model: tiny-mixtral\ncluster:\n  groups:\n    - {name: host, nodes: 1, chip: host-core, "
                "chips_per_node: 2, inside: {fabric: loopback, bandwidth: 4 GB/s, latency: 10 us}}\n"
                "train: {global_batch: 4, micro_batch: 1, sequence: 32, precision: fp32, steps: 3}\n"
                "strategy: {data_parallel: 2, expert_parallel: 2}\n")
        scenario.write_text(text)
        trained = json.loads(self.motley("train", scenario, "--json").stdout)
        routing = trained["routing"]
        self.consistent(routing, ranks=2, experts=4, per_token=2)
        self.assertEqual([0, 1, 2, 3], [layer["layer"] for layer in routing["layers"]])
        self.assertEqual(3, len(routing["busiest_rank_of_steps"]))
        printed = self.motley("train", scenario).stdout
        self.assertIn(f"the busiest rank of experts had {routing['busiest_rank']:.2f} times its even share", printed)

        rehearse = ("rehearse", scenario, "--chip", "core.yaml", "--steps", 2, "--rounds", 1, "--keep-disturbed")
        rehearsed = json.loads(self.motley(*rehearse, "--json").stdout)
        explained = rehearsed["routing"]
        # The first step of a run warms up. The loads of steps are the same in every run.
        self.assertAlmostEqual(sum(routing["busiest_rank_of_steps"][1:]) / 2, explained["busiest_rank"], places=9)
        self.assertEqual("rank", explained["by"])
        self.assertAlmostEqual(1, explained["expected"], places=9)  # the scenario says nothing of a skew
        if explained["expert_skew"] == 0:
            self.assertLess(explained["busiest_rank"], 1.001)
        else:
            self.assertGreater(explained["busiest_rank"], 1)
        self.assertLessEqual(explained["expert_skew_load"], explained["busiest_rank"] + 1e-9)
        self.assertEqual(explained["expert_skew_reaches"],
                         abs(explained["expert_skew_load"] - explained["busiest_rank"]) < 1e-9)
        before = rehearsed["routing_before"]
        self.assertAlmostEqual(sum(routing["busiest_rank_of_steps"][:2]) / 2, before["busiest_rank"], places=9)
        self.assertAlmostEqual(before.get("predicted_at_load_s", before["predicted_s"]), rehearsed["predicted_s"],
                               places=12)
        self.assertGreaterEqual(before["predicted_s"], before["stated_predicted_s"])
        self.assertGreaterEqual(explained["predicted_s"], before["stated_predicted_s"])
        self.assertAlmostEqual(100 * (explained["predicted_s"] / rehearsed["measured_s"] - 1), explained["error_pct"],
                               places=6)
        self.assertNotEqual(explained["expert_skew_reaches"], "predicted_at_load_s" in explained)
        if "predicted_at_load_s" in explained:
            self.assertGreaterEqual(explained["predicted_at_load_s"], explained["predicted_s"])
        self.assertIn("times the even share on the busiest rank", self.motley(*rehearse).stdout)
        stated = json.loads(self.motley(*rehearse, "--routing", "stated", "--json").stdout)
        self.assertNotIn("routing_before", stated)
        self.assertAlmostEqual(before["stated_predicted_s"], stated["predicted_s"], places=12)
        # The key in the scenario predicts what the line said, and the load that was measured.
        skewed = self.folder / "skewed.yaml"
        skewed.write_text(text.replace("steps: 3", f"steps: 3, expert_skew: {explained['expert_skew']}"))
        again = json.loads(self.motley("rehearse", skewed, *rehearse[2:], "--json").stdout)
        self.assertNotIn("routing_before", again)  # the scenario says how uneven it is
        self.assertAlmostEqual(explained["predicted_s"], again["predicted_s"], places=9)
        self.assertAlmostEqual(explained["expert_skew_load"], again["routing"]["expected"], places=3)
        # A rank that is measured alone computes the even share: no other shape is noted as measured.
        shapes = []
        for path in (scenario, skewed):
            self.calibrate(path, "--seconds", 0.01, "--samples", path.with_suffix(".csv"))
            with open(path.with_suffix(".csv")) as file:
                shapes.append([[row[key] for key in ("kernel", "m", "n", "k", "flops", "bytes")]
                               for row in csv.DictReader(file)])
        self.assertEqual(*shapes)
        # The run learns the same whatever was predicted.
        self.assertEqual(trained["loss"], json.loads(self.motley("train", skewed, "--json").stdout)["loss"])

    def test_experts_on_one_rank_are_counted_and_explain_nothing(self):
        self.calibrate("--seconds", 1, "--out", "core.yaml")
        scenario = self.folder / "experts.yaml"
        scenario.write_text("model: tiny-mixtral\ncluster:\n  groups:\n    - {name: host, nodes: 1, chip: host-core, "
                            "chips_per_node: 1, inside: {fabric: loopback, bandwidth: 4 GB/s, latency: 10 us}}\n"
                            "train: {global_batch: 2, micro_batch: 1, sequence: 32, precision: fp32, steps: 2}\n"
                            "strategy: {}\n")
        trained = json.loads(self.motley("train", scenario, "--json").stdout)
        self.consistent(trained["routing"], ranks=1, experts=4, per_token=2)
        self.assertEqual(1, trained["routing"]["busiest_rank"])
        self.assertIn("the busiest expert had", self.motley("train", scenario).stdout)
        rehearsed = self.motley("rehearse", scenario, "--chip", "core.yaml", "--steps", 1, "--rounds", 1,
                                "--keep-disturbed", "--json").stdout
        self.assertNotIn("routing", json.loads(rehearsed))
        self.assertNotIn("routing_before", json.loads(rehearsed))

    def test_a_model_without_experts_says_nothing_of_routing(self):
        trained = self.motley("train", SCENARIO, "--steps", 1, "--json").stdout
        self.assertNotIn("routing", json.loads(trained))
        self.assertNotIn("even share", self.motley("train", SCENARIO, "--steps", 1).stdout)

    def test_transfers_are_timed_among_the_ranks_of_a_launcher(self):
        few = ("--seconds", 0.5)
        measured = json.loads(self.motley("calibrate", "--transfers", "two.csv", *few, "--json").stdout)["transfers"]
        kinds = {"send latency", "all_reduce", "all_gather", "reduce_scatter", "all_to_all"}
        self.assertEqual({(kind, beside) for kind in kinds for beside in (False, True)},
                         {(each["transfer"], each["beside_compute"]) for each in measured})
        for each in measured:
            self.assertEqual(2, each["ranks"])
            self.assertGreater(each["sizes"], 5)
        # The table says what was printed when it was measured.
        read = json.loads(self.motley("calibrate", "--from", "two.csv", "--source", "here", "--json").stdout)
        self.assertEqual(measured, read["transfers"])
        self.motley("launch", "-n", 3, "--", PROGRAM, "calibrate", "--transfers", "three.csv", *few)
        with open(self.folder / "three.csv") as file:
            ranks = {(row["transfer"], row["ranks"]) for row in csv.DictReader(file)}
        self.assertEqual({(kind, "2" if kind == "send latency" else "3") for kind in kinds}, ranks)
        with self.subTest("bad-rank-count"):
            run = self.motley("launch", "-n", 1, "--", PROGRAM, "calibrate", "--transfers", "one.csv", code=2)
            self.assertIn("one rank has nobody to exchange bytes with", run.stderr)
        # The cluster of these ranks has the chip that was measured before, and the links of now.
        self.calibrate("--seconds", 2 * SLOWER, "--out", "core.yaml")
        self.motley("calibrate", "--transfers", "two.csv", *few, "--chip", "core.yaml", "--cluster", "pair.yaml")
        scenario = self.folder / "pair-job.yaml"
        scenario.write_text("model: tiny-gpt2\ncluster: ./pair.yaml\ntrain: {global_batch: 4, micro_batch: 2, "
                            "sequence: 64, precision: fp32}\nstrategy: {data_parallel: 2}\n")
        answer = json.loads(self.motley("simulate", scenario, "--json").stdout)
        # How much a busy machine measures in two seconds is open; of the chip that ships, it is nothing.
        self.assertGreater(answer["coverage"]["interpolated"] + answer["coverage"]["measured"], 0)
        # Real ranks of such a cluster may measure what they move.
        mixed = self.motley("simulate", scenario, "--world", "mixed", "--real-rank", "0,1", "--transfers", "measured",
                            "--json")
        self.assertEqual("measured", json.loads(mixed.stdout)["real"]["moved_timed"])

    def test_links_are_read_from_what_bench_comm_measured(self):
        bench = ("bench", "comm", "-n", 2, "--paths", "tcp", "--json")
        measured = self.motley(*bench, "--operations", "message", "--bytes", "8 B,1 MiB,16 MiB").stdout
        (self.folder / "comm.json").write_text(measured)
        link = json.loads(self.motley("calibrate", "--comm", "comm.json", "--cluster", "pair.yaml", "--json").stdout)
        self.assertEqual((1, 2, None), (link["hosts"], link["ranks_per_host"], link["between_hosts"]))
        link = link["inside_host"]
        times = {call["bytes"]: call["seconds"] for call in json.loads(measured)["calls"]}
        self.assertAlmostEqual(times[8], link["latency_s"])
        self.assertAlmostEqual(15 << 20, (times[16 << 20] - times[1 << 20]) * link["bytes_per_s"], delta=1)
        # What is predicted rests on these figures: a message, and a ring of two ranks.
        told = self.motley(*bench, "--operations", "message,all_reduce", "--bytes", "1 MiB", "--algorithms",
                           "ring,automatic", "--cluster", "pair.yaml").stdout
        message, ring, automatic = json.loads(told)["calls"]
        once_s = link["latency_s"] + (1 << 20) / link["bytes_per_s"]
        self.assertAlmostEqual(1, message["predicted_s"] / once_s, delta=0.002)
        self.assertAlmostEqual(1, ring["predicted_s"] / (once_s + link["latency_s"]), delta=0.002)
        self.assertLessEqual(automatic["predicted_s"], ring["predicted_s"])
        # Real ranks of such a cluster may measure what they move.
        self.assertIn("links_measured_on", (self.folder / "pair.yaml").read_text())

    def test_a_figure_that_no_fit_could_give_is_a_dash(self):
        product = {"External id": 2, "Input Dims": [[3, 5], [5, 7]], "Input type": 2 * ["c10::BFloat16"]}
        events = [{"cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 2, "dur": 96, "args": product},
                  {"cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 50, "dur": 7, "args": {"External id": 2}}]
        for event in events:
            event["ph"] = "X"
        (self.folder / "profile.json").write_text(json.dumps({"traceEvents": events}))
        text = self.motley("calibrate", "--from", "profile.json", "--chip", "h200", "--source", "here").stdout
        row = next(re.split(r"  +", line.strip()) for line in text.splitlines() if line.startswith("  matmul"))
        self.assertEqual(["matmul", "100.0 %", "1", "-", "30.0 MFLOP/s", "-", "-", "0.0 %", "0.0 %", "-", "-"], row)

    def test_a_neighbour_on_one_core_is_reported_or_refused(self):
        core = min(os.sched_getaffinity(0))
        neighbour = subprocess.Popen([sys.executable, "-c", "while True: pass"],
                                     preexec_fn=lambda: os.sched_setaffinity(0, {core}))
        try:
            run = subprocess.run([PROGRAM, "calibrate", "--seconds", str(2 * SLOWER), "--out", "core.yaml", "--json"],
                                 capture_output=True, text=True, cwd=self.folder, timeout=600)
        finally:
            neighbour.kill()
            neighbour.wait()
        if run.returncode == 0:
            answer = json.loads(run.stdout)
            self.assertGreater(answer["disturbed"], 0)
            self.assertGreater(answer["kernels"], 0, "a calibration that measured nothing was not refused")
            self.assertTrue((self.folder / "core.yaml").exists())
        else:
            self.assertEqual(4, run.returncode, run.stderr)
            self.assertIn("this machine does not keep still", run.stderr)
            self.assertFalse((self.folder / "core.yaml").exists())

    def test_never_still_among_busy_neighbours(self):
        (self.folder / "core.yaml").write_text(re.sub("  library: .*\n", "", CHIP))
        neighbours = [subprocess.Popen([sys.executable, "-c", "while True: pass"])
                      for _ in range(2 * os.cpu_count())]
        try:
            rehearse = ("rehearse", SCENARIO, "--chip", "core.yaml", "--steps", 1, "--rounds", 1)
            self.assert_told("never-still: a rehearsal among busy neighbours", self.motley(*rehearse, code=4))
            answer = json.loads(self.motley(*rehearse, "--keep-disturbed", "--json").stdout)
            self.assertEqual(1, answer["runs_disturbed"])
        finally:
            for each in neighbours:
                each.kill()
                each.wait()


unittest.main()
