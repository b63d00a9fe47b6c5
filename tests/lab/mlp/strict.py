"""Arrays of numpy that behave as CuPy's do: nothing mixes with arrays of the host; names of numpy work on both.

They stand in for a GPU in tests. What they cannot show is whether CuPy has every name, and how fast it is.
"""

from __future__ import annotations

import numpy as np

import mxnum as mx
from mxnum.lab.mlp import vector
from mxnum.lab.mlp.machine import Machine


class DeviceArray(np.ndarray):
    """An array that refuses arrays of the host, as operands and in assignments."""

    def __array_ufunc__(self, ufunc, method, *inputs, out=None, **keywords):
        refuse_host_arrays(inputs, out or ())
        if out is not None:
            keywords["out"] = bare(out)
        result = getattr(ufunc, method)(*bare(inputs), **keywords)
        return out[0] if out is not None else on_device(result)

    def __array_function__(self, function, types, arguments, keywords):
        refuse_host_arrays(arguments, keywords.values())
        return on_device(function(*bare(arguments), **keywords))

    def __setitem__(self, where, value):
        refuse_host_arrays([value])
        super().__setitem__(where, value)


def on_device(x):
    if isinstance(x, tuple):
        return tuple(map(on_device, x))
    return x.view(DeviceArray) if isinstance(x, np.ndarray) else x


def bare(x):
    if isinstance(x, (list, tuple)):
        return type(x)(map(bare, x))
    return x.view(np.ndarray) if isinstance(x, DeviceArray) else x


def refuse_host_arrays(*groups):
    for group in groups:
        for x in group:
            if isinstance(x, (list, tuple)):
                refuse_host_arrays(x)
            if isinstance(x, np.ndarray) and x.ndim and not isinstance(x, DeviceArray):
                raise TypeError("Unsupported type <class 'numpy.ndarray'>")


class Library:
    """What stands in for the module cupy."""

    @staticmethod
    def asarray(x):
        return on_device(np.array(x))

    @staticmethod
    def asnumpy(x):
        assert isinstance(x, DeviceArray)
        return np.array(x.view(np.ndarray))

    def __getattr__(self, name):
        function = getattr(np, name)

        def call(*arguments, **keywords):
            refuse_host_arrays(arguments, keywords.values())
            return on_device(function(*arguments, **keywords))

        return call


MACHINE = Machine(Library(), vector)


class Quantizer:
    """What stands in for mxnum: an array of the device in gives one of the device, and they do not mix."""

    def __getattr__(self, name):
        function = getattr(mx, name)

        def call(x, *arguments, **keywords):
            arrays = [k for k in ("out", "scales") if isinstance(keywords.get(k), np.ndarray)]
            assert all(isinstance(keywords[k], DeviceArray) == isinstance(x, DeviceArray) for k in arrays)
            if not isinstance(x, DeviceArray):
                return function(x, *arguments, **keywords)
            result = function(bare(x), *arguments, **(keywords | {k: bare(keywords[k]) for k in arrays}))
            if callable(result):
                return lambda: on_device(result())
            return keywords.get("out", on_device(result))

        return call
