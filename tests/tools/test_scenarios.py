#!/usr/bin/env python3
"""The commands on the scenarios that ship: what they print, on which stream, and that they print the same twice.

Arguments: the program, the source tree. Other tests check whether the numbers are right (tests/laws, tests/sim).
"""

import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import unittest

try:
    import yaml
except ImportError:
    yaml = None

PROGRAM = str(pathlib.Path(sys.argv.pop(1)).resolve())
ROOT = pathlib.Path(sys.argv.pop(1)).resolve()
TRAIN = "scenarios/quickstart-train.yaml"
QUICKSTART = "scenarios/quickstart.yaml"
LARGE = "scenarios/gpt3-175b-1024.yaml"

# A sanitized build takes five times as long; what these tests run, others run with fewer or smaller jobs.
unless_sanitized = unittest.skipIf("MOTLEY_SANITIZED" in os.environ, "takes minutes with sanitizers")

OK, FAILED, USAGE, INFEASIBLE, MISMATCH, MISSING = range(6)


def motley(*arguments, cwd=ROOT, **options):
    return subprocess.run([PROGRAM, *map(str, arguments)], capture_output=True, text=True, cwd=cwd,
                          stdin=subprocess.DEVNULL, timeout=500, **options)


def catches_interrupts(process):
    """Whether the program has already set its handler of interrupts."""
    status = pathlib.Path(f"/proc/{process}/status").read_text()
    caught = int(re.search(r"SigCgt:\s*([0-9a-f]+)", status).group(1), 16)
    return caught >> (signal.SIGINT - 1) & 1


def scenarios(planned=True):
    """The scenarios that ship: those with a strategy, or those that leave it to the planner."""
    for path in sorted((ROOT / "scenarios").glob("*.yaml")):
        if bool(re.search(r"^plan:", path.read_text(), re.MULTILINE)) != planned:
            yield path


