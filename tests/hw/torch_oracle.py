#!/usr/bin/env python3
"""PyTorch as the oracle: builds GPT-2, Llama and its descendants from dumped parameters, and compares.

Logits, gradients, losses over several AdamW steps and the parameters after them must agree. The model is written with
torch.nn.functional alone, in double precision, from the papers and from nothing of Motley's but the names of parameters
(models/transformer/transformer.hpp). Argument: the test program that dumps
(tests/hw/kernels/test_oracle_dump.cpp). Exit 77 without torch.
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
FAMILIES = ("gpt2", "llama", "qwen2", "qwen3", "mistral", "mixtral", "qwen2-moe", "deepseek-v3", "latent",
            "sandwich", "chunked", "mistral-extra", "deepseek-v3-extra")


def rotate(x, theta):
    """x is (B, heads, T, D). As in Hugging Face's Llama, the first half of a head is paired with the second."""
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


def latent_heads(x, p, name, t, _):
    B, T, _ = x.shape
    H, D, rank, rope = t["heads"], t["head_dim"], t["latent"]["rank"], t["latent"]["rope"]
    if name + ".q.weight" in p:
        q = F.linear(x, p[name + ".q.weight"])
    else:
        q = rms_norm(F.linear(x, p[name + ".q_down.weight"]), p[name + ".q_down_norm.weight"], t)
        q = F.linear(q, p[name + ".q_up.weight"])
    q_plain, q_turned = q.view(B, T, H, D).transpose(1, 2).split([D - rope, rope], -1)
    latent, shared = F.linear(x, p[name + ".kv_down.weight"]).split([rank, rope], -1)
    kv = F.linear(rms_norm(latent, p[name + ".kv_down_norm.weight"], t), p[name + ".kv_up.weight"])
    k_plain, v = kv.view(B, T, H, -1).transpose(1, 2).split([D - rope, t["latent"]["value"]], -1)
    shared = rotate(shared.view(B, T, 1, rope).transpose(1, 2), t["rope_theta"]).expand(B, H, T, rope)
    return torch.cat([q_plain, rotate(q_turned, t["rope_theta"])], -1), torch.cat([k_plain, shared], -1), v


