"""Compute the vector operations of the network and the optimizers, in loops compiled by numba.

Every array is C-contiguous float32. A network holds several independent runs ("a stack"):
activations have the shape (runs, samples, features), and parameters have a leading axis of runs.
The results of a run have the same bits whether the run is trained alone or in a stack. Sums use
sixteen lanes that are added in a fixed order, and no loop is compiled with `fastmath`. So the bits
of results depend neither on the number of threads nor on the machine's vector width.

`bf16` is 0 if results stay float32. If results are rounded to bfloat16, `bf16` is 1 for ties to
even and 2 for ties away from zero.
"""

from __future__ import annotations

import numpy as np
from numba import njit

_F = np.float32
_LANES = 16
_jit = njit(cache=True, nogil=True, boundscheck=False, error_model="numpy")
_inline = njit(cache=True, nogil=True, boundscheck=False, error_model="numpy", forceinline=True)

#: Taylor coefficients ln(2)^k / k! of exp(f ln 2) on [-1/2, 1/2]; the relative error is below
#: 2^-22.
_P = tuple(_F(np.log(2.0) ** k / np.prod(np.arange(1.0, k + 1))) for k in range(8))
_P0, _P1, _P2, _P3, _P4, _P5, _P6, _P7 = _P
_LOG2_E = _F(1.4426950408889634)
_ONE, _HALF, _ZERO = _F(1), _F(0.5), _F(0)
#: Coefficients of the tanh form of GELU: x sigmoid(2 sqrt(2/pi) (x + 0.044715 x^3)).
_GELU_1, _GELU_3 = _F(2 * np.sqrt(2 / np.pi)), _F(2 * np.sqrt(2 / np.pi) * 0.044715)
_SQRT_HALF, _NORMAL = _F(np.sqrt(0.5)), _F(1 / np.sqrt(2 * np.pi))
#: Coefficients of formula 7.1.26 of Abramowitz and Stegun for erfc(a) exp(a^2); the absolute error
#: of erf is below 1.5e-7.
_E0 = _F(0.3275911)
_E1, _E2, _E3, _E4, _E5 = _F(0.254829592), _F(-0.284496736), _F(1.421413741), _F(-1.453152027), _F(1.061405429)


@_inline
def _rounded(bits, bf16):
    """Return a float32's bits rounded to bfloat16.

    A NaN stays NaN, because the function sets the quiet bit, which is among the upper 16 bits.
    """
    odd = np.int32((bits >> np.int32(16)) & np.int32(1)) if bf16 == 1 else np.int32(1)
    number = np.int32((bits + np.int32(0x7FFF) + odd) & np.int32(-65536))
    nan = np.int32(bits | np.int32(0x00400000)) & np.int32(-65536)
    is_nan = np.int32(bits & np.int32(0x7FFFFFFF)) > np.int32(0x7F800000)
    return bits if bf16 == 0 else (nan if is_nan else number)


@_jit
def round_bf16(x, out, bf16):
    """Round x to bfloat16 and write the result to `out`; both are flat arrays, viewed as int32."""
    for i in range(x.size):
        out[i] = _rounded(x[i], bf16)


@_jit
def largest_of_blocks(bits, largest):
    """Find the largest magnitude over all blocks, for each row and each position in a block.

    `bits` has the shape (rows, blocks, positions). The function writes the bits of the largest
    magnitudes to `largest`. NaN counts as the largest magnitude.
    """
    for row in range(bits.shape[0]):
        found = largest[row]
        found[:] = 0
        for block in range(bits.shape[1]):
            here = bits[row, block]
            for i in range(here.size):
                found[i] = max(found[i], np.int32(here[i] & np.int32(0x7FFFFFFF)))


@_jit
def take_where(x, other, where):
    """Copy elements of `other` to x, at the positions at which `where` is True.

    x and `other` have the shape (rows, blocks, positions in a block), and `where` has the shape
    (rows, positions in a block).
    """
    for row in range(x.shape[0]):
        chosen = where[row]
        for block in range(x.shape[1]):
            here, there = x[row, block], other[row, block]
            for i in range(here.size):
                here[i] = there[i] if chosen[i] else here[i]


@_inline
def round_in_place(x, bf16):
    """Round the flat array x to bfloat16 in place; leave x unchanged if `bf16` is 0.

    `round_bf16` with one array as both arguments would be slower, because the compiler adds checks
    for overlap.
    """
    if bf16 != 0:
        bits = x.view(np.int32)
        for i in range(x.size):
            bits[i] = _rounded(bits[i], bf16)


@_jit
def add_rounded_bias(x, bias, stream, bf16):
    """Add round(round(x) + bias) to the float32 residual `stream`.

    x is the second product of a layer, and `bias` is the bias of this layer.
    """
    runs, samples, features = x.shape
    row = np.empty(features, np.float32)
    for s in range(runs):
        for b in range(samples):
            source, target, c = x[s, b], stream[s, b], bias[s]
            for j in range(features):
                row[j] = source[j]
            round_in_place(row, bf16)
            for j in range(features):
                row[j] += c[j]
            round_in_place(row, bf16)
            for j in range(features):
                target[j] += row[j]


