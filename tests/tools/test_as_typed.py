#!/usr/bin/env python3
"""What new users typed first, word for word: each line does what they meant, or says what else to type.

Arguments: the program, the source tree. Other tests look at the answers themselves.
"""

import gzip
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import unittest

PROGRAM = pathlib.Path(sys.argv.pop(1)).resolve()
ROOT = pathlib.Path(sys.argv.pop(1)).resolve()

OWN = """model: llama-3-8b
cluster: {groups: [{chip: h100-80gb-sxm, nodes: 4}]}
train: {global_batch: 64, sequence: 4096}
strategy: {tp: 4, data_parallel: auto}
"""
FILES = {
    "a.yaml": OWN,
    "b.yaml": OWN.replace("tp: 4", "tp: 8"),
    "long.yaml": OWN.replace("sequence: 4096", "sequence: 20000"),
    "measured.yaml": OWN + "measured: 41 s\n",
    "wrong.yaml": OWN.replace("model:", "modle:").replace("sequence", "sequnce"),
    "own-chip.yaml": "vendor: us\nkind: gpu\npeak: {bf16: 500 TFLOP/s}\nmemory: 80 GiB\nmemory_bandwidth: 3 TB/s\n"
                     "gemm_efficiency: 0.7\nattention_efficiency: 0.5\nbandwidth_efficiency: 0.85\n",
    "own.yaml": OWN.replace("chip: h100-80gb-sxm, nodes: 4",
                            "chip: own-chip, nodes: 2, chips_per_node: 8, inside: {fabric: nvswitch, bandwidth: "
                            "400 GB/s}, nics: [{kind: roce, count: 8, bandwidth: 400 Gb/s}]"),
}

# Words, exit code, what stdout has, what stderr has.
TYPED = [
    ("motley", 0, "Subcommands:", ""),
    ("motley help", 0, "Subcommands:", ""),
    ("motley help sweep", 0, "--shard", ""),
    ("motley -V", 0, r"^\d+\.\d+\.\d+$", ""),
    ("motley simulate quickstart", 0, r"iteration +6\.\d+ s", ""),
    ("motley simulate - <a.yaml", 0, "iteration", ""),
    ("motley simulate a.yaml b.yaml", 0, r"(?s)a .*b ", ""),
    ("motley simulate quickstart --set strategy.tensor_parallel=8 --set strategy.dp=2", 0, "iteration", ""),
    ("motley simulate quickstart --set strategy.tensr_parallel=8", 2, "",
     r"strategy\.tensr_parallel=8:1:10: .*\n.*did you mean `tensor_parallel`"),
    ("motley check wrong.yaml", 2, "", r"(?s)did you mean `model`.*did you mean `sequence`"),
    ("motley sweep a.yaml --set cluster.groups.0.nics.0.bandwidth=100..800Gb/s:x2 --set strategy.tp=2,4,8", 0,
     r"(?m)(^ +\d+Gb/s +[248] .*\n){12}", ""),
    ("motley list chips", 0, "h100-80gb-sxm", ""),
    ("motley list clusters", 0, "dgx-a100", ""),
    ("motley list models", 0, "gpt-oss-120b", ""),
    ("motley list software", 0, "megatron-2021", ""),
    ("motley list scenarios", 0, "quickstart", ""),
    ("motley list schedules", 0, "1f1b", ""),
    ("motley schema scenario", 0, '"tensor_parallel"', ""),
    ("motley simulate a.yaml", 0, r"the nodes of `h100-80gb-sxm` are the usual ones", ""),
    ("motley simulate own.yaml", 0, "iteration", ""),
    ("motley simulate long.yaml", 0, "20000 tokens in a row are more than the 8192 positions", ""),
    ("motley simulate measured.yaml", 0, r"measured +41", ""),
    ("motley new --model llama-3-8b --chip h100-80gb-sxm --nodes 4", 0, r"bandwidth: 400 Gb/s", ""),
    ("motley simulate wrong.yaml --json", 2, r'"schema": "motley\.refusal/1"', "did you mean"),
    ("motley simulate a.yaml --trace run.json.gz", 0, "iteration", ""),
    ("motley collective all_reduce --cluster dgx-a100 --ranks 16 -b 8 -e 8G", 0, r"(?m)^ +8589934592 ", ""),
    ("motley memory llama-3-8b --chip h100-80gb-sxm --tp 8", 0, "fits", ""),
    ("motley memory llama-3-8b --chip rtx-4090 --qlora --lora 16 --recompute full", 0, "NF4", ""),
    ("motley doctor", 0, "searched by name in this order", ""),
]


class AsTyped(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)
        for name, text in FILES.items():
            (self.folder / name).write_text(text, encoding="utf-8")

    def typed(self, line):
        words = shlex.split(line.replace("<", "< "))
        text = None
        if "<" in words:
            at = words.index("<")
            text = (self.folder / words[at + 1]).read_text(encoding="utf-8")
            del words[at:at + 2]
        return subprocess.run([PROGRAM, *words[1:]], cwd=self.folder, input=text or "", capture_output=True, text=True,
                              timeout=300, check=False, env={**os.environ, "HOME": str(self.folder)})

    def test_each_line_does_what_was_meant(self):
        for line, code, out, err in TYPED:
            with self.subTest(line):
                answer = self.typed(line)
                self.assertEqual(code, answer.returncode, answer.stderr)
                self.assertRegex(answer.stdout, out or r"^$")
                self.assertRegex(answer.stderr, err or r"\A(?!.*error:)")

    def test_a_trace_that_is_called_compressed_is(self):
        self.typed("motley simulate a.yaml --trace run.json.gz")
        self.assertIn("traceEvents", gzip.decompress((self.folder / "run.json.gz").read_bytes()).decode())

    def test_one_row_of_ones_own_is_enough_and_none_that_is_used_is_told(self):
        columns = self.typed("motley validate --columns").stdout
        table = [line.strip() for line in columns.splitlines() if re.match(r"^ +(id|mine-1),", line)]
        (self.folder / "mine.csv").write_text("\n".join(table) + "\n", encoding="utf-8")
        answer = self.typed("motley validate mine.csv")
        self.assertEqual(0, answer.returncode, answer.stderr)
        self.assertRegex(answer.stdout, r"mine +1 ")
        empty = "mine-1" + "," * table[0].count(",")
        (self.folder / "none.csv").write_text(f"{table[0]}\n{empty}\n", encoding="utf-8")
        self.assertEqual(4, self.typed("motley validate none.csv").returncode)


if __name__ == "__main__":
    unittest.main(verbosity=2)