def heads(x, p, name, t, i):
    B, T, _ = x.shape
    H, G, D = t["heads"], t["kv_heads"], t["head_dim"]
    qkv = F.linear(x, p[name + ".qkv.weight"], p.get(name + ".qkv.bias"))
    q, k, v = qkv.split([H * D, G * D, G * D], -1)
    q, k, v = (each.view(B, T, -1, D).transpose(1, 2) for each in (q, k, v))
    if t["qk_norm"]:
        q, k = (rms_norm(each, p[name + which], t) for each, which in ((q, ".q_norm.weight"), (k, ".k_norm.weight")))
    if t["thetas"][i]:
        turned = t["rotated"]
        q, k = (torch.cat([rotate(each[..., :turned], t["thetas"][i]), each[..., turned:]], -1) for each in (q, k))
    return q, *(each.repeat_interleave(H // G, dim=1) for each in (k, v))


def attend(x, p, name, t, i):
    B, T, _ = x.shape
    q, k, v = (latent_heads if t["latent"]["rank"] else heads)(x, p, name, t, i)
    scores = q @ k.transpose(-1, -2) / t["score_width"]**0.5
    if cap := t["attention_softcap"]:
        scores = cap * (scores / cap).tanh()
    distance = torch.arange(T)[:, None] - torch.arange(T)[None, :]
    chunk = torch.arange(T) // (t["chunks"][i] or T)
    hidden = (distance < 0) | (distance >= (t["windows"][i] or T)) | (chunk[:, None] != chunk[None, :])
    y = scores.masked_fill(hidden, float("-inf")).softmax(-1) @ v
    return F.linear(y.transpose(1, 2).reshape(B, T, -1), p[name + ".proj.weight"], p.get(name + ".proj.bias"))


def feed_forward(x, p, name, t):
    if t["family"] == "gpt2":
        inner = F.linear(x, p[name + ".fc1.weight"], p[name + ".fc1.bias"])
        return F.linear(F.gelu(inner, approximate="tanh"), p[name + ".fc2.weight"], p[name + ".fc2.bias"])
    gate, up = F.linear(x, p[name + ".gate_up.weight"], p.get(name + ".gate_up.bias")).chunk(2, -1)
    activated = F.gelu(gate, approximate="tanh") if t["gelu"] else F.silu(gate)
    return F.linear(activated * up, p[name + ".fc2.weight"], p.get(name + ".fc2.bias"))


def experts(x, p, name, t):
    """Runs every expert on every token; the weights of experts that are not taken are 0."""
    e = t["experts"]
    x = x.flatten(0, 1)
    logits = F.linear(x, p[name + ".router.weight"])
    scores = logits.sigmoid() if e["sigmoid"] else logits.softmax(-1)
    chosen_by = scores + p[name + ".router.bias"] if name + ".router.bias" in p else scores
    if e["groups_per_token"] < e["groups"]:
        grouped = chosen_by.view(len(x), e["groups"], -1)
        kept = grouped.topk(2 if e["sigmoid"] else 1, -1).values.sum(-1).topk(e["groups_per_token"], -1).indices
        mask = torch.zeros(len(x), e["groups"], dtype=torch.bool).scatter(1, kept, True)
        chosen_by = grouped.masked_fill(~mask[..., None], float("-inf")).flatten(1)
    taken = chosen_by.topk(e["per_token"], -1).indices
    weights = scores.gather(1, taken)
    if e["normalise"]:
        weights = weights / weights.sum(-1, keepdim=True)
    weights = torch.zeros_like(scores).scatter(1, taken, weights * e["scale"])
    y = torch.zeros_like(x)
    gate_ups = p[name + ".experts.gate_up.weight"].chunk(e["count"])
    downs = p[name + ".experts.down.weight"].chunk(e["count"])
    for i, (gate_up, down) in enumerate(zip(gate_ups, downs)):
        gate, up = F.linear(x, gate_up).chunk(2, -1)
        y = y + weights[:, i : i + 1] * F.linear(F.silu(gate) * up, down)
    if name + ".shared.down.weight" in p:
        gate, up = F.linear(x, p[name + ".shared.gate_up.weight"]).chunk(2, -1)
        shared = F.linear(F.silu(gate) * up, p[name + ".shared.down.weight"])
        if name + ".shared.gate.weight" in p:
            shared = shared * F.linear(x, p[name + ".shared.gate.weight"]).sigmoid()
        y = y + shared
    return y


def layer(x, p, name, t, i):
    def normed(y, which):
        return normalise(y, p, name + which, t) if name + which + ".weight" in p else y

    x = x + normed(attend(normed(x, ".norm1"), p, name, t, i), ".post_norm1")
    y = normed(x, ".norm2")
    y = experts(y, p, name, t).view_as(x) if i in t["experts"]["layers"] else feed_forward(y, p, name, t)
    return x + normed(y, ".post_norm2")


def logits_of(ahead, p, t):
    """Logits of the next token and of further predictions. `ahead`: item i has the tokens that are i places ahead."""
    table = p["embedding.token.weight"]
    x = F.embedding(ahead[0], table) * t["embedding_scale"]
    if t["family"] == "gpt2":
        x = x + p["embedding.position.weight"][: x.shape[1]]
    for i in range(t["layers"]):
        x = layer(x, p, f"layers.{i}", t, i)
    head = table if t["tied"] else p["head.weight"]
    logits = [F.linear(normalise(x, p, "head.norm", t), head)]
    for k in range(t["extra"]):
        name = f"extra.{k}"
        both = torch.cat([normalise(x, p, name + ".hidden_norm", t),
                          normalise(F.embedding(ahead[k + 1], table) * t["embedding_scale"], p,
                                    name + ".token_norm", t)], -1)
        projection = torch.cat([p[name + ".from_hidden.weight"], p[name + ".from_token.weight"]], -1)
        x = layer(F.linear(both, projection), p, name, t, t["layers"] + 1 + k)
        logits.append(F.linear(normalise(x, p, name + ".norm", t), head))
    cap = t["logit_softcap"]
    return [cap * (each / cap).tanh() for each in logits] if cap else logits


def worst(ours, expected):
    """The largest difference, divided by the largest expected value if that is below 1."""
    scale = min(1.0, expected.abs().max().item()) or 1.0
    return ((ours - expected).abs().max() / scale).item()


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
    differences = {}
    first_gradients = {}
    for number, step in enumerate(dump["steps"]):
        ahead = [torch.tensor(tokens) for tokens in step["ahead"]]
        all_logits = logits_of(ahead, p, t)
        logits = all_logits[0]
        losses = [F.cross_entropy(each.flatten(0, 1), ahead[k + 1].flatten()) for k, each in enumerate(all_logits)]
        loss = losses[0]
        further = sum(losses[1:]) / max(1, t["extra"])
        optimizer.zero_grad()
        (loss + t["extra_weight"] * further).backward()
        if t["extra"]:
            differences[f"loss of further tokens, step {number}"] = abs(step["extra_loss"] - further.item())
        if number == 0:
            ours = torch.tensor(sum(dump["logits"], []), dtype=torch.double)
            differences["logits"] = worst(ours, logits.detach().flatten())
            for name in p:
                if p[name].grad is None:  # a balancing bias gets no gradient in either program
                    differences["no gradient of " + name] = float(name in dump["gradients"])
                    p[name].grad = torch.zeros_like(p[name])
                    first_gradients[name] = p[name].grad.clone()
                    continue
                first_gradients[name] = p[name].grad.clone()
                ours = torch.tensor(dump["gradients"][name], dtype=torch.double).view(p[name].shape)
                differences["gradient of " + name] = worst(ours, p[name].grad)
        differences[f"loss of step {number}"] = abs(step["loss"] - loss.item())
        optimizer.step()
    for name in p:
        # AdamW turns a gradient that is only rounding error into a step of a whole learning rate, so such elements are
        # left out. The key's bias is one: it moves all scores of a row equally, so its true gradient is zero.
        significant = first_gradients[name].abs() > 1e-5
        ours = tensor(dump["final"][name])
        if significant.any():
            differences["final " + name] = (ours - p[name].detach())[significant].abs().max().item()
    bad = {what: value for what, value in differences.items() if not value <= TOLERANCE}
    print(f"{family}: {len(differences)} comparisons, the worst differs by {max(differences.values()):.2e}")
    for what, value in bad.items():
        print(f"  {what} differs by {value:.2e}")
    losses = [step["loss"] for step in dump["steps"]]
    if losses[-1] >= losses[0]:
        print("  the loss does not fall")
        return False
    return not bad


if __name__ == "__main__":
    torch.set_num_threads(1)
    results = [compare(family, sys.argv[1]) for family in FAMILIES]
    sys.exit(0 if all(results) else 1)
