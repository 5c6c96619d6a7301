#!/usr/bin/env python3
"""What helps a person begin: `motley list`, `motley new`, completions in bash, zsh and fish, pages of the manual.

Arguments: the program, the source tree. Shells that are not installed are left out with a message.
"""

import concurrent.futures
import json
import os
import pathlib
import pty
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

PROGRAM = pathlib.Path(sys.argv.pop(1)).resolve()
ROOT = pathlib.Path(sys.argv.pop(1)).resolve()

unless_sanitized = unittest.skipIf("MOTLEY_SANITIZED" in os.environ, "starts the program some hundred times")

KINDS = {"chips": "platforms/chips/*.yaml", "clusters": "platforms/*.yaml", "models": "scenarios/models/*.json",
         "software": "platforms/software/*.yaml", "scenarios": "scenarios/*.yaml"}


def motley(*words, data=ROOT):
    return subprocess.run([PROGRAM, *words], capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=120,
                          env={**os.environ, "MOTLEY_DATA": str(data)}, check=False)


def listed(kind, **options):
    answer = motley("list", kind, "--json", **options)
    document = json.loads(answer.stdout)
    assert (document["schema"], document["kind"]) == ("motley.list/1", kind)
    return {item["name"]: item for item in document["items"]}


class Lists(unittest.TestCase):
    def test_each_kind_lists_every_file_that_ships_a_line_each(self):
        for kind, files in KINDS.items():
            names = sorted(path.stem for path in ROOT.glob(files))
            answer = motley("list", kind)
            self.assertEqual((0, ""), (answer.returncode, answer.stderr), kind)
            lines = answer.stdout.splitlines()[1:]  # after the names of the columns
            self.assertEqual(names, sorted(line.split()[0] for line in lines))
            self.assertEqual(names, sorted(listed(kind)))
            self.assertEqual(names, sorted(motley("list", kind, "--names").stdout.split()))

    def test_the_key_figures_are_those_of_the_files(self):
        chip = listed("chips")["h100-80gb-sxm"]
        self.assertEqual(("nvidia", 80 * 2**30, 700), (chip["vendor"], chip["memory_bytes"], chip["watts"]))
        self.assertAlmostEqual(989e12, chip["bf16_flops"], delta=1e12)
        self.assertIsNone(listed("chips")["v100-32gb-sxm"]["bf16_flops"])
        cluster = listed("clusters")["mixed-fleet"]
        self.assertEqual([{"chip": "a100-80gb-sxm", "count": 128}, {"chip": "h100-80gb-sxm", "count": 64},
                          {"chip": "mi300x", "count": 64}], cluster["types"])
        self.assertIn("roce 8 x 200 Gb/s", cluster["networks"])
        model = listed("models")["llama-2-7b"]
        self.assertEqual((6738415616, 32, 4096), (model["parameters"], model["layers"], model["context"]))
        scenario = listed("scenarios")["quickstart"]
        self.assertEqual((32, "llama-2-7b"), (scenario["chips"], scenario["model"]))
        self.assertEqual("Llama 2 7B on four DGX A100: how fast, and where does the time go?", scenario["says"])
        software = listed("software")["megatron-2021"]
        self.assertEqual((["a100-80gb-sxm"], 0.962), (software["chips"], software["interval_low"]))

    def test_every_schedule_that_a_strategy_may_name_has_a_sentence(self):
        text = (ROOT / "scenarios" / "README.md").read_text(encoding="utf-8")
        table = text.split("## Schedules")[1].split("Here p is")[0]
        names = [line.split("`")[1] for line in table.splitlines() if line.startswith("| `")][1:]
        schedules = listed("schedules")
        self.assertEqual(names, [name for name in schedules if not name.startswith("{")])
        self.assertEqual(len(schedules), len({item["says"] for item in schedules.values()}))

    def test_without_a_kind_it_counts_each(self):
        kinds = {each["kind"]: each["count"] for each in json.loads(motley("list", "--json").stdout)["kinds"]}
        for kind, files in KINDS.items():
            self.assertEqual(len(list(ROOT.glob(files))), kinds.pop(kind), kind)
        self.assertEqual(["schedules"], list(kinds))
        self.assertIn("chips", motley("list").stdout)

    def test_a_new_file_appears_by_itself_and_one_that_cannot_be_read_is_left_out_with_a_warning(self):
        with tempfile.TemporaryDirectory() as folder:
            data = pathlib.Path(folder)
            for part in ["platforms", "scenarios"]:
                shutil.copytree(ROOT / part, data / part)
            (data / "platforms" / "our-rack.yaml").write_text(
                (ROOT / "platforms" / "dgx-a100-4.yaml").read_text(encoding="utf-8"), encoding="utf-8")
            chip = (ROOT / "platforms" / "chips" / "l40s.yaml").read_text(encoding="utf-8")
            (data / "platforms" / "measured" / "our-chip.yaml").write_text(chip, encoding="utf-8")
            (data / "platforms" / "broken.yaml").write_text("groups: [", encoding="utf-8")
            self.assertIn("our-rack", listed("clusters", data=data))
            self.assertIn("our-chip", listed("chips", data=data))
            answer = motley("list", "clusters", data=data)
            self.assertEqual(0, answer.returncode)
            self.assertIn("broken.yaml:", answer.stderr)
            for name in ["broken", "our-chip"]:
                self.assertNotIn(name, answer.stdout)


