"""MX arrays, and the checks of arguments that are arrays or describe their layout.

- `mx_array` defines `MXArray`: codes or packed bytes, with scales, format and blocks.
- `views` makes views of the parts of an `MXArray`, in host memory or on a GPU.
- `arguments` has the checks that all public operations share.
- `unit_operands` makes the operands of matrix units.
"""

from mxnum.array.mx_array import MXArray

__all__ = ["MXArray"]
