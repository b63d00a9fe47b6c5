"""Where a network is trained: numpy and compiled loops on the CPU, or CuPy on a GPU; the rest is the same code.

"amx" is a CPU whose units for bfloat16 (Intel's AMX, reached through PyTorch) do the products of operands that
bfloat16 holds exactly, as it does those of all MX formats; sums are in float32 as BLAS has them, in another order.
Such a product takes a third of the time or less, and products are most of a step. "avx512_bf16" is a CPU with the
instructions of that name (AMD's from Zen 4 on). PyTorch gives their results in bfloat16 alone, so it does the products
whose results the network rounds to bfloat16 anyway, in half of the time.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from types import ModuleType
from typing import Any

import numpy as np

from mxnum import errors
from mxnum.lab.mlp import kernels, vector
from mxnum.recipe import Operand

Array = Any
#: CPUs with products of their own for operands that bfloat16 holds.
NARROW = ("amx", "avx512_bf16")
MACHINES = ("cpu", *NARROW, "cuda")
#: As (left, right, out), matrices or stacks of them.
Product = Callable[[Array, Array, Array], Any]


@dataclass(frozen=True)
class Machine:
    """A library of arrays that numpy's names work in, and the vector operations for its arrays."""

    xp: Any
    kernels: ModuleType
    #: What results depend on besides the host.
    about: Mapping[str, str] = field(default_factory=dict)
    #: Products of operands that bfloat16 holds, where the machine has something faster for them.
    narrow_product: Product | None = None
    #: Whether those come rounded to bfloat16, ties to even.
    rounds: bool = False

    def to(self, array: Array) -> Array:
        """A numpy array where the network is; on the CPU the array itself."""
        return array if self.xp is np else self.xp.asarray(array)

    def host(self, array: Array) -> Array:
        """The inverse of `to`."""
        return array if self.xp is np else self.xp.asnumpy(array)

    def product(self, *operands: Operand, bf16: int) -> Product:
        """How matrices are multiplied that were quantized as these operands are; `bf16` is what becomes of the result.

        Elements of at most eight bits times a power of two are bfloat16 numbers.
        """
        are_narrow = all(operand.format is not None for operand in operands)
        if self.narrow_product is not None and are_narrow and (bf16 == 1 or not self.rounds):
            return self.narrow_product
        return self._product

    def _product(self, left: Array, right: Array, out: Array) -> None:
        self.xp.matmul(left, right, out=out)


CPU = Machine(np, kernels)


@cache
def _amx() -> Machine:
    errors.package("torch", "torch")
    from mxnum.torch import amx

    amx.check()
    return _by_torch(amx.multiply)


@cache
def _avx512_bf16() -> Machine:
    torch = errors.package("torch", "torch")
    ask = getattr(torch.cpu, "_is_avx512_bf16_supported", None)
    if ask is None or not ask():
        raise ValueError("Products by AVX512-BF16 need a processor that has it, and a torch that knows of it.")

    def multiply(left: Any, right: Any, out: Any) -> None:
        for index in np.ndindex(*out.shape[:-2]):  # stacks of matrices take their time there
            out[index] = torch.mm(left[index].bfloat16(), right[index].bfloat16())

    return _by_torch(multiply, rounds=True)


def _by_torch(multiply: Callable[[Any, Any, Any], Any], rounds: bool = False) -> Machine:
    """A CPU on which PyTorch multiplies operands that bfloat16 holds, on one thread, as BLAS has here."""
    import torch

    def product(left: Array, right: Array, out: Array) -> None:
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            multiply(*map(torch.from_numpy, (left, right, out)))
        finally:
            torch.set_num_threads(threads)

    return Machine(np, kernels, {"products": f"bfloat16 by torch {torch.__version__}"}, product, rounds)


def machine(name: str) -> Machine:
    """The CPU, one with units or instructions for bfloat16, or the current GPU by CuPy."""
    if errors.choose("machine", name, MACHINES) == "cpu":
        return CPU
    if name in NARROW:
        return _amx() if name == "amx" else _avx512_bf16()
    try:
        import cupy
    except ImportError:
        raise errors.needs_extra("Experiments on a GPU", "CuPy", "cuda") from None
    try:
        found = cupy.cuda.runtime.getDeviceCount()
    except cupy.cuda.runtime.CUDARuntimeError as problem:
        raise errors.no_driver(problem) from None
    if not found:
        raise errors.no_driver("no GPU was found")
    gpu = cupy.cuda.runtime.getDeviceProperties(cupy.cuda.Device().id)["name"].decode()
    return Machine(cupy, vector, {"gpu": gpu, "cupy": cupy.__version__})


def check(name: str, here: bool = True) -> None:
    """An error unless there is such a machine: of that name, and with `here` one that this process can use."""
    if errors.choose("machine", name, MACHINES) != "cpu" and here:
        machine(name)


def library(x: Array) -> Any:
    """The library that an array belongs to: numpy, or CuPy."""
    name = type(x).__module__.partition(".")[0]
    return sys.modules[name] if name == "cupy" else np
