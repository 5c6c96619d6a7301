#!/usr/bin/env python3
"""PyTorch as the oracle: builds GPT-2, Llama and its kin from dumped parameters, compares what one rank computed.

Logits, gradients, losses over several AdamW steps and the parameters after them must agree. The model is written with
torch.nn.functional alone, in double precision, from the papers and from nothing of Motley's but the names of parameters
(models/transformer.hpp). Argument: the test program that dumps (tests/hw/test_oracle_dump.cpp). Exit 77 without torch.
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

try:
    import torch
    import torch.nn.functional as F
except ImportError:
    print("no torch: skipped")
    sys.exit(77)

TOLERANCE = 1e-4


def rotate(x, theta):
    """x is (B, heads, T, D); Hugging Face's Llama: the first half of a head is paired with the second."""
    T, D = x.shape[-2:]
    angles = torch.outer(torch.arange(T).double(), theta ** (-torch.arange(0, D, 2).double() / D))
    cosine, sine = torch.cat([angles, angles], -1).cos(), torch.cat([angles, angles], -1).sin()
    a, b = x.chunk(2, -1)
    return x * cosine + torch.cat([-b, a], -1) * sine


def rms_norm(x, weight, t):
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + t["norm_epsilon"]) * weight


def normalise(x, p, name, t):
    if t["family"] == "gpt2":
        return F.layer_norm(x, x.shape[-1:], p[name + ".weight"], p[name + ".bias"], t["norm_epsilon"])
    return rms_norm(x, p[name + ".weight"], t)


def attend(x, p, name, t, window):
    B, T, _ = x.shape
    H, G, D = t["heads"], t["kv_heads"], t["head_dim"]
    qkv = F.linear(x, p[name + ".qkv.weight"], p.get(name + ".qkv.bias"))
    q, k, v = qkv.split([H * D, G * D, G * D], -1)
    q, k, v = (each.view(B, T, -1, D).transpose(1, 2) for each in (q, k, v))
    if t["qk_norm"]:
        q, k = (rms_norm(each, p[name + which], t) for each, which in ((q, ".q_norm.weight"), (k, ".k_norm.weight")))
    if t["family"] == "llama":
        q, k = rotate(q, t["rope_theta"]), rotate(k, t["rope_theta"])
    k, v = (each.repeat_interleave(H // G, dim=1) for each in (k, v))
    scores = q @ k.transpose(-1, -2) / D**0.5
    distance = torch.arange(T)[:, None] - torch.arange(T)[None, :]
    hidden = (distance < 0) | (distance >= (window or T))
    y = scores.masked_fill(hidden, float("-inf")).softmax(-1) @ v
    return F.linear(y.transpose(1, 2).reshape(B, T, H * D), p[name + ".proj.weight"], p.get(name + ".proj.bias"))


def feed_forward(x, p, name, t):
    if t["family"] == "gpt2":
        inner = F.linear(x, p[name + ".fc1.weight"], p[name + ".fc1.bias"])
        return F.linear(F.gelu(inner, approximate="tanh"), p[name + ".fc2.weight"], p[name + ".fc2.bias"])
    gate, up = F.linear(x, p[name + ".gate_up.weight"], p.get(name + ".gate_up.bias")).chunk(2, -1)
    return F.linear(F.silu(gate) * up, p[name + ".fc2.weight"], p.get(name + ".fc2.bias"))


def logits_of(tokens, p, t):
    x = F.embedding(tokens, p["embedding.token.weight"])
    if t["family"] == "gpt2":
        x = x + p["embedding.position.weight"][: tokens.shape[1]]
    for i in range(t["layers"]):
        name = f"layers.{i}"
        x = x + attend(normalise(x, p, name + ".norm1", t), p, name, t, t["windows"][i])
        x = x + feed_forward(normalise(x, p, name + ".norm2", t), p, name, t)
    x = normalise(x, p, "head.norm", t)
    return F.linear(x, p["embedding.token.weight"] if t["tied"] else p["head.weight"])


def worst(found, expected):
    """The largest difference, as a part of the largest expected value where that is below 1."""
    scale = min(1.0, expected.abs().max().item()) or 1.0
    return ((found - expected).abs().max() / scale).item()


def compare(family, program):
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "dump.json"
        subprocess.run([program, "[oracle dump]"], check=True, stdout=subprocess.DEVNULL,
                       env={**os.environ, "MOTLEY_DUMP": str(path), "MOTLEY_DUMP_FAMILY": family})
        dump = json.loads(path.read_text())
    t, train = dump["transformer"], dump["train"]

    def tensor(entry):
        return torch.tensor(entry["values"], dtype=torch.double).view(entry["shape"])

    p = {name: tensor(entry).requires_grad_() for name, entry in dump["parameters"].items()}
    decays = [p[name] for name, entry in dump["parameters"].items() if entry["decays"]]
    others = [p[name] for name, entry in dump["parameters"].items() if not entry["decays"]]
    optimizer = torch.optim.AdamW(
        [{"params": decays, "weight_decay": train["weight_decay"]}, {"params": others, "weight_decay": 0.0}],
        lr=train["learning_rate"], betas=(train["beta1"], train["beta2"]), eps=train["epsilon"])
    found = {}
    first_gradients = {}
    for number, step in enumerate(dump["steps"]):
        tokens, targets = torch.tensor(step["tokens"]), torch.tensor(step["targets"])
        logits = logits_of(tokens, p, t)
        loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten())
        optimizer.zero_grad()
        loss.backward()
        if number == 0:
            ours = torch.tensor(sum(dump["logits"], []), dtype=torch.double)
            found["logits"] = worst(ours, logits.detach().flatten())
            for name in p:
                first_gradients[name] = p[name].grad.clone()
                ours = torch.tensor(dump["gradients"][name], dtype=torch.double).view(p[name].shape)
                found["gradient of " + name] = worst(ours, p[name].grad)
        found[f"loss of step {number}"] = abs(step["loss"] - loss.item())
        optimizer.step()
    for name in p:
        # AdamW scales a gradient that is only rounding up to a whole learning rate: those elements say nothing. The
        # key's bias is one: it moves every score of a row alike, so its gradient is zero.
        told = first_gradients[name].abs() > 1e-5
        ours = tensor(dump["final"][name])
        if told.any():
            found["final " + name] = (ours - p[name].detach())[told].abs().max().item()
    bad = {what: value for what, value in found.items() if not value <= TOLERANCE}
    print(f"{family}: {len(found)} comparisons, the worst differs by {max(found.values()):.2e}")
    for what, value in bad.items():
        print(f"  {what} differs by {value:.2e}")
    losses = [step["loss"] for step in dump["steps"]]
    if losses[-1] >= losses[0]:
        print("  the loss does not fall")
        return False
    return not bad


if __name__ == "__main__":
    torch.set_num_threads(1)
    results = [compare(family, sys.argv[1]) for family in ("gpt2", "llama", "qwen2", "qwen3", "mistral")]
    sys.exit(0 if all(results) else 1)
