// A device of a turnout coordinator in Node, without any library: docs/another-device.md explains every step.
//
//     node device.mjs https://coordinator.example:8443 --code CODE --cost 3.0 --folder charger
//
// What is durable, and in which order: (1) before enrolling, the code and a nonce; (2) the welcome; (3) in each round the
// report is reserved in the ledger, the coin is tossed, the bit is stored, and only then it is sent, the same again and
// again until it is answered; (4) the acknowledgement, before the next round is decided; (5) the agreement to another version
// of the rules, before a round is decided under it; (6) the marker of work, before work starts. Killed between any two of
// these, the next start continues from the files.
//
// Left out, and in turnout's own agent: mechanisms other than clamp and classical, a witness of the ledger (which notices
// that an older copy was restored), and acting on public data once the budget is spent.

import { createHash, randomBytes } from "node:crypto";
import { join } from "node:path";
import { parseArgs } from "node:util";

import { KEPT, Ledger, Rounds } from "./books.mjs";
import { Backoff, checkWelcome, clock, Coordinator, Ended, isAnswer, isOffer, said } from "./coordinator.mjs";
import { agreed, decide, freshWord } from "./decision.mjs";
import { makeFolder, putJson, readJson, remove, takeFolder } from "./disk.mjs";
import { Work } from "./work.mjs";

const LONGEST_POLL = 5; // seconds between two questions while the coordinator answers well
const LONGEST_LEASE = 3600;
const TOO_SOON = 0.25; // a "pending" that arrives sooner was not held
const MOST_CONFLICTS = 3;
const [RESTART_HELPS, FOR_GOOD] = [1, 3]; // exit status

class Device {
  constructor(url, options, cost) {
    Object.assign(this, { url, options, cost, folder: options.folder, conflicts: new Set() });
    this.coordinator = new Coordinator(url, options.ca);
    this.polling = new Backoff(LONGEST_POLL);
  }

  async run() {
    this.work = new Work(join(this.folder, "working.json"), this.options["on-participate"], this.options["on-stop"]);
    const limit = { reports: wholeOf("reports", this.options), epsilon: numberOf("epsilon-per-report", this.options) };
    this.ledger = new Ledger(join(this.folder, "ledger.jsonl"), { ...limit, raise: this.options["raise-limit"] });
    this.welcome = await this.#enrolled(); // not before: a wrong limit must not use up the code
    const { run, mechanism, offer } = this.welcome;
    const renewed = readJson(this.#file("agreement.json"));
    this.agreement = renewed?.run === run ? renewed : { run, rules: offer.rules ?? "", mechanism };
    this.box = await this.#agreed(this.agreement.mechanism);
    makeFolder(join(this.folder, this.welcome.run));
    this.rounds = new Rounds(join(this.folder, this.welcome.run, "rounds.jsonl"), this.welcome, this.ledger);
    const tag = createHash("sha256").update(this.welcome.token).digest("hex").slice(0, 8);
    said(`device ${tag} in run ${this.welcome.run}, ${this.ledger.spent} of ${this.ledger.limit.reports} reports spent`);
    const left = this.rounds.unacknowledged();
    let next = left && (await this.#report(left)); // before anything else, whatever is open
    for (;;) next = await this.#one(next ?? (await this.#open()));
  }

  /** The welcome on file, or a new one: what will be asked with is on file before it is asked. */
  async #enrolled() {
    const [file, asking] = [join(this.folder, "device.json"), join(this.folder, "enrolling.json")];
    const code = this.options.code?.trim();
    const known = readJson(file);
    let pending = readJson(asking);
    if (known && (!pending || pending.nonce === known.nonce) && (!code || code === known.code)) {
      if (known.url !== this.url) throw new Ended(`this device has enrolled at ${known.url}: give that address`);
      return known.welcome;
    }
    if (!pending || (code && pending.code !== code) || pending.url !== this.url) {
      if (!code) throw new Ended("this device has not enrolled: give --code");
      pending = { url: this.url, code, nonce: randomBytes(24).toString("base64url") };
      putJson(asking, pending);
    }
    for (let n = 0; n < 4; n++) {
      const { status, value } = await this.coordinator.ask("POST", "/v1/enrol", { code: pending.code, nonce: pending.nonce });
      if (status !== 200 && status !== 201) {
        remove(asking);
        throw new Ended(`the coordinator does not enrol this device: ${status} ${value?.message ?? ""}`);
      }
      if (value) {
        putJson(file, { ...pending, welcome: checkWelcome(value) });
        remove(asking);
        return value;
      }
      await this.coordinator.failed("a welcome that cannot be read"); // the same nonce is the same device again
    }
    throw new Ended("the coordinator's welcome is not JSON");
  }

  #file(name) {
    return join(this.folder, name);
  }

