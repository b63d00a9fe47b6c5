// The steps from a number to its code, in the words of `mxnum explain`.

/**
 * The steps of one number as {x, code, value, factor, below, above, position, overflows, isZero, rule}.
 *
 * `below` and `above` are {code, value}: magnitudes of elements, without the scale; the code is null
 * past the largest. `position` is the place of |x| / factor between them, a quotient [n, d]. They
 * are null where nothing is rounded.
 */
function explain(state, made, i) {
  const format = FORMAT[state.format], bits = state.bits[i], x = floatValue(bits), code = made.codes[i];
  const scale = scaleValue(format, made.scale), factor = times(scale.value, floatValue(made.tensor).value);
  const step = {bits, x, code, element: elementValue(format, code), value: floatValue(made.values[i]), factor,
    scaleKind: scale.kind, below: null, above: null, position: null, overflows: false};
  step.isZero = x.kind === 0 && scale.kind !== 2 && x.value.n !== 0n && step.element.value.n === 0n;
  const saturates = !format.encode[state.overflow] || state.overflow === "saturate";
  step.rule = special(format, step, saturates);
  if (step.rule) return step;
  const grid = magnitudes(format), last = grid.length - 1, y = absolute(x.value), negative = x.sign === 1;
  const gapAtEnd = format.element.mantissaBits ? minus(grid[last], grid[last - 1]) : grid[last];
  if (compare(y, times(plus(grid[last], gapAtEnd), factor)) >= 0) {
    const e = exponentOf(ratio(y, factor)) - format.element.mantissaBits;
    const gap = compare({n: 1n, e}, gapAtEnd) > 0 ? {n: 1n, e} : gapAtEnd;
    const [n, d] = ratio(y, times(factor, gap)), low = times({n: n / d, e: 0}, gap);
    step.below = {code: null, value: low};
    step.above = {code: null, value: plus(low, gap)};
  } else {
    let at = 0;
    while (at < last && compare(times(grid[at + 1], factor), y) <= 0) at++;
    step.below = neighbour(format, at, negative);
    step.above = at < last ? neighbour(format, at + 1, negative) : {code: null, value: plus(grid[last], gapAtEnd)};
  }
  const {below, above} = step, gap = times(minus(above.value, below.value), factor);
  step.position = ratio(minus(y, times(below.value, factor)), gap);
  const [rule, away] = roundingRule(state, negative, parity(format, below.value), step.position, i);
  const rounded = away ? above.value : below.value;
  step.rule = rule;
  step.overflows = compare(rounded, grid[last]) > 0;
  if (step.overflows) step.rule = overflowRule(state, step, rounded, grid[last], saturates);
  return step;
}

/** What becomes of a number that is not rounded; "" if it is. */
function special(format, step, saturates) {
  if (step.scaleKind === 2) return "the scale is NaN, so the element code is 0 and means nothing";
  if (step.x.kind === 2) return format.element.nanCode === null ? "NaN has no code in this element" : "NaN becomes the NaN code";
  if (step.x.kind === 1) return saturates ? "infinity saturates" : "infinity becomes infinity, or NaN if the element has none";
  if (step.scaleKind === 1) return "the scale is infinite, so the element is zero";
  if (step.factor.n === 0n) return "the scale is zero, so the element is zero";
  return "";
}

function neighbour(format, magnitude, negative) {
  const {bits, integer} = format.element;
  const code = !negative ? magnitude : integer ? (-magnitude) & ((1 << bits) - 1) : magnitude | (1 << (bits - 1));
  return {code, value: magnitudes(format)[magnitude]};
}

/** The parity of the code that a magnitude would have if codes were unbounded. */
function parity(format, value) {
  const {integer, emin, mantissaBits} = format.element;
  const exponent = integer ? 0 : value.n ? Math.max(exponentOf(ratio(value, ONE)), emin) : emin;
  const [steps] = ratio(value, {n: 1n, e: exponent - mantissaBits});
  const code = BigInt(integer ? 0 : exponent - emin) * (1n << BigInt(mantissaBits)) + steps;
  return Number(((code % 2n) + 2n) % 2n);
}

/** The rule in words, and true if it takes the neighbour that is farther from zero. */
function roundingRule(state, negative, odd, [n, d], i) {
  const mode = state.rounding, rounding = ROUNDINGS[mode], side = 2n * n < d ? 0 : 2n * n === d ? 1 : 2;
  if (n === 0n) return ["is representable and stays", false];
  if (!rounding.away) {
    const word = Array.isArray(state.random) ? state.random[i] : state.random;
    const low = BigInt(SHARED.alignRandom(word | 0)), floor = (n << 30n) / d, away = floor + low >= 1n << 30n;
    const where = away ? "away from" : "toward";
    return [`${mode} adds R to the first 30 fraction bits, ${floor} + ${low} ${away ? ">=" : "<"} 2^30, so the result is rounded ${where} zero`, away];
  }
  const goesAway = (negative, odd, side) => rounding.away[6 * negative + 3 * odd + side] === "1";
  const away = goesAway(negative, odd, side), end = away ? "away from" : "toward";
  const isNearest = !goesAway(negative, odd, 0) && goesAway(negative, odd, 2), taken = away === Boolean(odd) ? "even" : "odd";
  const byParity = goesAway(negative, 0, side) !== goesAway(negative, 1, side);
  const bySign = goesAway(0, odd, side) !== goesAway(1, odd, side);
  if (isNearest && side !== 1) return [`${mode} rounds to the nearer one`, away];
  if (isNearest && !byParity) return [`a tie, which ${mode} rounds ${end} zero`, away];
  if (isNearest) return [`a tie, which ${mode} rounds to the ${taken} code, here the one ${away ? "away from" : "nearer"} zero`, away];
  if (byParity) return [`${mode} rounds to the neighbour whose code is ${taken}`, away];
  return [bySign ? `${mode} rounds ${away === Boolean(negative) ? "down" : "up"}` : `${mode} rounds ${end} zero`, away];
}

function overflowRule(state, step, rounded, largestValue, saturates) {
  const negative = step.x.sign === 1, signed = (a) => `${negative ? "-" : ""}${show(a)}`;
  const beyond = `beyond the largest, ${signed(largestValue)}`;
  const rule = step.position[0] === 0n ? `is ${beyond}` : `${step.rule}; ${signed(rounded)} is ${beyond}`;
  if (saturates) return `${rule}: it saturates`;
  if (ROUNDINGS[state.rounding].staysAtLargest[Number(negative)]) return `${rule}, and ${state.rounding} gives the largest value`;
  const to = FORMAT[state.format].element.specials === "ieee" ? "infinity" : "NaN";
  return `${rule}: it overflows to ${to}`;
}

/**
 * What a block loses: how many numbers overflow or become zero, and the exact mean squared error of
 * the finite numbers, which is null if a value is no number.
 */
function losses(state, made) {
  const steps = state.bits.map((_, i) => explain(state, made, i)), finite = steps.filter((step) => !step.x.kind);
  let total = ZERO;
  for (const {value, x} of finite) {
    const error = minus(value.value, x.value);
    total = plus(total, times(error, error));
  }
  const worst = Math.max(0, ...finite.map((step) => step.value.kind));
  const meanSquare = finite.length && !worst ? ratio(total, {n: BigInt(finite.length), e: 0}) : null;
  return {
    steps, meanSquare, overflowing: steps.filter((step) => step.overflows).length,
    zeros: steps.filter((step) => step.isZero).length, rms: meanSquare ? rootText(meanSquare) : ["—", "∞", "NaN"][worst],
  };
}
