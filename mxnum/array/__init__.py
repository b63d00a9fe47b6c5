"""MX arrays, and the checks of arguments that are arrays or describe their layout.

- `mx_array`: `MXArray`, codes or packed bytes with their scales, format and blocks;
- `views`: views of its parts, wherever they live;
- `arguments`: checks that all public operations share;
- `unit_operands`: the operands of matrix units.
"""

from mxnum.array.mx_array import MXArray

__all__ = ["MXArray"]
