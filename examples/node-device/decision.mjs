// The decision of one device: average, intent, box, coin, history. Plain arithmetic without a clock, a disk or a network.
// docs/another-device.md explains it. `node decision.mjs ../device-vectors.json` compares it with turnout's own numbers.

import { randomBytes } from "node:crypto";
import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const WORDS = 2 ** 53; // of the coin: every double of the form word / 2^53 is exact
const SMALLEST_AVERAGE = 2 ** -30;

/** The value, kept in [low, high]; low where it is not a number. */
const inside = (low, value, high) => (value > low ? Math.min(value, high) : low);

// ---- The box of a mechanism -------------------------------------------------------------------------------------

/** The box [low, high] of a probability, for the settings that the coordinator proposes; what it promises per report. */
export function agreed(mechanism) {
  if (mechanism.kind === "classical") return { low: 0, high: 1, epsilon: Infinity };
  if (mechanism.kind !== "clamp")
    throw new Error(`the mechanism must be clamp or classical, got ${mechanism.kind}: this device knows no other`);
  const { epsilon, center = 0.5 } = mechanism;
  if (!(epsilon > 0 && epsilon <= 30)) throw new Error(`clamp's epsilon must be above 0 and at most 30, got ${epsilon}`);
  if (!(center > 0 && center < 1)) throw new Error(`clamp's center must be above 0 and below 1, got ${center}`);
  return { ...widestBox(epsilon, center), epsilon };
}

// Whole numbers of 2^-256 instead of floats: a rounded float would break the promise for some epsilon.
const BITS = 256n;
const ONE = 1n << BITS;
const times = (a, b) => (a * b) >> BITS;
const over = (a, b) => (a << BITS) / b;

/** A double from 0 up as a whole number of 2^-256, rounded down. */
function exactly(value) {
  const bits = new DataView(new ArrayBuffer(8));
  bits.setFloat64(0, value);
  const raw = bits.getBigUint64(0);
  const [exponent, fraction] = [raw >> 52n, raw & ((1n << 52n) - 1n)];
  const mantissa = exponent ? fraction | (1n << 52n) : fraction;
  const shift = BITS + (exponent || 1n) - 1075n;
  return shift >= 0n ? mantissa << shift : mantissa >> -shift;
}

/** e^x, rounded down: all terms of the series are above 0, and each is rounded down. */
function growth(x) {
  let [sum, term] = [ONE, ONE];
  for (let n = 1n; term > 0n; n++) {
    term = times(term, x) / n;
    sum += term;
  }
  return sum;
}

function root(value) {
  const square = value << BITS;
  let guess = 1n << (BigInt(square.toString(2).length) / 2n + 1n);
  for (;;) {
    const next = (guess + square / guess) >> 1n;
    if (next >= guess) return guess;
    guess = next;
  }
}

/** The widest box around a centre whose two inequalities hold exactly for a coin of 2^53 words. */
function widestBox(epsilon, center) {
  const words = BigInt(WORDS);
  const factor = growth(exactly(epsilon));
  const odds = over(exactly(center), ONE - exactly(center));
  const rarer = odds < ONE ? odds : over(ONE, odds);
  const middle = times(rarer, factor - ONE);
  const reach = (middle + root(times(middle, middle) + 4n * factor)) >> 1n;
  const low = (words * odds + odds + reach - 1n) / (odds + reach); // rounded up
  const high = (words * times(odds, reach)) / (ONE + times(odds, reach)); // rounded down
  const yes = high << BITS <= factor * low; // high <= e^epsilon low
  const no = (words - low) << BITS <= factor * (words - high); // 1 - low <= e^epsilon (1 - high)
  if (!(low > 0n && low <= high && high < words && yes && no))
    throw new Error(`clamp's epsilon must be large enough for a box of 53 bits, got ${epsilon}`);
  return { low: Number(low) / WORDS, high: Number(high) / WORDS };
}

// ---- One round --------------------------------------------------------------------------------------------------

/** f'(x) of f(x) = sum of coefficients[t] x^powers[t], powers ascending: by Horner's rule, in turnout's order. */
function slope({ coefficients, powers }, x) {
  let total = 0;
  for (let term = powers.length - 1; term >= 0; term--) {
    total += powers[term] * coefficients[term];
    let step = term ? x : 1;
    for (let n = 1; term && n < powers[term] - powers[term - 1]; n++) step *= x;
    total *= step;
  }
  for (let n = 1; n < powers[0]; n++) total *= x;
  return total;
}

/** 53 random bits of the operating system, as a whole number. */
export const freshWord = () => Number(randomBytes(8).readBigUInt64BE() >> 11n);

/** What a device decides: `word` is the coin. All of it is private but the bit. */
export function decide({ box, cost, weight, state, signal, word }) {
  const average = Math.max(state.participations * (1 / state.rounds), SMALLEST_AVERAGE);
  const intent = inside(0, (signal * weight * average) / slope(cost, average), 1);
  const probability = inside(box.low, intent, box.high);
  return { average, intent, probability, participates: word / WORDS < probability };
}

/** The history one round later; `moved` is the bit or the probability, 0 for a round that was missed or not counted. */
export function after(state, moved, remember) {
  const rounds = Math.min(state.rounds + 1, remember ?? Infinity);
  return { participations: state.participations * ((rounds - 1) / state.rounds) + moved, rounds };
}

/** The history after `number` missed rounds; beyond 10,000 by a formula, because an offer may hold any number. */
export function missed(state, number, remember) {
  for (let n = 0; n < Math.min(number, 10_000); n++) state = after(state, 0, remember);
  const rest = Math.max(0, number - 10_000);
  const cap = remember ?? Infinity;
  const full = Math.max(0, rest - Math.max(0, cap - state.rounds)); // rounds in which older ones fade
  const fades = full ? (1 - 1 / cap) ** full : 1;
  return { participations: state.participations * fades, rounds: Math.min(state.rounds + rest, cap) };
}

// ---- Compared with turnout's own numbers ------------------------------------------------------------------------

function differences(found) {
  const box = agreed(found.mechanism);
  const made = decide({ ...found, box });
  const moved = found.by === "bit" ? Number(made.participates) : made.probability;
  const next = after(found.state, moved, found.remember);
  const taken = found.by === "bit" ? after(found.state, 0, found.remember) : next;
  const mine = { box: [box.low, box.high], ...made, next, next_if_not_counted: taken };
  return Object.keys(mine).filter((name) => JSON.stringify(mine[name]) !== JSON.stringify(found[name]));
}

if (process.argv[1] && import.meta.url === pathToFileURL(process.argv[1]).href) {
  const { cases } = JSON.parse(readFileSync(process.argv[2], "utf8"));
  const known = cases.filter(({ mechanism }) => ["clamp", "classical"].includes(mechanism.kind));
  const wrong = known.filter((found) => {
    const names = differences(found);
    if (names.length) console.error(`differs in ${names}: ${JSON.stringify(found)}`);
    return names.length;
  });
  console.log(`${known.length} of ${cases.length} cases are of mechanisms that this device knows; ${wrong.length} differ`);
  process.exit(wrong.length || !known.length ? 1 : 0);
}
