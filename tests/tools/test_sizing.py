"""motley collective and motley memory as a person uses them: what they print, and that other commands say the same."""

import json
import pathlib
import random
import re
import subprocess
import sys
import tempfile
import unittest

PROGRAM = pathlib.Path(sys.argv.pop(1)).resolve()
ROOT = pathlib.Path(sys.argv.pop(1)).resolve()


def motley(*words, folder=ROOT, code=0):
    done = subprocess.run([PROGRAM, *map(str, words)], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == code, f"{words}: exit {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done


def data(*words, **further):
    return json.loads(motley(*words, "--json", **further).stdout)


class Collective(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.path = pathlib.Path(self.folder.name)
        self.addCleanup(self.folder.cleanup)

    def test_its_output_is_a_log_whose_times_are_the_predictions(self):
        for operation, cluster, ranks in (("all_reduce", "dgx-a100", 16), ("alltoall", "mi300x-nodes", 8),
                                          ("sendrecv_perf", "dgx-h100-pod", 24)):
            log = self.path / "own.log"
            log.write_text(motley("collective", operation, "--cluster", cluster, "-n", ranks, "-b", "64K", "-e", "1G",
                                  "-f", 8).stdout)
            compared = data("collective", operation, "--cluster", cluster, "--measured", log)
            self.assertEqual(compared["ranks"], ranks)
            self.assertEqual(len(compared["rows"]), 5)
            for row in compared["rows"]:
                self.assertAlmostEqual(row["ratio"], 1, delta=0.001)
            self.assertLess(compared["errors"]["mean_abs_pct"], 0.1)

    def test_times_are_those_of_validate(self):
        drawn = random.Random(1)
        rows, expected = [], []
        for i in range(6):
            operation = drawn.choice(["all_reduce", "reduce_scatter", "all_gather", "all_to_all"])
            cluster = drawn.choice(["dgx-a100", "dgx-h100-pod", "mi300x-nodes", "hgx-b200-pod"])
            nodes, each = drawn.choice([1, 2, 4]), drawn.choice([2, 4, 8])
            size, calls = 16 * 8 * 4 * 2 ** drawn.randrange(22), drawn.choice(["queued", "launched"])
            rows.append(f"r{i},{operation},{cluster},{nodes},{nodes * each},{size},1,,,,{calls},s,l,m,2025")
            (row,) = data("collective", operation, "--cluster", cluster, "-n", nodes * each, "--per-node", each,
                          "-b", size, "-e", size, "--calls", calls)["rows"]
            expected.append((row["seconds"], row["algorithm"]))
        table = self.path / "collectives.csv"
        head = (ROOT / "tests/validation/collectives.csv").read_text().splitlines()[0]
        table.write_text("\n".join([head, *rows]) + "\n")
        validated = data("validate", table, "--collectives")
        for row, (seconds, algorithm) in zip(validated["rows"], expected, strict=True):
            self.assertAlmostEqual(row["predicted_s"] / seconds, 1, places=9, msg=row)
            self.assertEqual(row["algorithm"], algorithm)

    def test_busbw_is_algbw_times_the_factor(self):
        for operation, factor in (("all_reduce", 2 * 7 / 8), ("all_gather", 7 / 8), ("reduce_scatter", 7 / 8),
                                  ("all_to_all", 7 / 8), ("broadcast", 1), ("reduce", 1), ("gather", 7 / 8),
                                  ("scatter", 7 / 8), ("send_recv", 1)):
            whole = data("collective", operation, "--cluster", "dgx-a100", "-n", 8, "-b", "1M", "-e", "16M", "-f", 16)
            for row in whole["rows"]:
                self.assertAlmostEqual(row["algbw_gb_s"], row["bytes"] / row["seconds"] / 1e9, places=6)
                self.assertAlmostEqual(row["busbw_gb_s"], row["algbw_gb_s"] * factor, places=6)
            mean = sum(row["busbw_gb_s"] for row in whole["rows"]) / 2
            self.assertAlmostEqual(whole["average_busbw_gb_s"], mean, places=6)

    # A fixed algorithm has one latency and one rate. The automatic choice changes with the size, and need not rise.
    def test_more_bytes_and_slower_links_are_never_faster(self):
        drawn = random.Random(2)
        for _ in range(5):
            nodes, chips = drawn.choice([2, 3, 4]), drawn.choice([1, 2, 4])
            inside, outside = drawn.uniform(20, 400), drawn.uniform(5, 400)

            def cluster(inside, outside, name):
                path = self.path / f"{name}.yaml"
                path.write_text(
                    f"groups: [{{name: n, nodes: {nodes}, chip: a100-80gb-sxm, chips_per_node: {chips}, inside: "
                    f"{{fabric: nvswitch, bandwidth: {inside} GB/s}}, nics: [{{kind: infiniband, count: {chips}, "
                    f"bandwidth: {outside} Gb/s}}]}}]\n")
                return path

            operation = drawn.choice(["all_reduce", "all_gather", "broadcast", "all_to_all", "send_recv"])
            rows = [
                data("collective", operation, "--cluster", file, "-n", nodes * chips, "-b", "16K", "-e", "256M", "-f",
                     128, "--algorithm", "flat" if operation == "all_to_all" else "ring")["rows"]
                for file in (cluster(inside, outside, "slow"), cluster(inside * 1.5, outside * 1.5, "fast"))
            ]
            for slow, fast in zip(*rows, strict=True):
                self.assertLessEqual(fast["seconds"], slow["seconds"] * (1 + 1e-9), (operation, slow))
            for table in rows:
                times = [row["seconds"] for row in table]
                self.assertEqual(times, sorted(times))

    def test_a_newcomer_sees_the_columns_of_nccl_tests(self):
        text = motley("collective", "allreduce", "--cluster", "dgx-a100", "-n", 16, "-b", 8, "-e", "1K").stdout
        heads = [line for line in text.splitlines() if "algbw" in line]
        self.assertEqual(heads[0].split()[1:9], ["size", "count", "type", "redop", "root", "time", "algbw", "busbw"])
        rows = [line.split() for line in text.splitlines() if not line.startswith("#")]
        self.assertEqual([row[0] for row in rows], [str(8 << i) for i in range(8)])
        self.assertTrue(all(row[2:5] == ["float", "sum", "-1"] for row in rows))
        self.assertRegex(text, r"(?m)^# Avg bus bandwidth    : [0-9.e+-]+$")


class Memory(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.path = pathlib.Path(self.folder.name)
        self.addCleanup(self.folder.cleanup)

    def test_an_offloaded_optimizer_leaves_the_chip_whatever_its_nodes_say(self):
        for chip in ("h100-80gb-sxm", "rtx-4090"):  # usual nodes of the latter say what memory they have
            words = ["memory", "llama-3.2-1b", "--chip", chip, "--sequence-length", 512]
            here, there = data(*words)["stages"][0], data(*words, "--offload-optimizer")["stages"][0]
            self.assertGreater(here["optimizer"], 0)
            self.assertEqual(there["optimizer"], 0)
            # Beside 12 bytes of state, gradients of 4 come to the node, and weights of 2 leave it.
            self.assertEqual(there["host"] * 12, here["optimizer"] * 18)
            self.assertLess(there["peak"], here["peak"])
        self.assertIn("enough is assumed", motley("memory", "llama-3.2-1b", "--chip", "h100-80gb-sxm",
                                                  "--offload-optimizer").stdout)

    def test_its_figures_are_those_of_check_and_simulate(self):
        drawn = random.Random(3)
        for _ in range(8):
            words = [drawn.choice(["llama-3.2-1b", "gpt2-medium", "qwen3-0.6b"]), "--chip",
                     drawn.choice(["h100-80gb-sxm", "mi300x", "a100-40gb-sxm"])]
            for option, values in (("--tp", [1, 2, 4]), ("--pp", [1, 2]), ("--dp", [1, 2]), ("--micro-batch", [1, 2]),
                                   ("--zero", [0, 1, 2, 3]), ("--recompute", ["none", "full"]),
                                   ("--optimizer", ["adamw", "adamw-8bit", "adafactor", "muon", "sgd"]),
                                   ("--precision", ["bf16", "fp32"])):
                words += [option, drawn.choice(values)]
            if drawn.random() < 0.4:
                words += ["--lora", 8, *drawn.choice([[], ["--qlora"], ["--lora-targets", "q,v"]])]
            scenario = self.path / "job.yaml"
            memory = data("memory", *words, "--sequence-length", 512, "--out", scenario)
            checked = data("check", scenario)
            self.assertEqual(len(memory["stages"]), len(checked["memory"]))
            for ours, theirs in zip(memory["stages"], checked["memory"], strict=True):
                for key in ("parameters", "gradients", "optimizer", "activations_peak", "buffers", "buckets", "runtime",
                            "fragmentation", "peak", "capacity"):
                    self.assertEqual(ours[key], theirs[key], (words, key))

    # arXiv:2305.14314 (QLoRA, 2023-05): LLaMA 65B, which needs more than 780 GB to train in 16 bits, is trained on one
    # 48 GB GPU, with adapters of rank 64 on all linear layers. Its optimizer's state may go to the host's memory.
    def test_llama_65b_fits_48_gb_with_qlora_only(self):
        model = self.path / "llama-65b.json"
        model.write_text(json.dumps({
            "model_type": "llama", "vocab_size": 32000, "hidden_size": 8192, "num_hidden_layers": 80,
            "num_attention_heads": 64, "intermediate_size": 22016, "max_position_embeddings": 2048,
            "rms_norm_eps": 1e-5, "tie_word_embeddings": False}))
        job = [model, "--chip", "l40s", "--lora", 64, "--sequence-length", 512, "--recompute", "full", "--gradients",
               "bf16", "--no-master-weights"]
        fits = data("memory", *job, "--qlora")
        self.assertTrue(fits["fits"])
        self.assertAlmostEqual(fits["parameters"] / 1e9, 65.3, delta=0.05)
        self.assertAlmostEqual(fits["stages"][0]["parameters"] / 1e9, 65.3 * 4.127 / 8 + 1.1 + 1.35, delta=1)
        whole = data("memory", *job, code=3)
        self.assertFalse(whole["fits"])
        self.assertIn({"--qlora": True}, [{each["change"]: each["fits"]} for each in whole["changes"]])
        state = sum(data("memory", model, "--chip", "l40s", code=3)["stages"][0][key]
                    for key in ("parameters", "gradients", "optimizer"))
        self.assertGreater(state, 780e9)

    # PEFT 0.11 prints "trainable params: 3,407,872" for Llama 3 8B with rank 8 on q_proj and v_proj: 32 layers of
    # 8 (4096 + 4096) + 8 (4096 + 1024).
    def test_adapters_of_stacked_matrices_are_as_many_as_those_of_separate_ones(self):
        count = data("memory", "llama-3-8b", "--lora", 8, "--lora-targets", "q,v")["trained_parameters"]
        self.assertEqual(count, 32 * 8 * (4096 + 4096 + 4096 + 1024))
        self.assertEqual(count, 3407872)
        names = "q_proj,k_proj,v_proj,o_proj,gate_proj,up_proj,down_proj"
        every = data("memory", "llama-3-8b", "--lora", 8, "--lora-targets", names)["trained_parameters"]
        shapes = [(4096, 4096), (4096, 1024), (4096, 1024), (4096, 4096), (4096, 14336), (4096, 14336), (14336, 4096)]
        self.assertEqual(every, 32 * 8 * sum(a + b for a, b in shapes))

    def test_a_job_that_does_not_fit_says_what_would(self):
        text = motley("memory", "llama-3-8b", "--chip", "h100-80gb-sxm", code=3).stdout
        self.assertIn("too much", text)
        self.assertIn("it does not fit", text)
        self.assertRegex(text, r"`--optimizer adafactor` needs [0-9.]+ GiB")
        text = motley("memory", "llama-3.2-1b").stdout
        self.assertRegex(text, r"chips that hold it: [a-z0-9-]+ \([0-9.]+ GiB\)")

    def test_refusals_name_the_option(self):
        done = motley("memory", "llama-3-8b", "--chip", "h100-80gb-sxm", "--tp", 3, code=3)
        self.assertTrue(re.search(r"--tp 3: ", done.stderr), done.stderr)
        done = motley("memory", "llama-3-8b", "--lora", 8, "--lora-targets", "qkw", code=2)
        self.assertIn("did you mean `qkv`", done.stderr)


if __name__ == "__main__":
    unittest.main()