class DataFolders(unittest.TestCase):
    """./platforms comes before ~/.config/motley, and that before what ships."""

    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)
        self.own = self.folder / "config" / "motley"
        self.here = self.folder / "here"
        for folder in (self.here / "platforms/chips", self.own / "platforms/chips", self.own / "scenarios/models"):
            folder.mkdir(parents=True)

    def motley(self, *words):
        return subprocess.run([PROGRAM, *words], cwd=self.here, capture_output=True, text=True, check=False,
                              stdin=subprocess.DEVNULL, timeout=120,
                              env={**os.environ, "MOTLEY_DATA": str(ROOT), "XDG_CONFIG_HOME": str(self.own.parent)})

    def chip(self, folder, peak):
        """A chip that has the name of one that ships, and another peak."""
        text = (ROOT / "platforms/chips/l40s.yaml").read_text(encoding="utf-8")
        text, count = re.subn(r"(bf16: \{?(?:value: )?)[0-9.]+ TFLOP/s", rf"\g<1>{peak} TFLOP/s", text, count=1)
        self.assertEqual(1, count)
        (folder / "platforms/chips/l40s.yaml").write_text(text, encoding="utf-8")

    def peak(self):
        items = json.loads(self.motley("list", "chips", "--json").stdout)["items"]
        peaks = [item["bf16_flops"] for item in items if item["name"] == "l40s"]
        self.assertEqual(1, len(peaks))
        return peaks[0]

    def test_a_file_nearer_to_a_person_hides_one_further_away_and_doctor_says_so(self):
        shipped = self.peak()
        self.assertEqual([], json.loads(self.motley("doctor", "--json").stdout)["hidden"])
        self.chip(self.own, 222)
        self.assertEqual(222e12, self.peak())
        self.chip(self.here, 111)
        self.assertEqual(111e12, self.peak())
        self.assertNotIn(shipped, (111e12, 222e12))
        doctor = json.loads(self.motley("doctor", "--json").stdout)
        self.assertEqual([".", str(self.own), str(ROOT)], [each["folder"] for each in doctor["data"]])
        self.assertEqual({str(self.own / "platforms/chips/l40s.yaml"), str(ROOT / "platforms/chips/l40s.yaml")},
                         {each["hidden"] for each in doctor["hidden"]})
        self.assertEqual({"platforms/chips/l40s.yaml"}, {each["used"] for each in doctor["hidden"]})
        self.assertIn("platforms/chips/l40s.yaml is used, which hides", self.motley("doctor").stdout)

    def test_models_and_scenarios_of_ones_own_have_names(self):
        shutil.copy(ROOT / "scenarios/models/llama-2-7b.json", self.own / "scenarios/models/our-model.json")
        text = (ROOT / "scenarios/quickstart.yaml").read_text(encoding="utf-8")
        (self.own / "scenarios/ours.yaml").write_text(text.replace("llama-2-7b", "our-model"), encoding="utf-8")
        step = json.loads(self.motley("simulate", "ours", "--json", "--no-changes").stdout)["iteration_s"]
        usual = json.loads(self.motley("simulate", "quickstart", "--json", "--no-changes").stdout)["iteration_s"]
        self.assertEqual(usual, step)
        self.assertIn("ours", self.motley("list", "scenarios").stdout)
        self.assertIn("our-model", self.motley("list", "models").stdout)

    def test_an_empty_folder_changes_nothing(self):
        self.assertEqual(motley("list", "clusters").stdout, self.motley("list", "clusters").stdout)