  /** Agree to the rules that are in force, on the disk before a round is decided under them; returns the open round. */
  async #renewed() {
    for (;;) {
      const { status, value } = await this.coordinator.ask("GET", "/v1/rules", undefined, this.welcome.token);
      if (status === 200 && isOffer(value?.offer) && value.run === this.welcome.run && value.mechanism?.kind) {
        const box = await this.#agreed(value.mechanism);
        const agreement = { run: value.run, rules: value.offer.rules ?? "", mechanism: value.mechanism };
        putJson(this.#file("agreement.json"), agreement);
        Object.assign(this, { agreement, box });
        said(`the run's rules have changed, as agreed: ${value.mechanism.kind}, epsilon ${box.epsilon} per report`);
        return value.offer;
      }
      await this.coordinator.failed("rules that cannot be read");
    }
  }

  /** The box of a proposed mechanism, if the owner allows it; a device that declines leaves. */
  async #agreed(mechanism) {
    try {
      const box = agreed(mechanism);
      if (box.epsilon === Infinity && !this.options["accept-uncertified"])
        throw new Error(`${mechanism.kind} promises nothing: accept it explicitly (--accept-uncertified)`);
      if (box.epsilon < Infinity && box.epsilon > this.ledger.limit.epsilon)
        throw new Error(`epsilon ${box.epsilon} per report is more than the ${this.ledger.limit.epsilon} that the owner allows`);
      return box;
    } catch (error) {
      await this.#leave(`declined: ${error.message}`);
    }
  }

  async #open() {
    for (;;) {
      const { status, value } = await this.coordinator.ask("GET", "/v1/round", undefined, this.welcome.token);
      if (status === 200 && isOffer(value)) {
        if (value.run !== this.welcome.run) throw new Ended(`the coordinator runs ${value.run} now: enrol with a new code`);
        this.coordinator.failing.reset();
        return value;
      }
      await this.coordinator.failed("a reply that is not of this protocol");
    }
  }

  /** One round to its end; returns the offer of the next, if it is known. */
  async #one(offer) {
    const { welcome, rounds } = this;
    let decision = rounds.decisions.get(offer.round);
    if (!decision && offer.round <= rounds.last) {
      if (rounds.last - offer.round > KEPT)
        throw new Ended(`round ${offer.round} is offered, this device is at ${rounds.last}: enrol in a new run`);
      return this.#sitOut(offer.round);
    }
    if (!decision && (offer.rules ?? "") !== this.agreement.rules) return this.#renewed();
    if (!decision) {
      const { reports } = this.ledger.limit;
      const remaining = reports - this.ledger.spent;
      if (remaining <= 0) await this.#leave(`all ${reports} reports are spent`);
      if (remaining === Math.floor(reports / 10)) said(`${remaining} of ${reports} reports are left: then this device leaves`);
      rounds.tidy();
      const state = rounds.before(offer.round);
      this.ledger.reserve(welcome.run, offer.round, this.box.epsilon); // on the disk before the coin is tossed
      const { box, cost } = this;
      const made = decide({ box, cost, weight: welcome.weight, state, signal: offer.signal, word: freshWord() });
      const moved = welcome.by === "bit" ? Number(made.participates) : made.probability;
      decision = { round: offer.round, kind: "tossed", participates: made.participates, moved, signal: offer.signal };
      rounds.add(decision); // on the disk before it is sent
    }
    return decision.kind === "lost" ? this.#sitOut(offer.round) : this.#report(decision);
  }

  /** Send the bit on file until it is settled; then, and only then, act on it. */
  async #report({ round, participates }) {
    const { coordinator, welcome } = this;
    for (;;) {
      const rules = this.agreement.rules ? { rules: this.agreement.rules } : {};
      const report = { run: welcome.run, round, participates, ...rules };
      const reply = await coordinator.ask("POST", "/v1/report", report, welcome.token);
      const refused = reply.status === 409 ? reply.value?.error : undefined;
      if (refused === "run") throw new Ended(`the coordinator does not run ${welcome.run} any more`);
      if (refused === "ahead" && isOffer(reply.value.next) && reply.value.next.round < round) {
        this.work.end(); // it was restored from a copy: what is on file is sent again
        await this.polling.wait();
        return reply.value.next;
      }
      if (refused === "rules") {
        await this.#renewed(); // the bit on file stays what it is
        continue;
      }
      if (refused === "conflict") return this.#conflict(round, reply.value.next);
      if (reply.status !== 200 || !isAnswer(reply.value, round)) {
        await coordinator.failed(`a reply that is not of this protocol (${reply.status})`);
        continue;
      }
      coordinator.failing.reset();
      if (reply.value.outcome !== "pending") return this.#settled(round, participates, reply);
      if (clock() - reply.sentAt < TOO_SOON) await this.polling.wait();
    }
  }

  async #settled(round, participates, { value, sentAt }) {
    this.conflicts.clear();
    const until = sentAt + Math.min(value.lease > 0 ? value.lease : 0, LONGEST_LEASE);
    const works = participates && value.counted && until > clock();
    if (!works) this.work.end();
    this.rounds.acknowledge(round, value.counted); // on the disk before anything else is decided
    if (works) this.work.grant(round, until);
    said(`round ${round}: ${participates ? "yes" : "no"}, ${value.outcome}${value.counted ? "" : ", not counted"}`);
    return this.#goOn(value.next, round);
  }

  /** The coordinator holds another bit than the one on file: no work, and the round is one without participation. */
  async #conflict(round, next) {
    this.work.end();
    this.rounds.acknowledge(round, false);
    said(`the coordinator holds another bit for round ${round}: no work in this round`);
    if (this.conflicts.add(round).size >= MOST_CONFLICTS)
      throw new Ended("another device uses a copy of this folder: stop both, and enrol each with a code of its own");
    return isOffer(next) && next.round !== round ? this.#goOn(next, round) : this.#sitOut(round);
  }

  /** To the next round at once; where there is none yet, or an older one, without haste. */
  async #goOn(next, round) {
    if (next && next.round > round) this.polling.reset();
    else await this.polling.wait();
    return next;
  }

  /** No report for this round: ask until another one is open. */
  async #sitOut(round) {
    for (;;) {
      await this.polling.wait();
      const offer = await this.#open();
      if (offer.round !== round) return offer;
    }
  }

  async #leave(why) {
    this.work.end();
    const reply = await this.coordinator.ask("POST", "/v1/leave", {}, this.welcome.token, 3);
    const heard = reply?.status === 200 || reply?.status === 401;
    throw new Ended(`${why}. ${heard ? "This device has left the run" : "The coordinator could not be told"}`);
  }
}

