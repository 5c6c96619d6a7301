"""Decoder-only transformers in plain PyTorch, of the parts that Motley's Programs consist of.

One matrix product makes q, k and v, one makes gate and up. Attention is causal and fused. The loss is taken of fp32
logits. There is no dropout.
"""

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint


def use_flash_attention():
    """From here on attention is the flash kernel, or an error."""
    torch.backends.cuda.enable_flash_sdp(True)
    for name in ("mem_efficient", "math", "cudnn"):
        getattr(torch.backends.cuda, f"enable_{name}_sdp")(False)


def attend(q, k, v):
    """Causal attention of (batch, heads, T, D); k and v may have fewer heads."""
    if q.device.type == "cpu":
        return attend_plainly(q, k, v)
    if k.shape[1] == q.shape[1]:
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)
    return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)


def attend_plainly(q, k, v):
    repeats = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(repeats, 1), v.repeat_interleave(repeats, 1)
    scores = q.float() @ k.float().transpose(-1, -2) / q.shape[-1] ** 0.5
    hidden = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).triu(1)
    return (scores.masked_fill(hidden, float("-inf")).softmax(-1) @ v.float()).to(q.dtype)


def rms_norm(x, weight):
    if hasattr(F, "rms_norm"):
        return F.rms_norm(x, (x.shape[-1],), weight, 1e-5)
    return (x.float() * x.float().pow(2).mean(-1, keepdim=True).add(1e-5).rsqrt()).to(x.dtype) * weight


def rotation(T, D, device):
    """cos and sin of each position and half of the width, in bf16."""
    frequencies = 1.0 / (500000.0 ** (torch.arange(0, D, 2, device=device).float() / D))
    angles = torch.arange(T, device=device).float()[:, None] * frequencies
    angles = torch.cat((angles, angles), -1)
    return angles.cos().bfloat16(), angles.sin().bfloat16()


def rotate(x, cos, sin):
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-second, first), -1) * sin


class Shape:
    def __init__(self, name, family, layers, hidden, heads, kv_heads, ffn, vocabulary, tied=True):
        self.name, self.family, self.layers, self.hidden = name, family, layers, hidden
        self.heads, self.kv_heads, self.ffn, self.vocabulary, self.tied = heads, kv_heads, ffn, vocabulary, tied
        self.head_dim = hidden // heads


class Norm(nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(shape.hidden))
        self.bias = nn.Parameter(torch.zeros(shape.hidden)) if shape.family == "gpt" else None

    def forward(self, x):
        if self.bias is None:
            return rms_norm(x, self.weight)
        return F.layer_norm(x, (x.shape[-1],), self.weight, self.bias)


class Layer(nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.shape = shape
        is_gpt = shape.family == "gpt"
        self.norm1, self.norm2 = Norm(shape), Norm(shape)
        self.widths = [each * shape.head_dim for each in (shape.heads, shape.kv_heads, shape.kv_heads)]
        self.qkv = nn.Linear(shape.hidden, sum(self.widths), bias=is_gpt)
        self.out = nn.Linear(self.widths[0], shape.hidden, bias=is_gpt)
        self.inner = nn.Linear(shape.hidden, shape.ffn * (1 if is_gpt else 2), bias=is_gpt)
        self.fc2 = nn.Linear(shape.ffn, shape.hidden, bias=is_gpt)

    def attention(self, y, cos, sin):
        B, T, _ = y.shape
        q, k, v = [each.view(B, T, -1, self.shape.head_dim).transpose(1, 2)
                   for each in self.qkv(y).split(self.widths, dim=-1)]
        if cos is not None:
            q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        return self.out(attend(q, k, v).transpose(1, 2).reshape(B, T, -1))

    def forward(self, x, cos=None, sin=None):
        x = x + self.attention(self.norm1(x), cos, sin)
        inner = self.inner(self.norm2(x))
        if self.shape.family == "gpt":
            return x + self.fc2(F.gelu(inner))
        gate, up = inner.chunk(2, dim=-1)
        return x + self.fc2(F.silu(gate) * up)


class Model(nn.Module):
    def __init__(self, shape, longest):
        super().__init__()
        self.shape = shape
        self.token = nn.Embedding(shape.vocabulary, shape.hidden)
        self.position = nn.Embedding(longest, shape.hidden) if shape.family == "gpt" else None
        self.layers = nn.ModuleList(Layer(shape) for _ in range(shape.layers))
        self.norm = Norm(shape)
        self.head = nn.Linear(shape.hidden, shape.vocabulary, bias=False)
        if shape.tied:
            self.head.weight = self.token.weight
        self.recompute = False
        for each in self.parameters():
            if each.dim() > 1:
                nn.init.normal_(each, std=0.02)

    def forward(self, tokens, targets, rotations):
        x = self.token(tokens)
        if self.position is not None:
            x = x + self.position.weight[:tokens.shape[1]]
        for layer in self.layers:
            if self.recompute:
                x = checkpoint(layer, x, *rotations, use_reentrant=False)
            else:
                x = layer(x, *rotations)
        logits = self.head(self.norm(x))
        return F.cross_entropy(logits.float().view(-1, logits.shape[-1]), targets.view(-1))


def parameter_count(model):
    return sum(each.numel() for each in model.parameters())


class MasterWeights:
    """bf16 weights; gradients are added up in fp32; AdamW updates fp32 master weights, which are rounded to bf16."""

    name = "AdamW; fp32 gradients, master weights and moments"

    def __init__(self, model, fused):
        self.weights = list(model.parameters())
        self.masters = [each.detach().float().clone() for each in self.weights]
        for weight, master in zip(self.weights, self.masters):
            master.grad = torch.zeros_like(master)
            weight.master = master
            if hasattr(weight, "register_post_accumulate_grad_hook"):
                weight.register_post_accumulate_grad_hook(self.accumulate)
        self.optimizer = torch.optim.AdamW(self.masters, lr=1e-4, **({"fused": True} if fused else {}))

    @staticmethod
    def accumulate(weight):
        weight.master.grad.add_(weight.grad)
        weight.grad = None

    @torch.no_grad()
    def step(self):
        for weight in self.weights:
            if weight.grad is not None:  # a version of PyTorch without the hook
                self.accumulate(weight)
        self.optimizer.step()
        torch._foreach_copy_(self.weights, self.masters) if hasattr(torch, "_foreach_copy_") else [
            weight.copy_(master) for weight, master in zip(self.weights, self.masters)]
        torch._foreach_zero_([master.grad for master in self.masters])


class NarrowStates:
    """bf16 weights, gradients and moments: no master weights."""

    name = "AdamW; bf16 gradients and moments, no master weights"

    def __init__(self, model, fused):
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, **({"fused": True} if fused else {}))

    def step(self):
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