# What stands before the cursor, and some of what may stand there. The last words are those that must not be offered.
COMPLETED = [
    (["si"], ["simulate"], ["show"]),
    ([""], ["simulate", "list", "help"], ["--json"]),
    (["show", ""], ["model", "program", "collectives"], ["simulate"]),
    (["show", "model", "llama-3"], ["llama-3-8b", "llama-3.1-405b"], ["mixtral-8x7b"]),
    (["show", "program", "quick"], ["quickstart", "quickstart-train"], []),
    (["simulate", "hol"], ["holmes-hybrid", "holmes-hybrid-6"], ["quickstart"]),
    (["simulate", "quickstart", "--wor"], ["--world"], ["--json"]),
    (["simulate", "quickstart", "--world", ""], ["sim", "null", "mixed", "replay"], ["quickstart"]),
    (["train", "--kernels", "re", ], ["reference"], ["fast"]),
    (["list", "c"], ["chips", "clusters"], ["models"]),
    (["completion", ""], ["bash", "zsh", "fish"], ["simulate"]),
    (["help", "do"], ["doctor"], ["show"]),
    (["calibrate", "--chip", "h100-80"], ["h100-80gb-sxm", "h100-80gb-pcie"], []),
]


def script(shell, folder):
    """The script for a shell as a file, which begins in a way that calls this program `motley`."""
    path = pathlib.Path(folder) / f"completion.{shell}"
    path.write_text(motley("completion", shell).stdout, encoding="utf-8")
    (pathlib.Path(folder) / "motley").symlink_to(PROGRAM)
    return path


def run_shell(words, folder):
    environment = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}", "HOME": folder, "MOTLEY_DATA": str(ROOT)}
    return subprocess.run(words, capture_output=True, text=True, cwd=folder, env=environment, timeout=60, check=True,
                          stdin=subprocess.DEVNULL)


