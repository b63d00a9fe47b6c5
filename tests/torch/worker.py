"""Train an emulated model as one of several processes, which `test_distributed` starts.

Usage: python worker.py HOW FOLDER RANK COUNT
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from torch import nn

import mxnum.torch as mxt
from mxnum.recipe import Recipe

#: The recipe rounds every operand stochastically. Products of E2M1 numbers are small multiples of
#: powers of two, and their float32 sums in this model are exact. Exact sums do not depend on the
#: order of addition, so any number of processes must give the same result.
RECIPE = Recipe.uniform("mxfp4_e2m1", rounding="sr", layer_norm="float32")
#: The value of `accumulate` in each test case that trains: None, or the name of a matrix unit.
SUMS = {"ddp": None, "fsdp": None, "ddp, matrix unit": "blackwell_mxfp8"}


def model():
    torch.manual_seed(0)
    norm = nn.LayerNorm(64, elementwise_affine=False)
    return nn.Sequential(nn.Linear(32, 64, bias=False), norm, nn.ReLU(), nn.Linear(64, 32, bias=False))


def head():
    """Return a last layer of 33 rows, which two processes cannot share evenly.

    Sums of the layer's rows are exact in any order.
    """
    net = nn.Sequential(nn.Linear(16, 33))
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.copy_(torch.randint(-40, 60, parameter.shape, generator=torch.Generator().manual_seed(1)) / 64)
    return net


def train(net, part, count, steps=4):
    """Train with one part of each batch of 64 samples, and return the outputs of the last step."""
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    for step in range(steps):
        x = torch.randn(64, 32, generator=torch.Generator().manual_seed(step))
        x = x.chunk(count)[part]
        optimizer.zero_grad()
        y = net(x)
        (y - x.flip(1)).square().mean().backward()
        optimizer.step()
    return y.detach()


def main(how, folder, rank, count):
    """Run the test case `how`, and store the outputs and parameters."""
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=count)
    net = head() if how == "center" else model()
    if how != "center":
        mxt.emulate(net, RECIPE, accumulate=SUMS[how], seed=5)
    if how.startswith("ddp"):
        y = train(nn.parallel.DistributedDataParallel(net), rank, count)
        state = net.state_dict()
    else:
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        mesh = init_device_mesh("cpu", (count,))
        for part in (*(each for each in net if isinstance(each, nn.Linear)), net):
            fully_shard(part, mesh=mesh)
        if how == "center":
            mxt.center_output_weights(net, "0", vocabulary=32)
            y = net[0].weight.to_local()
        else:
            y = train(net, rank, count)
        state = {name: value.full_tensor() for name, value in net.state_dict().items()}
    torch.save([y, state], Path(folder) / f"{rank}.pt")
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
