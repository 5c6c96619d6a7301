#!/usr/bin/env python3
"""Predicts the training steps of tests/validation/torch/, which tools/measure-torch measured on single GPUs, and prints
both side by side: with the chip as it ships, and on the H200 also with a chip that was calibrated from the profiles of
two models of two layers (tests/sim/profiles/). Nothing was fitted to these rows.

Arguments: the program, the source tree.
"""

import csv
import json
import pathlib
import subprocess
import sys
import tempfile

LONG_S = 0.06  # shorter micro-batches wait for the processor that launches their kernels


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


def calibrated(program, root, folder):
    """The file of an H200 with the speeds that the profiles show."""
    chip = folder / "h200-profiled.yaml"
    profiles = [word for name in ("llama", "gpt2") for word in ("--from", root / f"tests/sim/profiles/{name}.json")]
    subprocess.run([program, "calibrate", *profiles, "--chip", "h200", "--source", "profiles", "--max-input", "8MiB",
                    "--out", chip], check=True, stdout=subprocess.DEVNULL)
    return chip


def summary(what, errors):
    errors = sorted(abs(each) for each in errors)
    return (f"{what}: {len(errors)} steps, error mean {100 * sum(errors) / len(errors):.1f} %, median "
            f"{100 * errors[len(errors) // 2]:.1f} %, worst {100 * errors[-1]:.1f} %")


def compare(program, root, card, chips):
    """`chips`: the word for each kind of prediction, and its chip."""
    print(f"{card:13}{'sequence':>9}{'batch':>8}{'recompute':>11}{'compiled':>10}{'measured':>12}"
          + "".join(f"{word:>20}" for word in chips))
    errors = {word: [] for word in chips}
    long_errors = {word: [] for word in chips}
    for row in csv.DictReader((root / "tests" / "validation" / "torch" / f"steps-{card}.csv").open()):
        if "no master weights" in row["optimizer"]:
            continue  # Motley's AdamW keeps fp32 master weights
        measured = float(row["median_s"])
        line = (f"{row['model']:13}{row['sequence']:>9}{row['micro_batch'] + ' x ' + row['accumulation']:>8}"
                f"{row['recompute']:>11}{row['compiled']:>10}{1e3 * measured:9.1f} ms")
        for word, chip in chips.items():
            predicted = predict(program, row, chip)
            error = predicted / measured - 1
            errors[word].append(error)
            if measured / int(row["accumulation"]) >= LONG_S:
                long_errors[word].append(error)
            line += f"{1e3 * predicted:8.1f} ms{100 * error:+7.1f} %"
        print(line)
    for word in chips:
        print(summary(f"{word}, all", errors[word]))
        print(summary(f"{word}, micro-batches of {1e3 * LONG_S:.0f} ms or more", long_errors[word]))
    print()


def main():
    program, root = (pathlib.Path(each).resolve() for each in sys.argv[1:3])
    with tempfile.TemporaryDirectory() as folder:
        compare(program, root, "h200", {"as it ships": "h200",
                                        "from profiles": calibrated(program, root, pathlib.Path(folder))})
    compare(program, root, "h100", {"as it ships": "h100-80gb-sxm"})


main()