@_inline
def _sum_lanes(row, lanes):
    for j in range(_LANES):
        lanes[j] = _ZERO
    whole = row.size // _LANES * _LANES
    for start in range(0, whole, _LANES):
        for j in range(_LANES):
            lanes[j] += row[start + j]
    for j in range(whole, row.size):
        lanes[j - whole] += row[j]
    step = _LANES // 2
    while step > 0:
        for j in range(step):
            lanes[j] += lanes[j + step]
        step //= 2
    return lanes[0]


@_jit
def layer_norm(x, gamma, beta, normalized, inverse_deviation, out, epsilon, bf16):
    """Write the layer norm of x to `out`; both x and the result are rounded to bfloat16.

    For the backward pass, the function also stores the normalized x and the inverse deviation.
    """
    runs, samples, features = x.shape
    count = _F(features)
    row, square, lanes = np.empty(features, np.float32), np.empty(features, np.float32), np.empty(_LANES, np.float32)
    for s in range(runs):
        g, c = gamma[s], beta[s]
        for b in range(samples):
            source, unit, target = x[s, b], normalized[s, b], out[s, b]
            for j in range(features):
                row[j] = source[j]
            round_in_place(row, bf16)
            mean = _sum_lanes(row, lanes) / count
            for j in range(features):
                row[j] -= mean
                square[j] = row[j] * row[j]
            inverse = _ONE / np.sqrt(_sum_lanes(square, lanes) / count + epsilon)
            inverse_deviation[s, b] = inverse
            for j in range(features):
                unit[j] = row[j] * inverse
                row[j] = unit[j] * g[j] + c[j]
            round_in_place(row, bf16)
            for j in range(features):
                target[j] = row[j]


@_jit
def layer_norm_backward(d_out, normalized, inverse_deviation, gamma, d_gamma, d_beta, d_stream, bf16):
    """Write d_gamma and d_beta, and add the input's gradient to d_stream.

    The function rounds a copy of d_out to bfloat16, and leaves d_out itself unchanged.
    """
    runs, samples, features = d_out.shape
    count = _F(features)
    row, product, lanes = np.empty(features, np.float32), np.empty(features, np.float32), np.empty(_LANES, np.float32)
    for s in range(runs):
        g, dg, db = gamma[s], d_gamma[s], d_beta[s]
        for j in range(features):
            dg[j] = _ZERO
            db[j] = _ZERO
        for b in range(samples):
            source, unit, target, inverse = d_out[s, b], normalized[s, b], d_stream[s, b], inverse_deviation[s, b]
            for j in range(features):
                row[j] = source[j]
            round_in_place(row, bf16)
            for j in range(features):
                dg[j] += row[j] * unit[j]
                db[j] += row[j]
                row[j] *= g[j]
                product[j] = row[j] * unit[j]
            mean, along = _sum_lanes(row, lanes) / count, _sum_lanes(product, lanes) / count
            for j in range(features):
                target[j] += inverse * (row[j] - mean - unit[j] * along)


@_inline
def _exp_bits(z):
    """Return exp(z) as two factors: a float near 1, and a power of two as float32 bits.

    z is first clipped to [-80, 80].
    """
    z = min(max(z, _F(-80)), _F(80)) * _LOG2_E
    whole = np.floor(z + _HALF)
    f = z - whole
    p = ((((((_P7 * f + _P6) * f + _P5) * f + _P4) * f + _P3) * f + _P2) * f + _P1) * f + _P0
    return p, (np.int32(whole) + np.int32(127)) << np.int32(23)


_PIECE = 512


@_jit
def relu(u, out, bf16):
    """Round u in place, then write max(u, 0) to `out`; all arrays are flat."""
    round_in_place(u, bf16)
    for i in range(u.size):
        out[i] = max(u[i], _ZERO)


@_jit
def relu_backward(u, d_out, d_in, bf16):
    """Round d_out in place, then write to d_in: d_out where u > 0, and 0 elsewhere."""
    round_in_place(d_out, bf16)
    for i in range(u.size):
        d_in[i] = d_out[i] if u[i] > _ZERO else _ZERO


@_jit
def gelu_tanh(u, slope, out, bf16):
    """Round u in place, then write GELU (tanh form) to `out` and its derivative to `slope`."""
    p, e = np.empty(_PIECE, np.float32), np.empty(_PIECE, np.int32)
    scale = e.view(np.float32)
    for start in range(0, u.size, _PIECE):
        stop = min(start + _PIECE, u.size)
        x, d, o, n = u[start:stop], slope[start:stop], out[start:stop], stop - start
        round_in_place(x, bf16)
        for i in range(n):
            p[i], e[i] = _exp_bits(-(x[i] * (_GELU_1 + _GELU_3 * x[i] * x[i])))
        for i in range(n):
            q = _ONE / (_ONE + p[i] * scale[i])
            o[i] = x[i] * q
            d[i] = q + x[i] * q * (_ONE - q) * (_GELU_1 + _F(3) * _GELU_3 * x[i] * x[i])
        round_in_place(o, bf16)


