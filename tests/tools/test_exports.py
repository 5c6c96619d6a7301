#!/usr/bin/env python3
"""motley export and motley import as a person types them: the files are what their readers can parse, and a scenario
that goes out and comes in again has the same strategy.

Arguments: the program, the source tree.
"""

import ast
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

PROGRAM = pathlib.Path(sys.argv.pop(1)).resolve()
sys.argv.pop(1)

HEAD = """model: llama-3-8b
cluster: dgx-a100-4
train: {global_batch: 64, sequence: 4096}
"""
SHARDED = HEAD + "strategy: {tp: 2, dp: 16, zero: 3, overlap: {gradients: true}}\n"
INTERLEAVED = HEAD + ("strategy: {tp: 2, pp: 4, dp: 4, schedule: interleaved, sequence_parallel: true, zero: 1, "
                      "recompute: full}\n")
ZERO_BUBBLE = HEAD + ("strategy: {tp: 2, pp: 4, dp: 4, schedule: zb-h1, sequence_parallel: true, zero: 3, "
                      "reduce_gradients: last, overlap: {gradients: true}}\n")
MESHES = HEAD + "strategy: {tp: 4, pp: 2, dp: 4, sequence_parallel: true, zero: 1, overlap: {p2p: false}}\n"
# What a person has: a script with variables, an array and comments, and launchers before it.
SCRIPT = """#!/bin/bash
export CUDA_DEVICE_MAX_CONNECTIONS=1
GPUS_PER_NODE=8
NNODES=${SLURM_NNODES:-4}
CHECKPOINT=$1  # where to save
DISTRIBUTED="--nproc_per_node $GPUS_PER_NODE \\
  --nnodes $NNODES --node_rank $SLURM_NODEID"
MODEL=(
  --num-layers 32 --hidden-size 4096  # Llama 2 7B
  --ffn-hidden-size=11008 --num-attention-heads 32
  --seq-length 4096 --max-position-embeddings 4096 --vocab-size 32000
  --swiglu --normalization RMSNorm --position-embedding-type "rope" --disable-bias-linear
  --untie-embeddings-and-output-weights
)
srun --nodes=$NNODES torchrun $DISTRIBUTED pretrain_gpt.py "${MODEL[@]}" \\
  --tensor-model-parallel-size 4 --pipeline-model-parallel-size 2 --sequence-parallel \\
  --micro-batch-size 1 --global-batch-size 128 --bf16 \\
  --use-distributed-optimizer --save "$CHECKPOINT" --log-interval 10 2>&1 | tee log
"""


