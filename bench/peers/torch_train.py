#!/usr/bin/env python3
"""Tokens per second of one training step in PyTorch, as a yardstick for `strata bench`.

A pre-norm decoder with a plain residual connection: 8 blocks, width 256, 4 heads, GELU MLP of 1024,
vocabulary 4096, context 256, batch 8, tied head, AdamW. Prints one JSON line per precision with the median
over the steps after the first. On Debian: apt-get install python3-torch libopenblas0, then
/usr/bin/python3 FILE; without OpenBLAS its f32 products are many times slower, and the script says so.
"""

import argparse
import json
import statistics
import sys
import time

import torch
from torch import nn
from torch.nn import functional

DIM, BLOCKS, HEADS, MLP, VOCAB, CONTEXT, BATCH = 256, 8, 4, 1024, 4096, 256, 8


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(DIM, 3 * DIM, bias=False)
        self.output = nn.Linear(DIM, DIM, bias=False)
        future = torch.ones(CONTEXT, CONTEXT, dtype=torch.bool).triu(1)
        self.register_buffer("future", future)

    def forward(self, x):
        split = self.qkv(x).unflatten(-1, (3, HEADS, DIM // HEADS))
        query, key, value = (part.transpose(1, 2) for part in split.unbind(2))
        if hasattr(functional, "scaled_dot_product_attention"):
            mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        else:  # before PyTorch 2
            scores = query @ key.transpose(-2, -1) * (DIM // HEADS) ** -0.5
            mixed = scores.masked_fill(self.future, float("-inf")).softmax(-1) @ value
        return self.output(mixed.transpose(1, 2).flatten(2))


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(VOCAB, DIM)
        self.position = nn.Parameter(torch.zeros(CONTEXT, DIM))
        self.sublayers = nn.ModuleList()
        for _ in range(BLOCKS):
            self.sublayers.append(nn.Sequential(nn.LayerNorm(DIM), Attention()))
            self.sublayers.append(
                nn.Sequential(
                    nn.LayerNorm(DIM),
                    nn.Linear(DIM, MLP, bias=False),
                    nn.GELU(),
                    nn.Linear(MLP, DIM, bias=False),
                )
            )
        self.norm = nn.LayerNorm(DIM)
        nn.init.normal_(self.embedding.weight, std=0.02)

    def forward(self, tokens, targets):
        x = self.embedding(tokens) + self.position
        for sublayer in self.sublayers:
            x = x + sublayer(x)
        logits = functional.linear(self.norm(x), self.embedding.weight)
        return functional.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())


def tokens_per_second(dtype, steps):
    torch.manual_seed(1)
    model = Decoder()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    tokens, targets = torch.randint(0, VOCAB, (2, BATCH, CONTEXT))
    seconds = []
    for _ in range(steps + 1):
        begin = time.perf_counter()
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=dtype == "bf16"):
            loss = model(tokens, targets)
        loss.backward()
        optimizer.step()
        seconds.append(time.perf_counter() - begin)
    return BATCH * CONTEXT / statistics.median(seconds[1:])


def warn_of_slow_products():
    a, b = torch.randn(512, 512), torch.randn(512, 512)
    seconds = []
    for _ in range(3):
        begin = time.perf_counter()
        a @ b
        seconds.append(time.perf_counter() - begin)
    rate = 2 * 512**3 / min(seconds) / 1e9
    if rate < 10:
        print(f"torch_train: f32 products reach {rate:.1f} GFLOP/s; install OpenBLAS first", file=sys.stderr)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=3, help="counted steps per precision")
    parser.add_argument("--threads", type=int, default=0, help="0: as many as PyTorch takes")
    arguments = parser.parse_args()
    if arguments.threads > 0:
        torch.set_num_threads(arguments.threads)
    warn_of_slow_products()
    for precision in ("f32", "bf16"):
        rate = tokens_per_second(precision, arguments.steps)
        print(
            json.dumps(
                {
                    "precision": precision,
                    "tokens_per_second": round(rate, 1),
                    "threads": torch.get_num_threads(),
                    "torch": torch.__version__,
                }
            ),
            flush=True,
        )


if __name__ == "__main__":
    main()