@_jit
def gelu_exact(u, slope, out, bf16):
    """Round u in place, then write u Phi(u) to `out` and its derivative to `slope`.

    The absolute error of the error function is below 1.5e-7.
    """
    p, e = np.empty(_PIECE, np.float32), np.empty(_PIECE, np.int32)
    scale = e.view(np.float32)
    for start in range(0, u.size, _PIECE):
        stop = min(start + _PIECE, u.size)
        x, d, o, n = u[start:stop], slope[start:stop], out[start:stop], stop - start
        round_in_place(x, bf16)
        for i in range(n):
            p[i], e[i] = _exp_bits(-_HALF * x[i] * x[i])
        for i in range(n):
            density = p[i] * scale[i]
            t = _ONE / (_ONE + _E0 * _SQRT_HALF * abs(x[i]))
            upper = _HALF * density * t * (_E1 + t * (_E2 + t * (_E3 + t * (_E4 + t * _E5))))
            phi = _ONE - upper if x[i] >= _ZERO else upper
            o[i] = x[i] * phi
            d[i] = phi + x[i] * density * _NORMAL
        round_in_place(o, bf16)


@_jit
def scaled_backward(slope, d_out, d_in, bf16):
    """Round d_out in place, then write d_out * slope, rounded, to d_in."""
    round_in_place(d_out, bf16)
    for i in range(slope.size):
        d_in[i] = d_out[i] * slope[i]
    round_in_place(d_in, bf16)


@_jit
def swiglu(u, sigmoid, out, bf16):
    """Round u in place, then write a * b * sigmoid(b) to `out`; each row of u holds a, then b."""
    rows, hidden = out.shape
    p, e = np.empty(hidden, np.float32), np.empty(hidden, np.int32)
    scale = e.view(np.float32)
    for r in range(rows):
        a, b, q, o = u[r, :hidden], u[r, hidden:], sigmoid[r], out[r]
        round_in_place(u[r], bf16)
        for i in range(hidden):
            p[i], e[i] = _exp_bits(-b[i])
        for i in range(hidden):
            q[i] = _ONE / (_ONE + p[i] * scale[i])
            o[i] = a[i] * b[i] * q[i]
        round_in_place(o, bf16)


@_jit
def swiglu_backward(u, sigmoid, d_out, d_in, bf16):
    """Round d_out in place, then write the gradient of u to d_in; each row of u holds a, then b."""
    rows, hidden = d_out.shape
    for r in range(rows):
        a, b, q, d = u[r, :hidden], u[r, hidden:], sigmoid[r], d_out[r]
        da, db = d_in[r, :hidden], d_in[r, hidden:]
        round_in_place(d, bf16)
        for i in range(hidden):
            da[i] = d[i] * b[i] * q[i]
            db[i] = d[i] * a[i] * q[i] * (_ONE + b[i] * (_ONE - q[i]))
        round_in_place(d_in[r], bf16)


@_jit
def residual_gradient(prediction, target, loss, d_prediction):
    """Write each run's mean squared error to `loss`, and its gradient to `d_prediction`."""
    runs, samples, features = prediction.shape
    factor = _F(2.0 / (samples * features))
    row, lanes = np.empty(features, np.float32), np.empty(_LANES, np.float32)
    for s in range(runs):
        total = 0.0
        for b in range(samples):
            p, t, d = prediction[s, b], target[s, b], d_prediction[s, b]
            for j in range(features):
                difference = p[j] - t[j]
                row[j] = difference * difference
                d[j] = difference * factor
            total += np.float64(_sum_lanes(row, lanes))
        loss[s] = total / (samples * features)


@_jit
def round_and_sum(x, out, total, bf16):
    """Write x, rounded, to `out`, and the sums of `out` over the samples of each run to `total`."""
    runs, samples, features = x.shape
    for s in range(runs):
        sums = total[s]
        for j in range(features):
            sums[j] = _ZERO
        for b in range(samples):
            round_bf16(x[s, b].view(np.int32), out[s, b].view(np.int32), bf16)
            target = out[s, b]
            for j in range(features):
                sums[j] += target[j]


@_jit
def adam(parameter, gradient, moments, rate, betas, corrections, epsilon):
    """Apply one step of Adam (Kingma and Ba, algorithm 1) to flat arrays, in place.

    `moments`, `betas` and `corrections` are pairs, with an entry for the first moment and an entry
    for the second moment.
    """
    (first, second), (beta1, beta2), (correction1, correction2) = moments, betas, corrections
    for i in range(parameter.size):
        g = gradient[i]
        first[i] = beta1 * first[i] + (_ONE - beta1) * g
        second[i] = beta2 * second[i] + (_ONE - beta2) * g * g
        parameter[i] -= rate * (first[i] / correction1) / (np.sqrt(second[i] / correction2) + epsilon)


@_jit
def sgd(parameter, gradient, velocity, rate, momentum):
    """Apply one step of gradient descent with heavy-ball momentum to flat arrays, in place."""
    for i in range(parameter.size):
        velocity[i] = momentum * velocity[i] + gradient[i]
        parameter[i] -= rate * velocity[i]