class Commands(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def right(self, *arguments, **options):
        answer = motley(*arguments, **options)
        self.assertEqual((OK, ""), (answer.returncode, answer.stderr), arguments)
        self.assertNotIn("\x1b", answer.stdout)
        return answer.stdout

    def right_json(self, *arguments, **options):
        return json.loads(self.right(*arguments, "--json", **options))


class Show(Commands):
    def test_every_part_answers_as_text_and_as_json_with_its_schema(self):
        for part in ["model", "cluster", "strategy", "schedule", "program", "costs", "formats"]:
            self.assertTrue(self.right("show", part, QUICKSTART))
            self.assertEqual(f"motley.{part}/1", self.right_json("show", part, QUICKSTART)["schema"])

    def test_formats_are_those_of_a_chip_a_cluster_or_all_that_ship(self):
        one = {chip["name"]: chip["formats"] for chip in self.right_json("show", "formats", "a100-80gb-sxm")["chips"]}
        self.assertEqual({"fp32", "tf32", "bf16", "fp16"}, set(one["a100-80gb-sxm"]))
        every = {chip["name"]: chip["formats"] for chip in self.right_json("show", "formats", "all")["chips"]}
        self.assertEqual(one["a100-80gb-sxm"], every["a100-80gb-sxm"])
        self.assertIn("nvfp4", every["b200"])
        self.assertIn("989.4", self.right("show", "formats", "dgx-h100-pod"))

    def test_a_schedule_written_as_csv_is_the_schedule_of_the_scenario_that_reads_it(self):
        head = ("model: tiny-gpt2\ncluster: host-2\n"
                "train: {global_batch: 8, micro_batch: 2, sequence: 16, precision: fp32}\n")
        named, read = self.folder / "named.yaml", self.folder / "read.yaml"
        named.write_text(head + "strategy: {pp: 2, schedule: zb-v}\n")
        read.write_text(head + "strategy: {schedule: {csv: plan.csv}}\n")
        self.assertEqual("", self.right("show", "schedule", named, "--csv", "--out", self.folder / "plan.csv"))
        self.assertEqual(self.right("show", "schedule", named, "--csv"), self.right("show", "schedule", read, "--csv"))
        self.assertIn("3I0", self.right("show", "strategy", read))
        self.assertIn("rank 1", self.right("show", "schedule", read))

    def test_what_is_shown_is_the_same_twice(self):
        for part in ["model", "cluster", "strategy", "schedule", "program", "costs"]:
            for json_or_not in [[], ["--json"]]:
                once = self.right("show", part, QUICKSTART, *json_or_not)
                self.assertEqual(once, self.right("show", part, QUICKSTART, *json_or_not))

    def test_out_writes_the_same_bytes_to_a_file(self):
        path = self.folder / "program.txt"
        self.assertEqual("", self.right("show", "program", QUICKSTART, "--out", path))
        self.assertEqual(self.right("show", "program", QUICKSTART), path.read_text())

    def test_a_file_that_cannot_be_written_is_refused(self):
        answer = motley("show", "program", QUICKSTART, "--out", self.folder / "missing" / "program.txt")
        self.assertEqual(USAGE, answer.returncode)
        self.assertIn("cannot be written", answer.stderr)

    def test_a_reader_that_stops_early_ends_it_without_a_word(self):
        command = f'"{PROGRAM}" show program {LARGE} | head -1'
        answer = subprocess.run(["bash", "-c", command], capture_output=True, text=True, cwd=ROOT,
                                timeout=300, check=False)
        self.assertEqual((OK, ""), (answer.returncode, answer.stderr))

    def test_costs_name_the_side_of_the_roofline(self):
        passes = self.right_json("show", "costs", QUICKSTART)["passes"]
        self.assertEqual({"forward", "backward", "optimizer"}, {each["pass"] for each in passes})
        for kernel in (kernel for each in passes for kernel in each["kernels"]):
            self.assertIn(kernel["bound_by"], {"compute", "memory", "overhead", "network"})
            self.assertGreater(kernel["seconds"], 0)

    def test_a_misspelt_part_names_the_nearest(self):
        answer = motley("show", "programme", QUICKSTART)
        self.assertEqual(USAGE, answer.returncode)
        self.assertIn("did you mean `program`?", answer.stderr)


class Input(Commands):
    """Where scenarios come from: pipes, standard input, large files, other writers of YAML."""

    def read(self, *arguments, text, cwd=ROOT, returns=OK):
        answer = subprocess.run([PROGRAM, *arguments], input=text, capture_output=True, text=True, cwd=cwd,
                                timeout=300, check=False)
        self.assertEqual(returns, answer.returncode, answer.stderr)
        return answer.stdout if returns == OK else answer.stderr

    def shell(self, command):
        answer = subprocess.run(["bash", "-c", command, PROGRAM], capture_output=True, text=True, cwd=ROOT,
                                timeout=300, check=False)
        return answer.returncode, answer.stdout + answer.stderr

    def test_a_pipe_and_standard_input_are_read_as_a_file_is(self):
        text = (ROOT / TRAIN).read_text()
        for part in ["model", "cluster", "strategy", "program"]:
            expected = self.right("show", part, TRAIN).replace("quickstart-train", "stdin")
            for path in ["-", "/dev/stdin"]:
                self.assertEqual(expected, self.read("show", part, path, text=text), (part, path))
        for part in ["strategy", "program"]:
            self.assertEqual((OK, self.right("show", part, TRAIN)), self.shell(f'"$0" show {part} <(cat {TRAIN})'))
        self.assertIn("stdin", self.read("simulate", "-", "--json", text=text))
        self.assertIn("is no regular file", self.read("train", "-", text=text, returns=USAGE))

    def test_a_pipe_that_never_ends_and_a_device_are_not_read_to_their_end(self):
        for command in ["yes '# a comment' | \"$0\" check -", '"$0" check <(cat /dev/zero)',
                        '"$0" check - < /dev/zero']:
            code, message = self.shell(command)
            self.assertEqual(USAGE, code, command)
            self.assertIn("larger than 1.00 MiB", message)
        for device in ["/dev/zero", "/dev/full", "/"]:
            self.assertIn(f"`{device}` is no file", self.read("check", device, text="", returns=USAGE))

    def test_a_large_file_is_read_when_asked(self):
        large = self.folder / "large.yaml"
        large.write_text((ROOT / TRAIN).read_text() + "# a comment\n" * 200_000)
        answer = motley("show", "strategy", large)
        self.assertEqual(USAGE, answer.returncode)
        self.assertIn("--max-input", answer.stderr)
        self.assertEqual(self.right("show", "strategy", TRAIN),
                         self.right("show", "strategy", large, "--max-input", "4 MiB"))

    @unittest.skipIf(yaml is None, "PyYAML is not installed")
    def test_what_pyyaml_reads_and_writes_back_is_the_same(self):
        def written(path):
            return yaml.safe_dump(yaml.safe_load(path.read_text()))

        written_true = 0
        paths = list(scenarios())
        for path in paths[::5] if "MOTLEY_SANITIZED" in os.environ else paths:
            text = written(path)
            written_true += len(re.findall(r"^ *(- )?true:", text, re.MULTILINE))
            self.assertEqual(self.right("show", "strategy", path),
                             self.read("show", "strategy", "-", text=text, cwd=path.parent), path)
        self.assertGreater(written_true, 2 if "MOTLEY_SANITIZED" in os.environ else 10)
        for path in sorted((ROOT / "platforms").glob("*.yaml")):
            shown = self.right("show", "cluster", path).replace(f'name: "{path.stem}"', 'name: "stdin"', 1)
            self.assertEqual(shown,
                             self.read("show", "cluster", "-", text=written(path), cwd=path.parent), path)


class Check(Commands):
    def test_names_hashes_and_memory(self):
        report = self.right_json("check", QUICKSTART)
        self.assertEqual("motley.check/1", report["schema"])
        for stage in report["memory"]:
            self.assertLessEqual(stage["peak"], stage["capacity"])


class Simulate(Commands):
    def test_json_has_the_promised_keys(self):
        report = self.right_json("simulate", QUICKSTART)
        self.assertEqual("motley.simulate/1", report["schema"])
        for key in ["strategy_hash", "iteration_s", "tokens_per_s", "tokens_per_s_per_chip",
                    "tflops_per_chip", "mfu", "hfu", "breakdown", "all_chips", "waits", "memory", "critical_path",
                    "finding", "advice"]:
            self.assertIn(key, report)
        path = report["critical_path"]
        for row in [path, report["all_chips"], *report["breakdown"]]:
            self.assertAlmostEqual(report["iteration_s"], sum(row[key] for key in row if key.endswith("_s")), 9)

    def test_advice_is_what_simulate_finds_of_the_edited_scenario(self):
        advice = self.right_json("simulate", QUICKSTART)["advice"]
        self.assertGreater(advice["simulated"], 0)
        scenario = self.folder / "advised.yaml"
        text = (ROOT / QUICKSTART).read_text()
        key = advice["change"].split(":")[0]
        edited = re.sub(rf"\b{key}: \w+", advice["change"], text)
        self.assertNotEqual(text, edited)
        scenario.write_text(edited)
        step = self.right_json("simulate", scenario)["iteration_s"]
        self.assertAlmostEqual(advice["iteration_s"], step, delta=1e-9 * step)
        self.assertLess(step, self.right_json("simulate", QUICKSTART)["iteration_s"])

    def test_the_same_scenario_twice_gives_the_same_bytes(self):
        for extra in [[], ["--json"]]:
            self.assertEqual(self.right("simulate", QUICKSTART, *extra),
                             self.right("simulate", QUICKSTART, *extra))
        traces = [self.folder / "a.json", self.folder / "b.json"]
        for trace in traces:
            self.right("simulate", QUICKSTART, "--trace", trace)
        self.assertEqual(traces[0].read_bytes(), traces[1].read_bytes())

    def test_the_working_directory_changes_nothing(self):
        here = self.right("simulate", QUICKSTART, "--json")
        elsewhere = self.right("simulate", ROOT / QUICKSTART, "--json", cwd=self.folder)
        strip = re.compile(r'"scenario": "[^"]*"')
        self.assertEqual(strip.sub("", here), strip.sub("", elsewhere))

    def test_every_command_names_the_same_strategy(self):
        simulated = self.right_json("simulate", QUICKSTART)["strategy_hash"]
        for command in [["show", "strategy"], ["show", "program"], ["check"]]:
            self.assertEqual(simulated, self.right_json(*command, QUICKSTART)["strategy_hash"])
        self.assertIn(simulated, self.right("simulate", QUICKSTART))

    def test_the_readme_shows_what_is_printed(self):
        shown = (ROOT / "README.md").read_text().splitlines()
        for line in self.right("simulate", QUICKSTART).splitlines():
            self.assertIn(("    " + line).rstrip(), shown)

    def test_trace_ranks_chooses_ranks(self):
        path = self.folder / "trace.json"
        self.right("simulate", QUICKSTART, "--trace", path, "--trace-ranks", "1")
        events = json.loads(path.read_text())["traceEvents"]
        self.assertEqual({1}, {event["pid"] for event in events if event["ph"] == "X"})

    def test_a_rank_list_that_is_none_is_refused(self):
        for bad in ["", "a", "3-1", "0-", "99999", "-1", "0,,1"]:
            answer = motley("simulate", QUICKSTART, "--trace", self.folder / "t", f"--trace-ranks={bad}")
            self.assertEqual(USAGE, answer.returncode, bad)
            self.assertIn("motley: error: ", answer.stderr)

    def test_an_interrupt_exits_with_130(self):
        endless = self.folder / "endless.txt"  # a pipe without a reader: opening it lasts until the signal
        os.mkfifo(endless)
        run = subprocess.Popen([PROGRAM, "simulate", QUICKSTART, "--out", endless], cwd=ROOT,
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while not catches_interrupts(run.pid):
            self.assertIsNone(run.poll())
        run.send_signal(signal.SIGINT)
        self.assertEqual(130, run.wait(timeout=60))

    def test_a_recorded_tape_replays_byte_for_byte(self):
        tape, trace = self.folder / "tape.json", self.folder / "trace.json"
        for real in [["1"], ["0,1", "--repeats", "1"], ["1", "--fold"], ["1", "--stand-for", "class"]]:
            with self.subTest(real=real):
                mixed = self.right("simulate", TRAIN, "--world", "mixed", "--real-rank", *real, "--record", tape,
                                   "--json")
                replayed = self.right("simulate", TRAIN, "--world", "replay", "--tape", tape, "--json", "--trace",
                                      trace)
                self.assertEqual(mixed, replayed)
                self.assertEqual(tape.read_bytes(), trace.read_bytes())
                part = json.loads(mixed)["real"]
                self.assertEqual([int(rank) for rank in real[0].split(",")], part["ranks"])
                self.assertEqual((9 if real[0] == "0,1" else 0, "priced"), (part["moved"], part["moved_timed"]))

    def test_a_real_rank_computes_with_what_was_recorded_of_the_others(self):
        recording, again = self.folder / "run.recording", self.folder / "again.recording"
        mixed = ["simulate", TRAIN, "--world", "mixed", "--real-rank"]
        self.right("train", TRAIN, "--steps", "2", "--record-contributions", recording)
        of_training = recording.read_bytes()
        self.right("train", TRAIN, "--steps", "1", "--record-contributions", recording)
        self.assertEqual(of_training, recording.read_bytes())
        for how in [[], ["--stand-for", "class"], ["--contribution", "recorded"]]:
            self.right(*mixed, "1", *how, "--recording", recording)
        self.right(*mixed, "0,1", "--record-contributions", recording)
        self.right(*mixed, "1", "--recording", recording, "--record-contributions", again)
        refused = motley(*mixed, "0", "--recording", again)
        self.assertEqual((USAGE, f"motley: error: {again}: rank 0 is not recorded"),
                         (refused.returncode, refused.stderr.splitlines()[0]))
        self.assertEqual([], list(self.folder.glob("*.partial")))
        cut = self.folder / "cut.recording"
        cut.write_bytes(recording.read_bytes()[:-100])
        self.assertIn("a part of the recording is missing", motley(*mixed, "0", "--recording", cut).stderr)
        nowhere = motley("train", TRAIN, "--record-contributions", self.folder / "no" / "recording")
        self.assertEqual(USAGE, nowhere.returncode)
        self.assertIn("cannot be written: No such file or directory", nowhere.stderr)

    @unittest.skipIf(yaml is None, "PyYAML is not installed")
    def test_a_recording_is_named_in_the_scenario_and_suits_no_other(self):
        scenario = yaml.safe_load((ROOT / TRAIN).read_text(encoding="utf-8"))
        scenario["world"] = {"kind": "mixed", "real_ranks": [1], "contribution": "recorded",
                             "recording": "run.recording"}
        mine, other = self.folder / "mine.yaml", self.folder / "other.yaml"
        mine.write_text(yaml.safe_dump(scenario), encoding="utf-8")
        scenario["train"]["seed"] = 77
        other.write_text(yaml.safe_dump(scenario), encoding="utf-8")
        self.right("train", mine, "--steps", "1", "--record-contributions", self.folder / "run.recording")
        self.right("simulate", mine)
        refused = motley("simulate", other)
        self.assertEqual(USAGE, refused.returncode)
        self.assertIn("run.recording: the recording has seed 1, and this run has seed 77", refused.stderr)

    def endless_mixed(self, *options):
        """A simulation that runs until it is ended, and the process of its real rank."""
        command = [PROGRAM, "simulate", TRAIN, "--world", "mixed", "--real-rank", "0", "--repeats", "1000"]
        run = subprocess.Popen([*command, *map(str, options)], cwd=ROOT, stdin=subprocess.DEVNULL,
                               stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        children = pathlib.Path(f"/proc/{run.pid}/task/{run.pid}/children")
        while not children.read_text().split():
            self.assertIsNone(run.poll())
        return run, int(children.read_text().split()[0])

    def test_a_run_that_is_ended_leaves_the_recording_of_before(self):
        recording = self.folder / "run.recording"
        for signal_sent in [signal.SIGINT, signal.SIGKILL]:
            recording.write_text("of before")
            run, _ = self.endless_mixed("--record-contributions", recording)
            run.send_signal(signal_sent)
            run.communicate(timeout=100)
            self.assertNotEqual(OK, run.returncode)
            self.assertEqual("of before", recording.read_text())

    def test_a_real_rank_that_is_killed_is_named(self):
        run, rank = self.endless_mixed()
        os.kill(rank, signal.SIGKILL)
        _, errors = run.communicate(timeout=100)
        self.assertEqual(FAILED, run.returncode)
        self.assertIn(f"real rank 0 (process {rank}) was ended by signal 9 (Killed), at stage 0 rank 0", errors)

    def test_no_real_rank_outlives_the_command(self):
        for end in [signal.SIGKILL, signal.SIGINT, signal.SIGTERM]:
            with self.subTest(end=end):
                run, rank = self.endless_mixed()
                run.send_signal(end)
                run.communicate(timeout=100)
                self.assertNotEqual(OK, run.returncode)
                state = pathlib.Path(f"/proc/{rank}/stat")
                while state.exists() and state.read_text().rsplit(")", 1)[1].split()[0] != "Z":
                    pass  # the kernel ends it

    def test_a_world_that_lacks_what_it_needs_is_refused(self):
        for world in ["mixed", "replay"]:
            answer = motley("simulate", TRAIN, "--world", world)
            self.assertEqual((USAGE, ""), (answer.returncode, answer.stdout))
            self.assertIn(f"--world {world} needs", answer.stderr)


class Compare(Commands):
    def test_a_scenario_is_the_same_in_both_worlds(self):
        report = self.right_json("compare", TRAIN)
        self.assertEqual("motley.compare/1", report["schema"])
        self.assertIn(self.right_json("check", TRAIN)["strategy_hash"], json.dumps(report))

    def test_a_trace_compared_with_itself_is_the_same(self):
        trace = self.folder / "trace.json"
        self.right("simulate", QUICKSTART, "--trace", trace)
        self.right("compare", trace, trace, "--within", "0")

    def test_a_changed_trace_exits_with_4(self):
        trace, changed = self.folder / "trace.json", self.folder / "changed.json"
        self.right("simulate", TRAIN, "--trace", trace)
        text = trace.read_text()
        changed.write_text(re.sub(r'"bytes":(\d+),"allocated"', r'"bytes":7,"allocated"', text, count=1))
        self.assertNotEqual(text, changed.read_text())
        self.assertEqual(MISMATCH, motley("compare", trace, changed).returncode)

    def test_a_trace_alone_is_refused(self):
        trace = self.folder / "trace.json"
        self.right("simulate", TRAIN, "--trace", trace)
        self.assertEqual(USAGE, motley("compare", trace).returncode)


class Explain(Commands):
    HYBRID = "scenarios/holmes-hybrid.yaml"

    def test_the_path_adds_up_to_the_step_that_simulate_finds(self):
        report = self.right_json("explain", self.HYBRID)
        self.assertEqual("motley.explain/1", report["schema"])
        step = self.right_json("simulate", self.HYBRID)["iteration_s"]
        self.assertEqual(step, report["iteration_s"])
        self.assertAlmostEqual(step, sum(part["seconds"] for part in report["critical_path"]), places=9)

    def test_a_gain_is_what_simulate_finds_of_the_edited_scenario(self):
        cluster = (ROOT / "platforms/holmes-hybrid-4.yaml").read_text()
        (self.folder / "faster.yaml").write_text(cluster.replace("bandwidth: 25 Gb/s", "bandwidth: 27.5 Gb/s"))
        scenario = (ROOT / self.HYBRID).read_text().replace("cluster: holmes-hybrid-4", "cluster: ./faster.yaml")
        (self.folder / "scenario.yaml").write_text(scenario)
        edited = self.right_json("simulate", self.folder / "scenario.yaml")["iteration_s"]
        report = self.right_json("explain", self.HYBRID, "--no-changes")
        self.assertEqual([], report["changes"])
        [both] = [each for each in report["levers_together"] if each["what"] == "ethernet bandwidth"]
        self.assertAlmostEqual(edited, both["iteration_s"], delta=1e-6 * edited)

    def test_a_change_is_what_simulate_finds_of_the_edited_scenario(self):
        scenario = self.folder / "scenario.yaml"
        text = (ROOT / self.HYBRID).read_text()
        scenario.write_text(text.replace("  schedule: 1f1b", "  schedule: 1f1b\n  zero: 1"))
        edited = self.right_json("simulate", scenario)["iteration_s"]
        report = self.right_json("explain", self.HYBRID, "--no-parts")
        self.assertEqual([], report["levers"])
        [zero] = [each for each in report["changes"] if each["what"] == "zero: 1"]
        self.assertAlmostEqual(edited, zero["iteration_s"], delta=1e-9 * edited)

    def test_of_two_scenarios_the_rows_add_up_and_the_keys_are_named(self):
        report = self.right_json("explain", self.HYBRID, "scenarios/holmes-hybrid-6.yaml")
        apart = report["b"]["iteration_s"] - report["a"]["iteration_s"]
        self.assertAlmostEqual(apart, report["why"]["iteration_s"], places=12)
        self.assertAlmostEqual(apart, sum(row["b_minus_a_s"] for row in report["why"]["critical_path"]), places=9)
        keys = {key["key"]: (key["a"], key["b"]) for part in report["why"]["parts"] for key in part["keys"]}
        self.assertEqual(("2", "3"), keys["groups.ib.nodes"])
        text = self.right("explain", self.HYBRID, "scenarios/holmes-hybrid-6.yaml")
        self.assertIn("a step of B takes", text)

    def test_the_same_answer_twice_and_the_lines_that_the_readme_shows(self):
        answer = self.right("explain", self.HYBRID)
        self.assertEqual(answer, self.right("explain", self.HYBRID, "--no-fold"))
        page = (ROOT / "README.md").read_text().split("## What to buy, what to change")[1].split("\n* ")[0]
        shown = [line[4:] for line in page.split("\n") if line.startswith("    ")]
        self.assertGreater(len(shown), 10)
        for line in shown:
            self.assertIn(line, answer.split("\n"))

    def test_a_scenario_that_is_not_there_is_refused(self):
        self.assertEqual(USAGE, motley("explain", "scenarios/nowhere.yaml").returncode)
        self.assertEqual(USAGE, motley("explain", self.HYBRID, "--better", "0").returncode)


class Train(Commands):
    def test_json_has_the_promised_keys_and_a_loss_a_step_that_falls(self):
        report = self.right_json("train", TRAIN, "--steps", "8")
        self.assertEqual("motley.train/1", report["schema"])
        self.assertEqual(self.right_json("check", TRAIN)["strategy_hash"], report["strategy_hash"])
        self.assertEqual(8, len(report["loss"]))
        self.assertLess(report["loss"][-1], report["loss"][0])
        self.assertGreater(report["tokens_per_s"], 0)

    @unless_sanitized
    def test_plain_and_fast_kernels_train_the_same_function(self):
        plain, fast = (self.right_json("train", TRAIN, "--steps", "3", "--kernels", kernels)["loss"]
                       for kernels in ["reference", "fast"])
        for one, other in zip(plain, fast):
            self.assertAlmostEqual(one, other, delta=1e-4 * one)

    def test_ranks_that_a_launcher_started_train_the_same_as_its_own(self):
        alone = self.right_json("train", TRAIN, "--steps", "2")["loss"]
        launched = self.right("launch", "-n", "2", "--", PROGRAM, "train", TRAIN, "--steps", "2", "--json")
        self.assertEqual(alone, json.loads(launched)["loss"])

    def test_another_number_of_ranks_is_refused_by_every_rank(self):
        answer = motley("launch", "-n", "3", "--", PROGRAM, "train", TRAIN)
        self.assertEqual((USAGE, ""), (answer.returncode, answer.stdout))
        self.assertIn("3 ranks were started, the strategy has 2", answer.stderr)

    def test_an_interrupt_ends_every_rank_and_exits_with_130(self):
        run = subprocess.Popen([PROGRAM, "train", TRAIN, "--steps", "1000000"], cwd=ROOT,
                               stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        children = pathlib.Path(f"/proc/{run.pid}/task/{run.pid}/children")
        while len(children.read_text().split()) < 2:
            self.assertIsNone(run.poll())
        ranks = children.read_text().split()
        while not all(catches_interrupts(rank) for rank in ranks):
            self.assertIsNone(run.poll())
        run.send_signal(signal.SIGINT)
        self.assertEqual(130, run.wait(timeout=120))
        run.stderr.close()
        self.assertFalse(any(pathlib.Path(f"/proc/{rank}").exists() for rank in ranks))

    def test_no_steps_are_refused(self):
        self.assertEqual(USAGE, motley("train", TRAIN, "--steps", "0").returncode)


class Scenarios(Commands):
    @unless_sanitized
    def test_the_answers_that_the_readme_names_are_those_of_simulate(self):
        page = (ROOT / "scenarios" / "README.md").read_text()
        rows = re.findall(r"^\| `([\w-]+)` \| ([\d,]+) \|.*\| ([\d.]+) (ms|s) \| ([\d.]+) % \|$",
                          page, re.MULTILINE)
        self.assertEqual({path.stem for path in scenarios()}, {row[0] for row in rows})
        for name, chips, iteration, unit, mfu in rows:
            with self.subTest(name):
                report = self.right_json("simulate", f"scenarios/{name}.yaml", "--world", "sim")
                self.assertEqual(int(chips.replace(",", "")), report["chips"])
                seconds = float(iteration) * {"ms": 1e-3, "s": 1}[unit]
                self.assertAlmostEqual(seconds, report["iteration_s"], delta=0.01 * seconds)
                self.assertAlmostEqual(float(mfu), 100 * report["mfu"], delta=0.5)

    def test_every_scenario_that_ships_compiles_and_fits(self):
        paths = list(scenarios())
        for path in paths[::3] if "MOTLEY_SANITIZED" in os.environ else paths:
            self.right("check", path)


if __name__ == "__main__":
    # Ranks of one process hand over to each other all the time: see tests/support/catch_main.cpp.
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    unittest.main()
