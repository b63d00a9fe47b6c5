// The page: state, pictures and controls. The fragment of the address holds the state.

const $ = (id) => document.getElementById(id);
const hex = (bits, digits) => (bits >>> 0).toString(16).toUpperCase().padStart(digits, "0");
const escaped = (text) => text.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
let state, made, shown;

// ---- The state and its link ----

const PRESETS = {
  normal: (n) => Array.from({length: n}, () => fromDouble(sum(12, () => Math.random()) - 6)),
  outlier: (n) => PRESETS.normal(n).map((x, i) => i === 5 ? parse("48") : x),
  equal: (n) => Array(n).fill(parse("0.99")),
  ties: (n) => Array.from({length: n}, (_, i) => fromExact({n: BigInt(2 * i + 1 - n) * 2n + 1n, e: -3})),
  ramp: (n) => Array.from({length: n}, (_, i) => fromExact({n: BigInt(i + 1), e: -2})),
};
const FIRST = "0.3 -1.2 0.05 0.81 -0.4 3.6 -0.002 0.66 1.1 -0.75 0.21 -1.9 0.5 0.013 -0.33 0.94 "
  + "-0.6 0.17 1.4 -0.09 0.72 -2.3 0.38 0.0007 -0.58 1.05 0.26 -0.47 0.88 -1.5 0.12 0.63";
function sum(n, f) { let total = 0; for (let i = 0; i < n; i++) total += f(); return total; }
function fromDouble(x) { return parse(x.toFixed(9)); }

/** The fragment of a state. */
function fragment(of) {
  const parts = {format: of.format, rule: of.rule, rounding: of.rounding, overflow: of.overflow,
    nonfinite: of.nonfinite, at: of.at, x: of.bits.map((x) => hex(x, 8)).join(".")};
  if (of.scale !== null) parts.scale = of.scale;
  if (of.tensor !== null) parts.tensor = hex(of.tensor, 8);
  if (of.random) parts.random = hex(of.random, 8);
  return new URLSearchParams(parts).toString();
}

/**
 * The state of a fragment. Names and numbers that it lacks or has wrong are those of a fresh page;
 * a scale or a tensor scale that it lacks is found.
 */
