#!/usr/bin/env python3
"""Predicts the training steps of tests/validation/torch/, which tools/measure-torch measured on single GPUs, and prints
both side by side. Nothing was fitted to these rows.

Arguments: the program, the source tree.
"""

import csv
import json
import pathlib
import subprocess
import sys
import tempfile

CARDS = {"h200": "h200", "h100": "h100-80gb-sxm"}  # the file's card, the chip of platforms/chips/


def model_of(row):
    shape = f"name: m, vocabulary: {row['vocabulary']}, hidden: {row['hidden']}, layers: {row['layers']}, " \
            f"heads: {row['heads']}"
    if row["family"] == "gpt":
        return f"{{family: gpt2, {shape}, max_positions: {max(1024, int(row['sequence']))}}}"
    return f"{{family: llama, {shape}, kv_heads: {row['kv_heads']}, ffn: {row['ffn']}, max_positions: 131072, " \
           f"tied_embeddings: true}}"


def scenario_of(row, chip):
    batch = int(row["micro_batch"]) * int(row["accumulation"])
    return (f"model: {model_of(row)}\ncluster:\n  groups:\n    - {{name: one, nodes: 1, chip: {chip}, "
            f"chips_per_node: 1, inside: {{fabric: nvswitch, bandwidth: 450 GB/s, latency: 1 us}}}}\n"
            f"train: {{global_batch: {batch}, micro_batch: {row['micro_batch']}, sequence: {row['sequence']}}}\n"
            f"strategy: {{recompute: {row['recompute']}}}\n")


def predict(program, row, chip):
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "row.yaml"
        path.write_text(scenario_of(row, chip))
        answer = subprocess.run([program, "simulate", path, "--json", "--no-changes"], capture_output=True, text=True)
    if answer.returncode != 0:
        sys.exit(answer.stderr)
    return json.loads(answer.stdout)["iteration_s"]


def main():
    program, root = (pathlib.Path(each).resolve() for each in sys.argv[1:3])
    for card, chip in CARDS.items():
        print(f"{card:13}{'sequence':>9}{'batch':>8}{'recompute':>11}{'compiled':>10}{'measured':>12}{'predicted':>12}"
              f"{'error':>9}")
        errors = []
        for row in csv.DictReader((root / "tests" / "validation" / "torch" / f"steps-{card}.csv").open()):
            if "no master weights" in row["optimizer"]:
                continue  # Motley's AdamW keeps fp32 master weights
            measured, predicted = float(row["median_s"]), predict(program, row, chip)
            errors.append(abs(predicted / measured - 1))
            print(f"{row['model']:13}{row['sequence']:>9}{row['micro_batch'] + ' x ' + row['accumulation']:>8}"
                  f"{row['recompute']:>11}{row['compiled']:>10}{1e3 * measured:9.1f} ms{1e3 * predicted:9.1f} ms"
                  f"{100 * (predicted / measured - 1):+7.1f} %")
        errors.sort()
        print(f"{len(errors)} steps: error mean {100 * sum(errors) / len(errors):.1f} %, median "
              f"{100 * errors[len(errors) // 2]:.1f} %, worst {100 * errors[-1]:.1f} %\n")


main()