@unless_sanitized
class Completions(unittest.TestCase):
    def check(self, shell, complete):
        """`complete(script, folder, words)`: what the shell offers for the last of the words."""
        with tempfile.TemporaryDirectory() as folder:
            path = script(shell, folder)
            (pathlib.Path(folder) / "scenario-of-mine.yaml").touch()
            for words, wanted, unwanted in [*COMPLETED, (["simulate", "scenario-of"], ["scenario-of-mine.yaml"], [])]:
                offered = complete(path, folder, words)
                self.assertLessEqual(set(wanted), set(offered), words)
                self.assertFalse(set(unwanted).intersection(offered), words)

    def test_bash_completes(self):
        def complete(path, folder, words):
            text = (f'. {path}; COMP_WORDS=(motley "$@"); COMP_CWORD=$#; $(complete -p motley | cut -d" " -f3); '
                    'printf "%s\\n" "${COMPREPLY[@]}"')
            return run_shell(["bash", "-c", text, "bash", *words], folder).stdout.splitlines()

        self.check("bash", complete)
        with tempfile.TemporaryDirectory() as folder:  # bash takes `--kernels=f` for three words
            self.assertEqual(["fast"], complete(script("bash", folder), folder, ["train", "--kernels", "=", "f"]))

    def test_zsh_completes(self):
        if shutil.which("zsh") is None:
            self.skipTest("zsh is not installed")

        def complete(path, folder, words):
            # The functions by which zsh collects offers are replaced by ones that print them.
            text = (f'compdef() {{ }}; compset() {{ }}; _files() {{ print -l -- "$PREFIX"*(N) }}; '
                    'compadd() { shift; local each; for each; do [[ $each == $PREFIX* ]] && print -- $each; done }; '
                    f'. {path}; words=(motley "$@"); CURRENT=$#words; PREFIX=$words[CURRENT]; _motley; true')
            return run_shell(["zsh", "-f", "-c", text, "zsh", *words], folder).stdout.splitlines()

        self.check("zsh", complete)

    def test_fish_completes(self):
        if shutil.which("fish") is None:
            self.skipTest("fish is not installed")

        def complete(path, folder, words):
            line = " ".join(["motley", *words])
            answer = run_shell(["fish", "-N", "-c", f"source {path}; complete -C '{line}'"], folder)
            return [each.split("\t")[0] for each in answer.stdout.splitlines()]

        self.check("fish", complete)

    def test_each_script_knows_every_command_and_every_option(self):
        def options(command):
            names = [name for option in command["options"] for name in option["names"]]
            return names + [command["name"]] + [name for inner in command["commands"] for name in options(inner)]

        words = options(json.loads(motley("help", "--json").stdout)["command"])
        for shell in ["bash", "zsh", "fish"]:
            text = motley("completion", shell).stdout
            self.assertEqual(text, json.loads(motley("completion", shell, "--json").stdout)["script"])
            for word in words:
                self.assertIn(word.lstrip("-") if shell == "fish" else word, text)


