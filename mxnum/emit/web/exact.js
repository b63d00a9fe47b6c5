// Exact arithmetic: a number is {n, e} with the value n * 2**e, where n is a BigInt. Nothing rounds.

const ZERO = {n: 0n, e: 0};

function aligned(a, b) {
  const e = Math.min(a.e, b.e);
  return [a.n << BigInt(a.e - e), b.n << BigInt(b.e - e), e];
}
function plus(a, b) { const [x, y, e] = aligned(a, b); return {n: x + y, e}; }
function minus(a, b) { return plus(a, {n: -b.n, e: b.e}); }
function times(a, b) { return {n: a.n * b.n, e: a.e + b.e}; }
function absolute(a) { return {n: a.n < 0n ? -a.n : a.n, e: a.e}; }
function compare(a, b) { const [x, y] = aligned(a, b); return x < y ? -1 : x > y ? 1 : 0; }
function bitLength(n) { return n === 0n ? 0 : n.toString(2).length; }

/** The quotient of two numbers as [numerator, denominator], in lowest powers of two. */
function ratio(a, b) {
  let [n, d] = aligned(a, b);
  if (d < 0n) [n, d] = [-n, -d];
  while (n !== 0n && !(n & 1n) && !(d & 1n)) { n >>= 1n; d >>= 1n; }
  return [n, d];
}

/** The largest E with 2**E <= n / d, for positive n and d. */
function exponentOf([n, d]) {
  const e = bitLength(n) - bitLength(d);
  return (e >= 0 ? d << BigInt(e) <= n : d <= n << BigInt(-e)) ? e : e - 1;
}

/** A quotient as a JavaScript number, to place it in a picture; text never comes from it. */
function toDouble([n, d]) {
  if (n === 0n) return 0;
  const sign = n < 0n ? -1 : 1, e = exponentOf([n < 0n ? -n : n, d]), shift = 60 - e;
  const m = n < 0n ? -n : n;
  const q = shift >= 0 ? (m << BigInt(shift)) / d : m / (d << BigInt(-shift));
  return e < -1000 ? 0 : sign * Number(q) * 2 ** (e - 60);
}

const SUPERSCRIPTS = "⁰¹²³⁴⁵⁶⁷⁸⁹";
function superscript(n) {
  return (n < 0 ? "⁻" : "") + [...String(Math.abs(n))].map((digit) => SUPERSCRIPTS[digit]).join("");
}
function powerText(e) { return `2${superscript(e)}`; }

/** A quotient in decimal: exact if it is short, else cut after some digits and marked by "…". */
function decimal([n, d], digits = 9) {
  if (n === 0n) return "0";
  const sign = n < 0n ? "−" : "", m = n < 0n ? -n : n;
  let k = m.toString().length - d.toString().length;
  const reaches = (power) => power >= 0 ? m >= d * 10n ** BigInt(power) : m * 10n ** BigInt(-power) >= d;
  if (!reaches(k)) k -= 1;
  const cutTo = (count) => {
    const up = count - 1 - k;
    const [top, bottom] = up >= 0 ? [m * 10n ** BigInt(up), d] : [m, d * 10n ** BigInt(-up)];
    return [top / bottom, top % bottom === 0n];
  };
  let [whole, isExact] = cutTo(digits + 3);
  if (!isExact) [whole, isExact] = cutTo(digits);
  const text = whole.toString().replace(/0+$/, ""), more = isExact ? "" : "…";
  if (k < -4 || k > 8) {
    return `${sign}${text[0]}${text.length > 1 ? "." + text.slice(1) : ""}${more} × 10${superscript(k)}`;
  }
  if (k < 0) return `${sign}0.${"0".repeat(-k - 1)}${text}${more}`;
  if (text.length <= k + 1) return `${sign}${text.padEnd(k + 1, "0")}${more}`;
  return `${sign}${text.slice(0, k + 1)}.${text.slice(k + 1)}${more}`;
}
const ONE = {n: 1n, e: 0};
function show(a, digits) { return decimal(ratio(a, ONE), digits); }

/** The square root of a quotient, cut to `digits` decimal digits, as text. */
function rootText([n, d], digits = 4) {
  if (n === 0n) return "0";
  const scale = BigInt(Math.max(0, 140 - 2 * Math.floor((bitLength(n) - bitLength(d)) / 2)));
  const target = (n << (2n * scale)) / d;
  let root = 1n << BigInt(Math.ceil(bitLength(target) / 2));
  for (let next; (next = (root + target / root) >> 1n) < root;) root = next;
  return decimal([root, 1n << scale], digits).replace("…", "");
}

/**
 * The float32 bits of a typed number, or null: decimal, hexadecimal (0x1.8p3), inf, nan or bits:3DCCCCCD.
 *
 * The exact number is cut to some bits, of which the last says whether anything was cut off. The
 * emitted function rounds it, once.
 */
function parse(text) {
  const clean = text.trim().toLowerCase().replace(/−/g, "-").replace(/_/g, "");
  let found = clean.match(/^bits:([0-9a-f]{1,8})$/);
  if (found) return parseInt(found[1], 16) | 0;
  const sign = clean.startsWith("-") ? 1 : 0, body = clean.replace(/^[+-]/, "");
  if (body === "inf" || body === "infinity") return pack(sign, 0, 0n, 1);
  if (body === "nan") return pack(0, 0, 0n, 2) | (sign << 31);
  if ((found = body.match(/^0x([0-9a-f]*)\.?([0-9a-f]*)p([+-]?\d{1,5})$/)) && found[1] + found[2]) {
    const n = BigInt("0x" + found[1] + found[2]);
    return fromExact({n: sign ? -n : n, e: Number(found[3]) - 4 * found[2].length}, sign);
  }
  if ((found = body.match(/^(\d*)\.?(\d*)(?:e([+-]?\d{1,5}))?$/)) && found[1] + found[2]) {
    const power = Number(found[3] || 0) - found[2].length, n = BigInt(found[1] + found[2]);
    if (n !== 0n && Math.abs(power + (found[1] + found[2]).length) > 400) return power > 0 ? pack(sign, 0, 0n, 1) : sign << 31;
    return power >= 0 ? fromRatio(sign, n * 10n ** BigInt(power), 1n) : fromRatio(sign, n, 10n ** BigInt(-power));
  }
  return null;
}
function pack(sign, exponent, significand, kind) {
  return Number(BigInt.asIntN(32, SHARED.packFloat(BigInt(sign), BigInt(exponent), significand, BigInt(kind))));
}
function fromRatio(sign, n, d) {
  if (n === 0n) return sign << 31;
  const e = exponentOf([n, d]), up = BigInt(TYPED_WIDTH - 1 - e);
  const top = up >= 0n ? n << up : n, bottom = up >= 0n ? d : d << -up;
  const sticky = top % bottom === 0n ? 0n : 1n;
  return pack(sign, e, ((top / bottom) << 1n) | sticky, 0);
}
/** The float32 bits nearest to an exact number; `sign` is that of zero. */
function fromExact(a, sign = 0) {
  return fromRatio(a.n < 0n ? 1 : a.n === 0n ? sign : 0, ...ratio(absolute(a), ONE));
}
