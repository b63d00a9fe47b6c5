"""The tables of the standards, typed in as literals.

The elements are those of OCP Microscaling v1.0, section 5, and of OFP8 v1.0, and the extensions
e3m0 and int4. The float types are those of IEEE 754 and bfloat16. The tables do not use
`mxnum.formats`, so a theorem fails if a field of a format is wrong there.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction


@dataclass(frozen=True)
class Element:
    """An MX element: all its magnitudes, in the order of codes, in units of the smallest step."""

    name: str
    bits: int
    #: `mantissa` is the number of stored fraction bits. `emin` is the exponent of the smallest
    #: normal number, and 0 for integer formats.
    mantissa: int
    emin: int
    #: Exponent of the largest value.
    emax: int
    #: The value of magnitude code c is magnitudes[c] * 2**unit.
    unit: int
    magnitudes: tuple[int, ...]
    infinity: int | None = None
    nan: int | None = None
    twos_complement: bool = False

    @property
    def last(self) -> int:
        """The magnitude code of the largest finite value."""
        return len(self.magnitudes) - 1

    def value(self, magnitude_code: int) -> Fraction:
        """Return the value of a magnitude code."""
        return self.magnitudes[magnitude_code] * Fraction(2) ** self.unit


@dataclass(frozen=True)
class Float:
    """An IEEE 754 interchange format (bfloat16 included): sign, exponent field, fraction."""

    name: str
    bits: int
    exponent_bits: int
    #: Bits of the significand, including the hidden bit.
    precision: int
    emin: int
    infinity: int
    #: The pattern of the NaN that conversions write.
    nan: int

    @property
    def last(self) -> int:
        """The pattern of the largest finite value."""
        return self.infinity - 1


FLOATS = {
    "float64": Float("float64", 64, 11, 53, -1022, 0x7FF0_0000_0000_0000, 0x7FF8_0000_0000_0000),
    "float32": Float("float32", 32, 8, 24, -126, 0x7F80_0000, 0x7FC0_0000),
    "bfloat16": Float("bfloat16", 16, 8, 8, -126, 0x7F80, 0x7FC0),
    "float16": Float("float16", 16, 5, 11, -14, 0x7C00, 0x7E00),
}

# fmt: off
E4M3 = Element("e4m3", bits=8, mantissa=3, emin=-6, emax=8, unit=-9, nan=0x7F, magnitudes=(
    0, 1, 2, 3, 4, 5, 6, 7,
    8, 9, 10, 11, 12, 13, 14, 15,
    16, 18, 20, 22, 24, 26, 28, 30,
    32, 36, 40, 44, 48, 52, 56, 60,
    64, 72, 80, 88, 96, 104, 112, 120,
    128, 144, 160, 176, 192, 208, 224, 240,
    256, 288, 320, 352, 384, 416, 448, 480,
    512, 576, 640, 704, 768, 832, 896, 960,
    1024, 1152, 1280, 1408, 1536, 1664, 1792, 1920,
    2048, 2304, 2560, 2816, 3072, 3328, 3584, 3840,
    4096, 4608, 5120, 5632, 6144, 6656, 7168, 7680,
    8192, 9216, 10240, 11264, 12288, 13312, 14336, 15360,
    16384, 18432, 20480, 22528, 24576, 26624, 28672, 30720,
    32768, 36864, 40960, 45056, 49152, 53248, 57344, 61440,
    65536, 73728, 81920, 90112, 98304, 106496, 114688, 122880,
    131072, 147456, 163840, 180224, 196608, 212992, 229376,
))
E5M2 = Element("e5m2", bits=8, mantissa=2, emin=-14, emax=15, unit=-16, infinity=0x7C, nan=0x7F, magnitudes=(
    0, 1, 2, 3,
    4, 5, 6, 7,
    8, 10, 12, 14,
    16, 20, 24, 28,
    32, 40, 48, 56,
    64, 80, 96, 112,
    128, 160, 192, 224,
    256, 320, 384, 448,
    512, 640, 768, 896,
    1024, 1280, 1536, 1792,
    2048, 2560, 3072, 3584,
    4096, 5120, 6144, 7168,
    8192, 10240, 12288, 14336,
    16384, 20480, 24576, 28672,
    32768, 40960, 49152, 57344,
    65536, 81920, 98304, 114688,
    131072, 163840, 196608, 229376,
    262144, 327680, 393216, 458752,
    524288, 655360, 786432, 917504,
    1048576, 1310720, 1572864, 1835008,
    2097152, 2621440, 3145728, 3670016,
    4194304, 5242880, 6291456, 7340032,
    8388608, 10485760, 12582912, 14680064,
    16777216, 20971520, 25165824, 29360128,
    33554432, 41943040, 50331648, 58720256,
    67108864, 83886080, 100663296, 117440512,
    134217728, 167772160, 201326592, 234881024,
    268435456, 335544320, 402653184, 469762048,
    536870912, 671088640, 805306368, 939524096,
    1073741824, 1342177280, 1610612736, 1879048192,
    2147483648, 2684354560, 3221225472, 3758096384,
))
E3M2 = Element("e3m2", bits=6, mantissa=2, emin=-2, emax=4, unit=-4, magnitudes=(
    0, 1, 2, 3,
    4, 5, 6, 7,
    8, 10, 12, 14,
    16, 20, 24, 28,
    32, 40, 48, 56,
    64, 80, 96, 112,
    128, 160, 192, 224,
    256, 320, 384, 448,
))
E2M3 = Element("e2m3", bits=6, mantissa=3, emin=0, emax=2, unit=-3, magnitudes=(
    0, 1, 2, 3, 4, 5, 6, 7,
    8, 9, 10, 11, 12, 13, 14, 15,
    16, 18, 20, 22, 24, 26, 28, 30,
    32, 36, 40, 44, 48, 52, 56, 60,
))
E2M1 = Element("e2m1", bits=4, mantissa=1, emin=0, emax=2, unit=-1, magnitudes=(0, 1, 2, 3, 4, 6, 8, 12))
E3M0 = Element("e3m0", bits=4, mantissa=0, emin=-2, emax=4, unit=-2, magnitudes=(0, 1, 2, 4, 8, 16, 32, 64))
INT8 = Element("int8", bits=8, mantissa=6, emin=0, emax=0, unit=-6, twos_complement=True, magnitudes=(
    0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15,
    16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31,
    32, 33, 34, 35, 36, 37, 38, 39, 40, 41, 42, 43, 44, 45, 46, 47,
    48, 49, 50, 51, 52, 53, 54, 55, 56, 57, 58, 59, 60, 61, 62, 63,
    64, 65, 66, 67, 68, 69, 70, 71, 72, 73, 74, 75, 76, 77, 78, 79,
    80, 81, 82, 83, 84, 85, 86, 87, 88, 89, 90, 91, 92, 93, 94, 95,
    96, 97, 98, 99, 100, 101, 102, 103, 104, 105, 106, 107, 108, 109, 110, 111,
    112, 113, 114, 115, 116, 117, 118, 119, 120, 121, 122, 123, 124, 125, 126, 127,
))
INT4 = Element("int4", bits=4, mantissa=2, emin=0, emax=0, unit=-2, twos_complement=True, magnitudes=(
    0, 1, 2, 3, 4, 5, 6, 7,
))
#: The format of UE5M3 scales, as an `Element`. The ninth bit is the sign bit of an `Element`,
#: because scales have only eight bits and no sign.
E5M3 = Element("ue5m3", bits=9, mantissa=3, emin=-14, emax=16, unit=-17, nan=0xFF, magnitudes=(
    *range(16), *(m << k for k in range(1, 30) for m in range(8, 16)), *(m << 30 for m in range(8, 15)),
))
# fmt: on

ELEMENTS = {element.name: element for element in (E4M3, E5M2, E3M2, E2M3, E2M1, INT8, E3M0, INT4)}

#: An E8M0 code means 2**(code - 127); the last code is NaN.
SCALE_BIAS = 127
SCALE_NAN = 0xFF
#: The default number of random bits for each stochastic rounding.
RANDOM_BITS = 30

#: The significand of each element's largest value. Under the scale rule `floor`, amax / scale
#: exceeds the largest value iff the significand of amax exceeds this significand (OCP MX v1.0,
#: section 6.3).
LARGEST_SIGNIFICAND = {
    "e4m3": Fraction(7, 4),
    "e5m2": Fraction(7, 4),
    "e3m2": Fraction(7, 4),
    "e2m3": Fraction(15, 8),
    "e2m1": Fraction(3, 2),
    "int8": Fraction(127, 64),
    "e3m0": Fraction(1),
    "int4": Fraction(7, 4),
}

#: The scale rule `even` adds one to the exponent of `floor` iff the significand of the largest
#: magnitude is at least this number: 2 - 2**-(m+1) for m mantissa bits.
EVEN_BUMP = {
    "e4m3": Fraction(31, 16),
    "e5m2": Fraction(15, 8),
    "e3m2": Fraction(15, 8),
    "e2m3": Fraction(31, 16),
    "e2m1": Fraction(7, 4),
    "int8": Fraction(255, 128),
    "e3m0": Fraction(3, 2),
    "int4": Fraction(15, 8),
}

#: For every element, the scale rule `half_up` adds one to the exponent of `floor` iff the
#: significand of the largest magnitude is at least this number.
HALF_UP_BUMP = Fraction(7, 4)