class New(unittest.TestCase):
    @unless_sanitized
    def test_of_every_model_it_writes_a_scenario_that_check_accepts_or_says_that_it_cannot_fit(self):
        def fits(case):
            model, chip, nodes = case
            with tempfile.TemporaryDirectory() as folder:
                path = pathlib.Path(folder, "new.yaml")
                new = motley("new", "--model", model, "--chip", chip, "--nodes", nodes, "--out", path)
                if new.returncode == 3:
                    self.assertRegex(new.stderr, r"^motley: error: .* too little.*\n  hint: more --nodes")
                    self.assertFalse(path.exists())
                    return False
                self.assertEqual(0, new.returncode, new.stderr)
                check = motley("check", path)
                self.assertEqual((0, ""), (check.returncode, check.stderr), case)
                return True

        models = motley("list", "models", "--names").stdout.split()
        # Each model on one kind of chips, by turns.
        chips = [("h100-80gb-sxm", "4"), ("host-core", "1"), ("v100-32gb-sxm", "8")]
        cases = [(model, *chips[i % len(chips)]) for i, model in enumerate(models)]
        cases += [("llama-3-70b", *chips[0]), ("tiny-mixtral", *chips[1]), ("gpt3-175b", *chips[0])]
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            fitting = {case[:2] for case, fit in zip(cases, pool.map(fits, cases)) if fit}
        self.assertIn(("llama-3-70b", "h100-80gb-sxm"), fitting)
        self.assertIn(("tiny-mixtral", "host-core"), fitting)
        self.assertNotIn(("gpt3-175b", "h100-80gb-sxm"), fitting)

    def test_what_is_asked_for_stands_in_it_and_every_key_has_a_comment(self):
        text = motley("new", "--model", "llama-3-8b", "--chip", "h100-80gb-sxm", "--nodes", "3", "--chips-per-node",
                      "4", "--global-batch", "96", "--sequence", "2048").stdout
        for line in ["model: llama-3-8b ", "nodes: 3 ", "chip: h100-80gb-sxm ", "chips_per_node: 4 ",
                     "global_batch: 96 ", "sequence: 2048 ", "precision: bf16 "]:
            self.assertIn(line, text)
        self.assertIn("as in `dgx-h100-pod`", text)
        for line in text.splitlines():
            about_nodes = line.strip().startswith(("groups:", "nics:", "- {kind:", "inside:", "train:"))
            self.assertTrue("#" in line or about_nodes, line)

    def test_rows_of_norms_are_divided_where_chips_share_a_layer_and_nowhere_else(self):
        for model, nodes, divides in [("llama-3-8b", "3", "false"), ("llama-3-70b", "4", "true")]:
            text = motley("new", "--model", model, "--chip", "h100-80gb-sxm", "--nodes", nodes).stdout
            degree = int(re.search(r"^  tensor_parallel: (\d+)", text, re.MULTILINE).group(1))
            self.assertEqual(divides == "true", degree > 1, text)
            self.assertIn(f"  sequence_parallel: {divides} ", text)

    def test_a_model_and_a_chip_may_be_files_and_mean_the_same_elsewhere(self):
        with tempfile.TemporaryDirectory() as folder:
            shutil.copy(ROOT / "scenarios" / "models" / "gpt2.json", pathlib.Path(folder, "mine.json"))
            shutil.copy(ROOT / "platforms" / "chips" / "l40s.yaml", pathlib.Path(folder, "card.yaml"))
            os.mkdir(pathlib.Path(folder, "elsewhere"))
            run = {"cwd": folder, "capture_output": True, "text": True, "timeout": 60, "check": True}
            subprocess.run([PROGRAM, "new", "--model", "./mine.json", "--chip", "./card.yaml", "--out",
                            "elsewhere/new.yaml"], **run)
            check = subprocess.run([PROGRAM, "check", "new.yaml"], **{**run, "cwd": os.path.join(folder, "elsewhere")})
            self.assertIn("memory fits", check.stdout)

    def test_json_has_the_text(self):
        words = ["new", "--model", "tiny-gpt2", "--cluster", "host-2"]
        document = json.loads(motley(*words, "--json").stdout)
        self.assertEqual(("motley.new/1", None, 2), (document["schema"], document["path"], document["chips"]))
        self.assertEqual(motley(*words).stdout, document["text"])
        self.assertIn("precision: fp32", document["text"])  # so that it can really be trained

    def test_on_a_terminal_it_asks_what_is_missing_and_takes_what_stands_in_brackets(self):
        try:
            master, slave = pty.openpty()
        except OSError as why:
            self.skipTest(f"no terminal can be had here: {why}")
        os.write(master, b"tiny-lama\ntiny-llama\nhost-core\n\n")
        new = subprocess.run([PROGRAM, "new"], stdin=slave, capture_output=True, text=True, timeout=60, check=False)
        os.close(slave)
        os.close(master)
        self.assertEqual(0, new.returncode, new.stderr)
        self.assertIn("did you mean `tiny-llama`?", new.stderr)
        for line in ["model: tiny-llama ", "chip: host-core ", "nodes: 4 "]:
            self.assertIn(line, new.stdout)


@unless_sanitized
class Manual(unittest.TestCase):
    def test_help2man_writes_a_page_for_each_command(self):
        if shutil.which("help2man") is None or shutil.which("cmake") is None:
            self.skipTest("help2man is not installed, or cmake is not")

        def commands(command, above=()):
            yield (*above, command["name"]), command
            for inner in command["commands"]:
                yield from commands(inner, (*above, command["name"]))

        tree = json.loads(motley("help", "--json").stdout)["command"]
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run(["cmake", f"-DPROGRAM={PROGRAM}", "-DHELP2MAN=help2man", f"-DOUT={folder}/man", "-P",
                            ROOT / "tools" / "cmake" / "man_pages.cmake"], check=True, timeout=240)
            written = {path.name for path in pathlib.Path(folder, "man").iterdir()}
            self.assertEqual({"-".join(names) + ".1" for names, _ in commands(tree)}, written)
            for names, command in commands(tree):
                page = pathlib.Path(folder, "man", "-".join(names) + ".1").read_text(encoding="utf-8")
                self.assertIn(f".SH NAME\n{'-'.join(names)} ", page)
                self.assertIn(".SH EXAMPLES\n.nf\nmotley ", page)
                self.assertIn('.SH "EXIT STATUS"\n0 ok', page)
                for option in command["options"]:
                    for word in option["names"]:
                        self.assertIn(word.replace("-", ""), page.replace("\\-", "").replace("-", ""), names)


if __name__ == "__main__":
    unittest.main()
