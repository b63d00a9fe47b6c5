"""MX arrays, and the checks of every argument that is an array or says how one is laid out.

- `mx_array`: `MXArray`, codes or packed bytes with their scales, format and blocks;
- `views`: views of its parts, wherever they live;
- `arguments`: checks that all public operations share.
"""

from mxnum.array.mx_array import MXArray

__all__ = ["MXArray"]