function stateOf(text) {
  const given = new URLSearchParams(text.replace(/^#/, "")), fresh = new URLSearchParams(START);
  const among = (name, known) => [given.get(name), fresh.get(name), known[0]].find((each) => known.includes(each));
  const bitsOf = (part) => /^[0-9a-f]{1,8}$/i.test(part) ? parseInt(part, 16) | 0 : null;
  const format = FORMAT[among("format", FORMATS.map((each) => each.name))];
  const blocks = [given, fresh].map((each) => (each.get("x") || "").split(".").map(bitsOf));
  const block = [...blocks, FIRST.split(" ").map(parse)].find((each) => !each.includes(null));
  const bits = block.slice(0, format.block);
  const code = /^\d+$/.test(given.get("scale")) ? Number(given.get("scale")) : null;
  const tensor = given.has("tensor") ? bitsOf(given.get("tensor")) : null;
  return {
    format: format.name, rule: among("rule", format.rules), rounding: among("rounding", Object.keys(ROUNDINGS)),
    overflow: among("overflow", ["saturate", "ieee"]), nonfinite: among("nonfinite", ["block", "element"]), bits,
    at: Math.min(/^\d+$/.test(given.get("at")) ? Number(given.get("at")) : 0, bits.length - 1),
    scale: code !== null && isScale(format, code) ? code : null,
    tensor: format.hasTensor && tensor !== null && isTensor(tensor) ? tensor : null,
    random: bitsOf(given.get("random") || "") & 0x3fffffff,
  };
}
function isScale(format, code) { return code <= Math.max(format.scaleNaN, format.scaleMax); }
function isTensor(bits) { return bits > 0 && SHARED.isFinite(bits) === 1; }

/** Changes the state and shows it. */
function set(changes) {
  state = {...state, ...changes};
  const format = FORMAT[state.format];
  if (!format.rules.includes(state.rule)) state.rule = format.rules[0];
  if (state.scale !== null && !isScale(format, state.scale)) state.scale = null;
  if (!format.hasTensor) state.tensor = null;
  if ("format" in changes) state.bits = fitted(state.bits, format.block);
  state.at = Math.min(state.at, state.bits.length - 1);
  history.replaceState(null, "", "#" + fragment(state));
  render();
}
/** Cuts a block to a format's length; a whole block of another length is filled up. */
function fitted(bits, length) {
  if (bits.length < 16) return bits;
  return Array.from({length: Math.min(length, Math.max(bits.length, 32))}, (_, i) => bits[i % bits.length]);
}
function setNumber(i, x) { set({at: i, bits: state.bits.map((old, j) => j === i ? x : old)}); }

// ---- Text ----

/** A number of an element or a scale as text. */
function numberText({sign, kind, value}) {
  if (kind) return kind === 2 ? "NaN" : sign ? "−∞" : "∞";
  return value.n === 0n ? (sign ? "−0" : "0") : show(value);
}
/** The shortest decimal that is rounded to these bits. */
function typedText(bits) {
  const {sign, kind} = floatValue(bits);
  if (kind === 2) return `${sign ? "-" : ""}nan`;
  if (kind === 1) return `${sign ? "-" : ""}inf`;
  if ((bits & 0x7fffffff) === 0) return sign ? "-0" : "0";
  const double = toDouble(ratio(floatValue(bits).value, ONE));
  for (let digits = 1; digits <= 9; digits++) {
    const text = String(Number(double.toPrecision(digits)));
    if (parse(text) === bits) return text;
  }
  return `bits:${hex(bits, 8)}`;
}
/** A float32 number as text for readers: the shortest decimal that is rounded to it. */
function floatText(bits) {
  const {kind} = floatValue(bits);
  return kind ? numberText(floatValue(bits)) : typedText(bits).replace("-", "−").replace(/e[+]?([−-]?)(\d+)/, (_, minus, e) => ` × 10${superscript(minus ? -e : +e)}`);
}
function scaleText(format, code) {
  const scale = scaleValue(format, code);
  if (scale.kind) return scale.kind === 2 ? "NaN" : "∞";
  return format.power ? powerText(scale.value.e) : show(scale.value, 6);
}
function codeText(format, code) { return `0x${hex(code, Math.ceil(format.element.bits / 4))}`; }
function words(mode) {
  return MODES[mode].replace(" (the default)", "").replace(", the default)", ")").replace(/ with r bits: with delta.*/, ": the random bits R decide.").replace(/`/g, "");
}

/** The bits of a code as cells, coloured by field. */
function strip(code, number, label) {
  const {bits, exponentBits, integer} = number;
  const cells = Array.from({length: bits}, (_, i) => {
    const bit = (code >>> (bits - 1 - i)) & 1;
    const field = integer ? (i ? "mantissa" : "sign") : i === 0 ? "sign" : i <= exponentBits ? "exponent" : "mantissa";
    return `<b class="${field}">${bit}</b>`;
  });
  const groups = integer ? [cells] : [[cells[0]], cells.slice(1, 1 + exponentBits), cells.slice(1 + exponentBits)];
  const names = integer ? ["two's complement"] : ["sign", "exponent", "mantissa"];
  const shownGroups = groups.map((group, i) => group.length
    ? `<span class="field"><span class="cells">${group.join("")}</span><small>${names[i]}</small></span>` : "");
  return `<span class="label">${label}</span><span class="fields">${shownGroups.join("")}</span>`;
}

// ---- One number ----

function renderNumber() {
  const format = FORMAT[state.format], step = shown.steps[state.at];
  const input = $("x");
  if (document.activeElement !== input || parse(input.value) !== step.bits) input.value = typedText(step.bits);
  input.removeAttribute("aria-invalid");
  $("x-label").textContent = `Number ${state.at + 1} of ${state.bits.length}`;
  $("source-bits").innerHTML = strip(step.bits, {bits: 32, exponentBits: 8}, "float32");
  $("division").innerHTML = divisionText(format, step);
  drawLine(step);
  $("why").innerHTML = `<strong>${state.rounding}</strong>: ${escaped(words(state.rounding))} ${whyText(step)}`;
  $("code-bits").innerHTML = strip(step.code, format.element, format.element.name);
  $("result").innerHTML = resultText(format, step);
  $("number").classList.toggle("overflows", step.overflows);
}

function divisionText(format, step) {
  const {x, factor, position} = step, scale = scaleText(format, made.scale);
  const divisor = format.hasTensor ? `(${scale} × ${floatText(made.tensor)})` : scale;
  if (!position) return `x = ${numberText(x)}, ${format.hasTensor ? "scale × tensor scale" : "scale"} = ${divisor}`;
  return `${quotientText(format)} = ${show(x.value)} ÷ ${divisor} = <strong>${decimal(ratio(x.value, factor))}</strong>`;
}

function quotientText(format) { return `x ÷ ${format.hasTensor ? "(scale × tensor scale)" : "scale"}`; }

function whyText(step) {
  const {below, above, position} = step;
  if (!position) return `Here ${escaped(step.rule)}.`;
  const sign = step.x.sign ? "−" : "";
  const signed = (value) => value.n === 0n ? "0" : sign + show(value);
  const rule = escaped(step.rule);
  if (position[0] === 0n) return `Here the quotient ${rule}.`;
  return `Here the quotient lies between ${signed(below.value)} and ${signed(above.value)}, at ${decimal(position, 5)} of the
    gap${step.x.sign ? " from zero" : ""}; ${rule}.`;
}

function resultText(format, step) {
  const rows = [["Code", `${codeText(format, step.code)} = ${numberText(step.element)}`]];
  rows.push(["Value", `${numberText(step.element)} × ${format.hasTensor ? "scale × tensor scale" : scaleText(format, made.scale)}
    = <strong>${floatText(made.values[state.at])}</strong>`]);
  if (!step.x.kind && !step.value.kind) {
    const error = minus(step.value.value, step.x.value);
    const share = step.x.value.n === 0n || error.n === 0n ? ""
      : ` (${decimal(ratio(times(error, {n: 100n, e: 0}), absolute(step.x.value)), 3)} %)`;
    rows.push(["Error", `${show(error, 6)}${share}`]);
  }
  const marks = [];
  if (step.overflows) marks.push(`<span class="mark over">▲ overflows</span>`);
  if (step.isZero) marks.push(`<span class="mark zero">0 becomes zero</span>`);
  if (marks.length) rows.push(["Note", marks.join(" ")]);
  return rows.map(([name, text]) => `<div><dt>${name}</dt><dd>${text}</dd></div>`).join("");
}

/** Draws all values of the element, and below them the gap around the number. */
function drawLine(step) {
  const box = $("line"), width = box.clientWidth, negative = step.x.sign === 1;
  if (!step.position) { box.innerHTML = ""; return; }
  const format = FORMAT[state.format], grid = magnitudes(format), end = grid[grid.length - 1];
  const parts = [], line = (x1, y1, x2, y2, kind) =>
    parts.push(`<line x1="${x1}" y1="${y1}" x2="${x2}" y2="${y2}" class="${kind}"/>`);
  const text = (x, y, content, kind = "", anchor = "middle") =>
    parts.push(`<text x="${x}" y="${y}" class="${kind}" text-anchor="${anchor}">${content}</text>`);
  // All values, on a line from the least to the largest.
  const half = width / 2 - 14, at = (q) => width / 2 + half * Math.max(-1, Math.min(1, q / 1.12));
  line(8, 22, width - 8, 22, "axis");
  for (const value of grid) {
    const place = toDouble(ratio(value, end));
    for (const sign of value.n ? [-1, 1] : [1]) line(at(sign * place), 16, at(sign * place), 28, "tick all");
  }
  const whole = toDouble(ratio(step.x.value, times(end, step.factor)));
  text(at(-1), 11, `−${show(end, 6)}`, "small"); text(at(1), 11, show(end, 6), "small"); text(at(0), 11, "0", "small");
  // The gap: the smaller neighbour on the left.
  const left = width * 0.2, right = width * 0.8, y = 112;
  const fromZero = toDouble(step.position), place = negative ? 1 - fromZero : fromZero;
  const [low, high] = negative ? [step.above, step.below] : [step.below, step.above];
  const xOf = left + (right - left) * place, signed = (value) => value.n && negative ? `−${show(value, 7)}` : show(value, 7);
  parts.push(`<path d="M${at(whole)} 30 L${left - 24} ${y - 48} H${right + 24} Z" class="zoom"/>`);
  parts.push(`<circle cx="${at(whole)}" cy="22" r="4.5" class="dot"/>`);
  line(8, y, width - 8, y, "axis");
  line((left + right) / 2, y - 11, (left + right) / 2, y + 11, "tick middle");
  text((left + right) / 2, y + 54, `midpoint ${decimal(midpoint(step, negative), 7)}`, "small muted");
  line((left + right) / 2, y + 13, (left + right) / 2, y + 42, "leader");
  for (const [neighbour, x] of [[low, left], [high, right]]) {
    const isChosen = neighbour.code !== null && neighbour.code === step.code;
    line(x, y - 16, x, y + 16, `tick${isChosen ? " chosen" : ""}${neighbour.code === null ? " ghost" : ""}`);
    text(x, y + 32, signed(neighbour.value), isChosen ? "strong" : "");
    text(x, y + 46, neighbour.code === null ? "no code" : codeText(format, neighbour.code), "small muted");
  }
  const isOut = step.element.kind > 0 ? !negative : negative;
  const chosen = low.code !== null && low.code === step.code ? left : high.code === step.code ? right : isOut ? width - 10 : 10;
  if (chosen !== left && chosen !== right) text(chosen, y - 32, `to ${numberText(step.element)}`, "strong", isOut ? "end" : "start");
  if (Math.abs(chosen - xOf) > 6) {
    const middle = (chosen + xOf) / 2, tip = chosen > xOf ? -1 : 1;
    parts.push(`<path d="M${xOf} ${y - 8} Q${middle} ${y - 44} ${chosen} ${y - 19}" class="arrow"/>`);
    parts.push(`<path d="M${chosen + tip * 9} ${y - 28} L${chosen} ${y - 19} L${chosen + tip * 11} ${y - 18}" class="arrow"/>`);
  }
  parts.push(`<circle cx="${xOf}" cy="${y}" r="6.5" class="dot"/>`);
  const anchor = xOf < width * 0.3 ? "start" : xOf > width * 0.7 ? "end" : "middle";
  text(xOf, y - 38, `${format.hasTensor ? "quotient" : "x ÷ scale"} = ${decimal(ratio(step.x.value, step.factor), 7)}`, "strong halo", anchor);
  box.innerHTML = `<svg width="${width}" height="176" role="img" aria-label="${escaped(lineLabel(step, signed))}">${parts.join("")}</svg>`;
}
function lineLabel({below, above, position}, signed) {
  return `The quotient lies at ${decimal(position, 4)} of the gap between ${signed(below.value)} and ${signed(above.value)}.`;
}
function midpoint(step, negative) {
  const [n, d] = ratio(plus(step.below.value, step.above.value), {n: 2n, e: 0});
  return [negative ? -n : n, d];
}

// ---- The block ----

const HEIGHT = 190;
/** The end of the axis: an exponent E, so that all numbers lie between -2**E and 2**E. */
function axisExponent() {
  const [amax] = largest(state.bits), value = floatValue(amax).value;
  return value.n === 0n ? 0 : exponentOf(ratio(value, ONE)) + 1;
}
let axis = 0, dragged = null;

function makeBars() {
  const box = $("bars");
  box.innerHTML = `<svg height="${HEIGHT}"><g class="ground"></g>${state.bits.map((_, i) => `<g class="bar" role="slider"
    data-i="${i}" aria-orientation="vertical"><rect class="hit"/><rect class="before"/><rect class="after"/>
    <text class="note"></text></g>`).join("")}<g class="labels"></g></svg>`;
}

function renderBars() {
  const box = $("bars"), width = box.clientWidth, n = state.bits.length, format = FORMAT[state.format];
  if (box.querySelectorAll(".bar").length !== n) makeBars();
  if (dragged === null) axis = axisExponent();
  const svg = box.firstChild, top = 16, half = HEIGHT / 2 - top, zero = HEIGHT / 2;
  svg.setAttribute("width", width);
  const height = ({kind, sign, value}) => kind ? (kind === 2 ? 0 : sign ? -half : half)
    : half * Math.max(-1.08, Math.min(1.08, toDouble(ratio(value, {n: 1n, e: axis}))));
  const pitch = width / n, wide = Math.max(2, Math.min(26, pitch * 0.7));
  drawGround(svg, width, zero, half, format);
  const [amax] = largest(state.bits);
  box.querySelectorAll(".bar").forEach((bar, i) => {
    const step = shown.steps[i], before = height(step.x), after = height(step.value), x = pitch * i + (pitch - wide) / 2;
    const put = (part, values) => Object.entries(values).forEach(([k, v]) => bar.querySelector(part).setAttribute(k, v));
    put(".hit", {x: pitch * i, y: 0, width: pitch, height: HEIGHT});
    put(".before", {x, y: zero - Math.max(before, 0), width: wide, height: Math.max(Math.abs(before), 0.5)});
    put(".after", {x: x - 1, y: zero - after - 1.5, width: wide + 2, height: step.value.kind === 2 ? 0 : 3});
    const note = step.x.kind === 2 ? "NaN" : step.x.kind ? "∞" : step.overflows ? "▲" : step.isZero ? "0" : "";
    const isUp = before >= 0, y = step.overflows || step.x.kind === 1 ? zero - before + (isUp ? -3 : 12) : isUp ? zero - before - 4 : zero - before + 13;
    put(".note", {x: pitch * (i + 0.5), y: Math.max(11, Math.min(HEIGHT - 2, y))});
    bar.querySelector(".note").textContent = note;
    bar.classList.toggle("largest", (step.bits & 0x7fffffff) === amax && amax > 0);
    bar.classList.toggle("over", step.overflows);
    bar.classList.toggle("zero", step.isZero);
    bar.classList.toggle("chosen", i === state.at);
    bar.setAttribute("tabindex", i === state.at ? 0 : -1);
    bar.setAttribute("aria-label", `Number ${i + 1}`);
    bar.setAttribute("aria-valuenow", typedText(step.bits));
    const what = `${step.overflows ? ", overflows" : ""}${step.isZero ? ", becomes zero" : ""}`;
    bar.setAttribute("aria-valuetext", `${typedText(step.bits)} becomes ${floatText(made.values[i])}${what}`);
  });
}

function drawGround(svg, width, zero, half, format) {
  const scale = scaleValue(format, made.scale), grid = magnitudes(format);
  const limit = times(grid[grid.length - 1], times(scale.value, floatValue(made.tensor).value));
  const q = scale.kind ? 2 : toDouble(ratio(limit, {n: 1n, e: axis}));
  const parts = [`<line x1="0" x2="${width}" y1="${zero}" y2="${zero}" class="axis"/>`], labels = [];
  if (q <= 1.08 && q > 0) {
    for (const side of [-1, 1]) parts.push(`<line x1="0" x2="${width}" y1="${zero + side * half * q}" y2="${zero + side * half * q}" class="limit"/>`);
  }
  labels.push(`<text x="2" y="11" class="small muted">${powerText(axis)}</text>`);
  labels.push(`<text x="2" y="${HEIGHT - 3}" class="small muted">−${powerText(axis)}</text>`);
  $("limit").textContent = scale.kind ? "none" : show(limit, 4);
  svg.querySelector(".ground").innerHTML = parts.join("");
  svg.querySelector(".labels").innerHTML = labels.join("");
}

function renderScales() {
  const format = FORMAT[state.format];
  const rows = format.rules.map((rule) => {
    const asked = {...state, rule, scale: null}, block = quantize(asked);
    return {rule, block, loss: losses(asked, block)};
  });
  if (state.scale !== null) rows.push({rule: null, block: made, loss: shown});
  const squares = rows.map((row) => row.loss.meanSquare);
  const less = (a, b) => a && b && a[0] * b[1] < b[0] * a[1];
  const isLeast = (i) => squares[i] && !squares.some((other) => less(other, squares[i])) && squares.some((other) => less(squares[i], other));
  $("scales").tBodies[0].innerHTML = rows.map(({rule, block, loss}, i) => {
    const isChosen = rule === (state.scale === null ? state.rule : null), name = rule === null ? "given" : rule;
    return `<tr class="${isChosen ? "chosen" : ""}"><th scope="row"><label><input type="radio" name="rule" value="${rule || ""}"
      ${isChosen ? "checked" : ""}> ${name.replace(/_/g, "_<wbr>")}</label></th>
      <td>${scaleText(format, block.scale)} <small>0x${hex(block.scale, 2)}</small></td>
      <td>${loss.overflowing ? `<span class="mark over">▲ ${loss.overflowing}</span>` : "0"}</td>
      <td>${loss.zeros ? `<span class="mark zero">${loss.zeros}</span>` : "0"}</td>
      <td>${isLeast(i) ? `<strong title="the least">${loss.rms}</strong>` : loss.rms}</td></tr>`;
  }).join("");
  $("rule-words").innerHTML = `<strong>${state.rule}</strong>: ${escaped(words(format.power ? state.rule : `float ${state.rule}`))} ${amaxText(format)}`;
}

/** The largest magnitude in the letters of the scale rules. */
function amaxText(format) {
  const {value} = floatValue(largest(state.bits)[0]), {name, emax, maxCode} = format.element;
  if (value.n === 0n) return "The block has no finite number other than 0.";
  if (format.power) {
    const e = exponentOf(ratio(value, ONE));
    return `Here A = ${floatText(largest(state.bits)[0])} = ${show({n: value.n, e: value.e - e}, 6)} · ${powerText(e)} = f · 2<sup>E</sup> is the largest magnitude, and
      emax = ${emax} is the exponent of the largest ${name} number.`;
  }
  const divisor = times(elementValue(format, maxCode).value, floatValue(made.tensor).value);
  return `Here m = ${floatText(largest(state.bits)[0])} is the largest magnitude, max = ${show(elementValue(format, maxCode).value)} the largest ${name} number,
    ${format.hasTensor ? `t = ${floatText(made.tensor)} the tensor scale, ` : ""}and q = m ÷ ${format.hasTensor ? "(max · t)" : "max"} = ${decimal(ratio(value, divisor), 6)}`;
}

// ---- Controls ----

function renderChoices() {
  const format = FORMAT[state.format];
  const options = (names, chosen) => names.map((name) => `<option${name === chosen ? " selected" : ""}>${escaped(name)}</option>`).join("");
  $("format").innerHTML = options(FORMATS.map((each) => each.name), state.format);
  $("rule").innerHTML = options(format.rules, state.rule);
  $("rounding").innerHTML = options(Object.keys(ROUNDINGS), state.rounding);
  for (const name of ["overflow", "nonfinite"]) $(name).value = state[name];
  $("overflow").disabled = format.element.specials === "none";
  const fill = (id, text) => { if (document.activeElement !== $(id)) $(id).value = text; };
  fill("scale", state.scale === null ? "" : String(state.scale));
  fill("tensor", state.tensor === null ? "" : typedText(state.tensor));
  fill("random", String(state.random));
  $("tensor-label").hidden = !format.hasTensor;
  $("random-label").hidden = Boolean(ROUNDINGS[state.rounding].away);
  const unusual = state.overflow !== "saturate" || state.nonfinite !== "block" || state.scale !== null || state.tensor !== null;
  if (unusual || !ROUNDINGS[state.rounding].away) $("more").open = true;
  const {name, nanCode} = format.element, nan = state.bits.findIndex((x) => (x & 0x7fffffff) > 0x7f800000);
  const raises = state.nonfinite === "element" && nanCode === null && nan >= 0;
  $("problem").textContent = !raises ? "" :
    `mxnum.quantize raises an error: Argument 'x' must be free of NaN for ${name}, which has no NaN code; there is a NaN at index ${nan}.`;
}

function render() {
  made = quantize(state);
  shown = losses(state, made);
  renderChoices();
  renderNumber();
  renderBars();
  renderScales();
}

/** Moves a number by one float32, in the order of the numbers: -0 and 0 count as one. */
function nextFloat(bits, direction) {
  const magnitude = bits & 0x7fffffff, order = (bits < 0 ? -magnitude : magnitude) + direction;
  if (Math.abs(order) > 0x7f800000) return bits;
  return order < 0 ? (-order | 0x80000000) | 0 : order;
}

/** Moves a number to the next element value or midpoint, under the scale that it has now. */
function nextStop(step, direction) {
  if (step.x.kind || step.scaleKind || step.factor.n === 0n) return nextFloat(step.bits, direction);
  const grid = magnitudes(FORMAT[state.format]), stops = [];
  grid.forEach((value, k) => {
    stops.push(value);
    if (k) stops.push(times(plus(value, grid[k - 1]), {n: 1n, e: -1}));
  });
  const all = [...stops, ...stops.map((value) => minus(ZERO, value))].map((value) => times(value, step.factor));
  const beyond = all.filter((value) => compare(value, step.x.value) === direction);
  if (!beyond.length) return nextFloat(step.bits, direction);
  const found = beyond.reduce((best, value) => compare(value, best) === -direction ? value : best);
  const bits = fromExact(found);
  return bits === step.bits ? nextFloat(bits, direction) : bits;
}

/** Multiplies a number by a power of two. */
function doubled(bits, power) {
  const {kind, sign, value} = floatValue(bits);
  return kind ? bits : fromExact({n: value.n, e: value.e + power}, sign);
}

/** Moves a bar by a part of the axis. */
function moveBar(i, parts, log) {
  const {kind, value} = floatValue(state.bits[i]);
  if (kind) return;
  const unit = {n: 1n, e: axisExponent() - log}, [n, d] = ratio(value, unit), double = 2n * n;
  const nearest = (double + d - (((double + d) % (2n * d)) + 2n * d) % (2n * d)) / (2n * d);
  setNumber(i, fromExact({n: nearest + BigInt(parts), e: unit.e}));
}

function dragTo(event) {
  const box = $("bars").getBoundingClientRect(), half = HEIGHT / 2 - 16;
  const part = Math.max(-128, Math.min(128, Math.round((HEIGHT / 2 - (event.clientY - box.top)) / half * 128)));
  setNumber(dragged, fromExact({n: BigInt(part), e: axis - 7}));
}

function problem(input, text) {
  input.setAttribute("aria-invalid", text ? "true" : "false");
  $("problem").textContent = text;
}

function typed(id, read, wrong) {
  $(id).addEventListener("input", () => {
    const text = $(id).value.trim(), found = read(text);
    if (found === undefined) { problem($(id), wrong); return; }
    $(id).removeAttribute("aria-invalid");
    set(found);
  });
}

function listen() {
  for (const id of ["format", "rounding", "overflow", "nonfinite"]) $(id).addEventListener("change", (e) => set({[id]: e.target.value}));
  $("rule").addEventListener("change", (e) => set({rule: e.target.value, scale: null}));
  $("choices").addEventListener("submit", (e) => e.preventDefault());
  $("scales").addEventListener("change", (e) => { if (e.target.value) set({rule: e.target.value, scale: null}); });
  typed("x", (text) => { const found = parse(text); return found === null ? undefined : {bits: state.bits.map((x, i) => i === state.at ? found : x)}; },
    "Type a number such as 0.3, -1.5e-3, 0x1.8p3, inf, nan or bits:3DCCCCCD.");
  typed("scale", (text) => text === "" ? {scale: null} : /^\d+$/.test(text) && isScale(FORMAT[state.format], Number(text)) ? {scale: Number(text)} : undefined,
    "Type the code of a scale as a whole number in its range, or nothing.");
  typed("tensor", (text) => { if (text === "") return {tensor: null}; const found = parse(text); return found !== null && isTensor(found) ? {tensor: found} : undefined; },
    "Type a positive number, or nothing.");
  typed("random", (text) => /^\d{1,10}$/.test(text) && Number(text) < 2 ** 30 ? {random: Number(text)} : undefined,
    "Type a whole number below 2^30 = 1073741824.");
  $("x").addEventListener("blur", () => { if (parse($("x").value) !== null) renderNumber(); });
  $("x").addEventListener("keydown", (e) => {
    const step = shown.steps[state.at], direction = {ArrowUp: 1, ArrowDown: -1, PageUp: 1, PageDown: -1}[e.key];
    if (!direction) return;
    e.preventDefault();
    setNumber(state.at, e.key.startsWith("Page") ? doubled(step.bits, direction) : e.shiftKey ? nextStop(step, direction) : nextFloat(step.bits, direction));
  });
  for (const button of document.querySelectorAll("[data-step]")) button.addEventListener("click", () => setNumber(state.at, nextFloat(state.bits[state.at], Number(button.dataset.step))));
  for (const button of document.querySelectorAll("[data-stop]")) button.addEventListener("click", () => setNumber(state.at, nextStop(shown.steps[state.at], Number(button.dataset.stop))));
  for (const button of document.querySelectorAll("[data-preset]")) {
    button.addEventListener("click", () => set({bits: PRESETS[button.dataset.preset](Math.min(32, FORMAT[state.format].block)), at: 0}));
  }
  listenToBars();
  $("copy").addEventListener("click", copyLink);
  window.addEventListener("hashchange", () => { state = stateOf(location.hash); render(); });
  new ResizeObserver(() => { renderNumber(); renderBars(); }).observe(document.querySelector("main"));
}

function listenToBars() {
  const box = $("bars");
  const focus = (i) => box.querySelector(`[data-i="${i}"]`).focus();
  box.addEventListener("pointerdown", (e) => {
    const bar = e.target.closest(".bar");
    if (!bar || e.button) return;
    dragged = Number(bar.dataset.i);
    box.setPointerCapture(e.pointerId);
    set({at: dragged});
    focus(dragged);
    box.dataset.from = e.clientY;
    e.preventDefault();
  });
  box.addEventListener("pointermove", (e) => {
    if (dragged === null || (box.dataset.from && Math.abs(e.clientY - box.dataset.from) < 3)) return;
    delete box.dataset.from;
    dragTo(e);
  });
  for (const kind of ["pointerup", "pointercancel"]) box.addEventListener(kind, () => { if (dragged !== null) { dragged = null; renderBars(); } });
  box.addEventListener("focusin", (e) => { const i = Number(e.target.dataset.i); if (i !== state.at) set({at: i}); });
  box.addEventListener("keydown", (e) => {
    const i = state.at, n = state.bits.length, log = e.shiftKey ? 10 : 5;
    const action = {
      ArrowUp: () => moveBar(i, 1, log), ArrowDown: () => moveBar(i, -1, log),
      ArrowLeft: () => focus((i + n - 1) % n), ArrowRight: () => focus((i + 1) % n), Home: () => focus(0), End: () => focus(n - 1),
      PageUp: () => setNumber(i, doubled(state.bits[i], 1)), PageDown: () => setNumber(i, doubled(state.bits[i], -1)),
      0: () => setNumber(i, 0), Delete: () => setNumber(i, 0), "-": () => setNumber(i, state.bits[i] ^ 0x80000000),
    }[e.key];
    if (!action || e.ctrlKey || e.metaKey || e.altKey) return;
    e.preventDefault();
    action();
  });
}

async function copyLink() {
  try {
    await navigator.clipboard.writeText(location.href);
    $("copied").textContent = "Copied.";
  } catch {
    $("copied").textContent = "The address of this page is the link.";
  }
}

state = stateOf(location.hash.length > 1 ? location.hash : START);
listen();
render();