function readCost(options) {
  const found = options["cost-file"] ? readJson(options["cost-file"]) : { coefficients: [Number(options.cost)], powers: [2] };
  const { coefficients, powers = [2] } = found ?? {};
  const finite = coefficients?.length === powers.length && coefficients.every((a) => a >= 0 && a < Infinity);
  const convex = powers.every((power, t) => Number.isInteger(power) && power >= 2 && (!t || power > powers[t - 1]));
  if (!finite || !convex || !coefficients.some((a) => a > 0))
    throw new Ended("the cost must be --cost A, for A x^2, or a --cost-file with coefficients from 0, powers ascending from 2");
  return { coefficients, powers };
}

function numberOf(name, options) {
  const value = options[name] === undefined ? undefined : Number(options[name]);
  if (value !== undefined && !(value >= 0 && value < Infinity)) throw new Ended(`--${name} must be a number from 0`);
  return value;
}

function wholeOf(name, options) {
  const value = numberOf(name, options);
  if (value !== undefined && !Number.isSafeInteger(value)) throw new Ended(`--${name} must be a whole number from 0`);
  return value;
}

async function main() {
  const text = { type: "string" };
  const flag = { type: "boolean" };
  const { values, positionals } = parseArgs({
    allowPositionals: true,
    options: {
      code: { ...text, default: process.env.TURNOUT_CODE },
      folder: { ...text, default: "turnout-device" },
      cost: text,
      "cost-file": text,
      reports: text,
      "epsilon-per-report": text,
      "raise-limit": flag,
      "accept-uncertified": flag,
      "on-participate": text,
      "on-stop": text,
      ca: text,
    },
  });
  if (positionals.length !== 1) throw new Ended("give the coordinator's address, such as https://coordinator.example:8443");
  const cost = readCost(values);
  makeFolder(values.folder);
  takeFolder(values.folder);
  const device = new Device(positionals[0], values, cost);
  for (const signal of ["SIGTERM", "SIGINT"])
    process.on(signal, () => {
      device.work?.end();
      process.exit(0);
    });
  try {
    await device.run();
  } finally {
    device.work?.end();
  }
}

main().catch((error) => {
  said(error instanceof Ended ? error.message : error.stack);
  process.exit(error instanceof Ended ? FOR_GOOD : RESTART_HELPS);
});
