"""One of several processes that train the same emulated model; `test_distributed` starts them.

python worker.py how folder rank count
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from torch import nn

import mxnum.torch as mxt
from mxnum.recipe import Recipe

STOCHASTIC = {"format": "mxfp4_e2m1", "rounding": "sr"}
#: Weights by random bits, which all processes share, and samples by none: any number of processes gives the same.
RECIPE = Recipe.uniform("mxfp4_e2m1").but(weights=STOCHASTIC, weights_backward=STOCHASTIC)


def model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(32, 64), nn.LayerNorm(64), nn.ReLU(), nn.Linear(64, 32))


def train(net, part, count, steps=3):
    """Losses of a part of each batch of 64 samples."""
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    for step in range(steps):
        x = torch.randn(64, 32, generator=torch.Generator().manual_seed(step))
        x = x.chunk(count)[part]
        optimizer.zero_grad()
        (net(x) - x.flip(1)).square().mean().backward()
        optimizer.step()


def main(how, folder, rank, count):
    """Train as `how` says, and store the parameters."""
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=count)
    net = model()
    mxt.emulate(net, RECIPE, seed=5, worker=rank)
    if how == "ddp":
        train(nn.parallel.DistributedDataParallel(net), rank, count)
        state = net.state_dict()
    else:
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        mesh = init_device_mesh("cpu", (count,))
        for part in (net[0], net[3], net):
            fully_shard(part, mesh=mesh)
        train(net, rank, count)
        state = {name: value.full_tensor() for name, value in net.state_dict().items()}
    torch.save(state, Path(folder) / f"{rank}.pt")
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