class Exports(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.folder = pathlib.Path(holder.name)

    def motley(self, *arguments):
        run = subprocess.run([PROGRAM, *map(str, arguments)], capture_output=True, text=True, cwd=self.folder,
                             timeout=120)
        self.assertEqual(0, run.returncode, run.stderr)
        return run

    def write(self, name, text):
        (self.folder / name).write_text(text, encoding="utf-8")
        return name

    def strategy(self, scenario):
        return json.loads(self.motley("show", "strategy", scenario, "--json").stdout)

    def test_torchtitan_gets_python_that_parses_and_a_schedule_beside_it(self):
        self.motley("export", self.write("job.yaml", ZERO_BUBBLE), "--to", "torchtitan", "--out", "run/")
        tree = ast.parse((self.folder / "run" / "torchtitan_run.py").read_text(encoding="utf-8"))
        functions = [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]
        self.assertEqual(["job"], functions)
        rows = (self.folder / "run" / "schedule.csv").read_text(encoding="utf-8").splitlines()
        self.assertEqual(4, len(rows))
        self.assertTrue(rows[0].startswith("0F0,"))

    def test_shell_scripts_are_ones_that_bash_can_parse(self):
        for target, scenario in (("megatron-lm", INTERLEAVED), ("megatron-bridge", INTERLEAVED),
                                 ("torchrun", SHARDED), ("sbatch", SHARDED), ("mpirun", SHARDED)):
            with self.subTest(target):
                self.motley("export", self.write("job.yaml", scenario), "--to", target, "--out", f"{target}/")
                for script in (self.folder / target).glob("*.sh"):
                    check = subprocess.run(["bash", "-n", script], capture_output=True, text=True)
                    self.assertEqual("", check.stderr)

    def test_bash_gives_megatron_the_arguments_that_the_script_writes(self):
        self.motley("export", self.write("job.yaml", INTERLEAVED), "--to", "megatron-lm", "--out", "train.sh")
        self.write("torchrun", "#!/bin/bash\nprintf '%s\\n' \"$@\"\n")
        (self.folder / "torchrun").chmod(0o755)
        run = subprocess.run(["bash", "train.sh"], capture_output=True, text=True, cwd=self.folder,
                             env={"PATH": f"{self.folder}:/usr/bin:/bin"})
        words = run.stdout.splitlines()
        layout = words[words.index("--pipeline-model-parallel-layout") + 1]
        self.assertEqual("Et*4|t*4|t*4|t*4|t*4|t*4|t*4|t*4L", layout)

    def test_what_goes_out_comes_in_with_the_same_strategy(self):
        for target, file, scenario, more in (
                ("megatron-lm", "megatron-lm.sh", INTERLEAVED, ()), ("flagscale", "train.yaml", MESHES, ()),
                ("deepspeed", "deepspeed.json", SHARDED, ("--model", "llama-3-8b", "--sequence", 4096))):
            with self.subTest(target):
                self.motley("export", self.write("job.yaml", scenario), "--to", target, "--out", f"{target}/")
                self.motley("import", f"{target}/{file}", "--from", target, "--cluster", "dgx-a100-4", "--out",
                            "in.yaml", *more)
                self.assertEqual(self.strategy("job.yaml")["text"], self.strategy("in.yaml")["text"])
                self.motley("check", "in.yaml")

    def test_a_script_as_people_write_it_is_imported_and_what_was_ignored_is_listed(self):
        run = self.motley("import", self.write("train.sh", SCRIPT), "--from", "torchrun", "--cluster", "dgx-a100-4",
                          "--out", "in.yaml", "--json")
        imported = json.loads(run.stdout)
        self.assertEqual("motley.import/1", imported["schema"])
        self.assertEqual(32, imported["ranks"])
        ignored = {each["name"]: (each["line"], each["column"]) for each in imported["ignored"]}
        self.assertEqual({"--node_rank": (7, 20), "--save": (18, 31), "--log-interval": (18, 52)}, ignored)
        strategy = self.strategy("in.yaml")
        self.assertEqual((4, 2, 4), (strategy["tp"], strategy["pp"], strategy["dp"]))

    def test_the_line_itself_may_be_given(self):
        line = ("torchrun --nproc-per-node 4 pretrain_gpt.py --num-layers 4 --hidden-size 64 --num-attention-heads 4 "
                "--seq-length 64 --max-position-embeddings 64 --micro-batch-size 1 --vocab-size 96")
        text = self.motley("import", line, "--from", "megatron-lm", "--cluster", "host-4").stdout
        self.assertIn("replicas: 4", text)

    def test_names_of_hosts_may_be_given(self):
        self.write("hosts", "alpha\nbeta\ngamma\ndelta\n")
        text = self.motley("export", self.write("job.yaml", SHARDED), "--to", "hostfile", "--hosts", "hosts").stdout
        self.assertEqual(["alpha slots=8", "beta slots=8", "gamma slots=8", "delta slots=8"],
                         [row for row in text.splitlines() if not row.startswith("#")])

    def test_json_has_every_file_and_the_version(self):
        run = self.motley("export", self.write("job.yaml", SHARDED), "--to", "deepspeed", "--json")
        exported = json.loads(run.stdout)
        self.assertEqual("motley.export/1", exported["schema"])
        self.assertTrue(exported["version"].startswith("DeepSpeed 0."))
        config = json.loads(exported["files"][0]["text"])
        self.assertEqual(64, config["train_batch_size"])
        self.assertEqual(3, config["zero_optimization"]["stage"])

    def test_a_plan_for_a_target_is_one_that_the_target_can_say(self):
        asked = self.folder / "asked.yaml"
        asked.write_text(HEAD + "plan: {evaluations: 24}\n")
        planned = self.folder / "planned.yaml"
        for target in ["megatron-lm", "megatron-bridge", "flagscale", "torchtitan", "deepspeed"]:
            with self.subTest(target):
                plan = json.loads(self.motley("plan", asked, "--target", target, "--out", planned, "--json").stdout)
                self.assertLessEqual(plan["bound_s"], plan["simulated_s"])
                self.motley("export", planned, "--to", target)


if __name__ == "__main__":
    unittest.main()
