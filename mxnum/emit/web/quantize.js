// Blocks, made of the emitted functions. A number is given by its float32 bits, as a signed integer.

const FORMAT = Object.fromEntries(FORMATS.map((format) => [format.name, format]));
const TENSOR_ONE = 0x3f800000;

/** The fields of a number as {sign, kind, value}: kind is 0 (finite), 1 (infinite) or 2 (NaN). */
function unpacked([sign, exponent, significand, kind], width) {
  const n = BigInt(significand);
  return {sign, kind, value: {n: sign ? -n : n, e: n ? exponent - width : 0}};
}
function floatValue(bits) { return unpacked(SHARED.unpackFloat(bits), 23); }
function elementValue(format, code) { return unpacked(format.unpack(code), format.element.mantissaBits); }
function scaleValue(format, code) {
  if (!format.power) return unpacked(format.unpackScale(code), format.scaleNumber.mantissaBits);
  return {sign: 0, kind: code === format.scaleNaN ? 2 : 0, value: {n: 1n, e: code - format.bias}};
}
function magnitudes(format) {
  if (!format.grid) {
    format.grid = Array.from({length: format.element.maxCode + 1}, (_, code) => elementValue(format, code).value);
  }
  return format.grid;
}

/** The bits of the largest finite magnitude, and 1 if all numbers are finite, else 0. */
function largest(bits) {
  let amax = 0, finite = 1;
  for (const x of bits) { amax = SHARED.larger(amax, x); finite &= SHARED.isFinite(x); }
  return [amax, finite];
}
function tensorOf(format, bits, given) {
  if (!format.hasTensor) return TENSOR_ONE;
  return given === null ? format.tensorScale(largest(bits)[0]) : given;
}
function encoder(format, rounding, overflow) {
  return (format.encode[overflow] || format.encode.saturate)[rounding];
}

/** The scale code that a rule finds for a block. */
function findScale(format, rule, bits, tensor, nonfinite) {
  const [amax, finite] = largest(bits);
  if (!finite && nonfinite === "block") return format.scaleNaN;
  const {candidates, power} = format.findScale[rule];
  const codes = candidates.map((find) => find(amax, tensor));
  if (codes.length === 1) return codes[0];
  const [six, four] = codes.map((code) => sumOfErrors(format, bits, code, tensor, power));
  return compare(four, six) < 0 ? codes[1] : codes[0];
}

/** The exact sum of the errors of finite numbers, to a power, each number rounded to nearest even. */
function sumOfErrors(format, bits, code, tensor, power) {
  const factor = times(scaleValue(format, code).value, floatValue(tensor).value);
  let total = ZERO;
  for (const x of bits) {
    if (!SHARED.isFinite(x)) continue;
    const element = elementValue(format, format.encode.saturate.rne(x, code, tensor, 0)).value;
    const error = absolute(minus(floatValue(x).value, times(element, factor)));
    total = plus(total, power === 2 ? times(error, error) : error);
  }
  return total;
}

/**
 * What quantizing a block gives. `scale` and `tensor` are found if they are null. `random` is one
 * word for all numbers, or one for each.
 */
function quantize({format: name, rule, rounding, overflow, nonfinite, bits, tensor: held, scale: given, random}) {
  const format = FORMAT[name], tensor = tensorOf(format, bits, held);
  const scale = given === null ? findScale(format, rule, bits, tensor, nonfinite) : given;
  const encode = encoder(format, rounding, overflow);
  const word = (i) => SHARED.alignRandom((Array.isArray(random) ? random[i] : random) | 0);
  const codes = bits.map((x, i) => encode(x, scale, tensor, word(i)));
  return {tensor, scale, codes, values: codes.map((code) => format.decode(code, scale, tensor) | 0)};
}
