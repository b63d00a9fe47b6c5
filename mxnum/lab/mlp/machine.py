"""Define the machines that can train a network: numpy with compiled loops, or PyTorch.

"amx" is a CPU with units for bfloat16 (Intel's AMX, reached through PyTorch). AMX units multiply
bfloat16 operands exactly, and the operands in all MX formats are bfloat16 numbers. AMX units add in
float32 as BLAS does, but in another order. A product by AMX units takes at most a third of the time
of BLAS, and products take most of the time of a step.

"avx512_bf16" is a CPU with AVX512-BF16 instructions (AMD's CPUs from Zen 4 on). PyTorch rounds
products by AVX512-BF16 to bfloat16. So the machine uses these instructions only if the network
rounds the product to bfloat16 anyway. Products by AVX512-BF16 take half of the time of BLAS.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np

from mxnum import errors
from mxnum.lab.torch_threads import one_thread
from mxnum.recipe import Operand

Array = Any
#: CPUs with special units or instructions for bfloat16 operands.
NARROW = ("amx", "avx512_bf16")
MACHINES = ("cpu", *NARROW, "torch", "cuda")
#: A function that writes left @ right to `out`; all three arguments are matrices or stacks of
#: matrices.
Product = Callable[[Array, Array, Array], Any]


@dataclass(frozen=True)
class Machine:
    """The processor and library that compute products."""

    #: Versions and devices that affect results and that `storage.environment` does not report.
    about: Mapping[str, str] = field(default_factory=dict)
    #: A faster product for bfloat16 operands, or None.
    narrow_product: Product | None = None
    #: True if `narrow_product` rounds its results to bfloat16, ties to even.
    rounds: bool = False
    #: The device on which PyTorch trains the network (module `by_torch`). None if the modules
    #: `model` and `kernels` train the network.
    device: str | None = None

    def product(self, *operands: Operand, bf16: int) -> Product:
        """Return `multiply(left, right, out)` for matrices quantized to the formats of `operands`.

        `bf16` (0, 1 or 2) says how the network rounds results; see `kernels`. The operands are
        exact in bfloat16, because an element of at most eight bits times a power of two is a
        bfloat16 number.
        """
        are_narrow = all(operand.format is not None for operand in operands)
        if self.narrow_product is not None and are_narrow and (bf16 == 1 or not self.rounds):
            return self.narrow_product
        return np.matmul


CPU = Machine()


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
        raise ValueError(
            "Products by AVX512-BF16 need a processor that has AVX512-BF16, and a version of torch that uses it."
        )

    def multiply(left: Any, right: Any, out: Any) -> None:
        for index in np.ndindex(*out.shape[:-2]):  # one call per matrix is faster than one call for all matrices
            out[index] = torch.mm(left[index].bfloat16(), right[index].bfloat16())

    return _by_torch(multiply, rounds=True)


def _by_torch(multiply: Callable[[Any, Any, Any], Any], rounds: bool = False) -> Machine:
    """Return a CPU machine on which PyTorch multiplies bfloat16 operands with one thread."""
    import torch

    def product(left: Array, right: Array, out: Array) -> None:
        with one_thread():
            multiply(*map(torch.from_numpy, (left, right, out)))

    return Machine({"products": f"bfloat16 by torch {torch.__version__}"}, product, rounds)


def machine(name: str) -> Machine:
    """Return the machine called `name`; raise an error if this process cannot use the machine."""
    if errors.choose("machine", name, MACHINES) == "cpu":
        return CPU
    if name in NARROW:
        return _amx() if name == "amx" else _avx512_bf16()
    torch = errors.package("torch", "torch")
    if name == "torch":
        return Machine({"torch": torch.__version__}, device="cpu")
    if not torch.cuda.is_available():
        raise errors.no_driver("PyTorch finds no GPU")
    return Machine({"torch": torch.__version__, "gpu": torch.cuda.get_device_name()}, device="cuda")


def check(name: str, here: bool = True) -> None:
    """Raise an error if the machine is unknown.

    If `here` is True, also raise an error if this process cannot use the machine.
    """
    if errors.choose("machine", name, MACHINES) != "cpu" and here:
        machine(name)
