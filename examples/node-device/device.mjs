// A device of a turnout coordinator in Node, without any library: docs/another-device.md explains every step.
//
//     node device.mjs https://coordinator.example:8443 --code CODE --cost 3.0 --folder charger
//
// What is durable, and in which order: (1) before enrolling, the code and a nonce; (2) the welcome; (3) in each round the
// report is reserved in the ledger, the coin is tossed, the bit is stored, and only then it is sent, the same again and
// again until it is answered; (4) the acknowledgement, before the next round is decided; (5) the marker of work, before
// work starts. Killed between any two of these, the next start continues from the files.
//
// Left out, and in turnout's own agent: mechanisms other than clamp and classical, a witness of the ledger (which notices
// that an older copy was restored), and acting on public data once the budget is spent.

import { spawn, spawnSync } from "node:child_process";
import { randomBytes, createHash } from "node:crypto";
import { mkdirSync, readFileSync } from "node:fs";
import http from "node:http";
import https from "node:https";
import { join } from "node:path";
import { parseArgs } from "node:util";

import { after, agreed, decide, freshWord, missed } from "./decision.mjs";
import { Journal, putJson, readJson, remove, takeFolder } from "./disk.mjs";

const REQUEST_SECONDS = 90; // for a whole request; more than the coordinator holds one
const LARGEST_REPLY = 64 * 1024;
const [FIRST_PAUSE, LONGEST_PAUSE, LONGEST_POLL] = [0.5, 60, 5]; // seconds
const LONGEST_RETRY_AFTER = 3600;
const LONGEST_LEASE = 3600;
const TOO_SOON = 0.25; // a "pending" that arrives sooner was not held
const KEPT = 256; // rounds whose bits stay on file
const LINES = 4096; // after which a file of rounds is written again
const MOST_CONFLICTS = 3;
const RESTART_HELPS = 1;
const FOR_GOOD = 3; // exit status: starting again would not help

/** Ends the device; a restart does not help. */
class Ended extends Error {}

const said = (text) => console.log(`${new Date().toISOString()} ${String(text).replace(/[^\x20-\x7e]/g, "?").slice(0, 400)}`);

/** Seconds on a clock that nobody sets and that runs while the machine sleeps (on Linux). */
function clock() {
  try {
    return Number(readFileSync("/proc/uptime", "utf8").split(" ")[0]);
  } catch {
    return Number(process.hrtime.bigint()) / 1e9;
  }
}

const pause = (seconds) => new Promise((done) => setTimeout(done, 1000 * seconds));

/** Pauses that grow: after n failures drawn evenly from 0 to 0.5 * 2^n seconds, so that a fleet does not return at once. */
class Backoff {
  failures = 0;
  constructor(longest) {
    this.longest = longest;
  }
  async wait(atLeast = 0) {
    const most = Math.min(this.longest, FIRST_PAUSE * 2 ** Math.min(this.failures++, 30));
    await pause(atLeast + Math.random() * most);
  }
  reset() {
    this.failures = 0;
  }
}

// ---- Requests: each is repeated until the coordinator has answered it -------------------------------------------

class Coordinator {
  constructor(url, ca) {
    this.base = new URL(url);
    this.http = this.base.protocol === "https:" ? https : http;
    this.agent = new this.http.Agent({ keepAlive: true, maxSockets: 1, ...(ca ? { ca: readFileSync(ca) } : {}) });
    this.failing = new Backoff(LONGEST_PAUSE);
  }

  /** One request: its status, its JSON (undefined if it is none) and how long to wait. */
  #send(method, path, body, token) {
    return new Promise((done, fail) => {
      const headers = { Accept: "application/json" };
      if (body) headers["Content-Type"] = "application/json";
      if (token) headers.Authorization = `Bearer ${token}`;
      const prefix = this.base.pathname.replace(/\/$/, "");
      const { protocol, hostname, port } = this.base;
      const where = { protocol, hostname: hostname.replace(/^\[|\]$/g, ""), port, path: prefix + path };
      const request = this.http.request({ ...where, method, headers, agent: this.agent }, (reply) => {
        const parts = [];
        let size = 0;
        reply.on("data", (part) => {
          parts.push(part);
          if ((size += part.length) > LARGEST_REPLY) request.destroy(new Error("a reply that is too long"));
        });
        reply.on("error", fail);
        reply.on("end", () => {
          if (!reply.complete) return fail(new Error("a reply that ended early"));
          let value;
          try {
            value = JSON.parse(Buffer.concat(parts).toString("utf8"));
          } catch {} // undefined: whoever asked tries again
          const wait = /^\d{1,9}$/.test(reply.headers["retry-after"] ?? "") ? Number(reply.headers["retry-after"]) : 0;
          done({ status: reply.statusCode, value: value ?? undefined, wait: Math.min(wait, LONGEST_RETRY_AFTER) });
        });
      });
      const timer = setTimeout(() => request.destroy(new Error("no whole reply in time")), 1000 * REQUEST_SECONDS);
      request.on("close", () => clearTimeout(timer));
      request.on("error", fail);
      request.end(body && JSON.stringify(body));
    });
  }

  /** Until there is an answer that is not "later"; with when the answered request was sent: a lease counts from there. */
  async ask(method, path, body, token, tries = Infinity) {
    for (let n = 0; n < tries; n++) {
      const sentAt = clock();
      let reply;
      try {
        reply = await this.#send(method, path, body, token);
      } catch (error) {
        await this.failed(error.message || error.code);
        continue;
      }
      if ([408, 425, 429].includes(reply.status) || reply.status >= 500) {
        await this.failed(`${reply.status} ${reply.value?.message ?? ""}`, reply.wait);
        continue;
      }
      if (reply.status === 401 && token && path !== "/v1/leave")
        throw new Ended(`the coordinator does not know this device any more (${reply.value?.message}): ask for a new code`);
      return { ...reply, sentAt };
    }
  }

  async failed(why, wait) {
    said(`will be tried again: ${why}`);
    await this.failing.wait(wait);
  }
}

const isOffer = (value) => Number.isSafeInteger(value?.round) && value.round >= 0 && typeof value.signal === "number";

function isAnswer(value, round) {
  const outcome = ["accepted", "confirmed", "closed", "pending"].includes(value?.outcome);
  const types = typeof value?.counted === "boolean" && typeof value?.lease === "number";
  return outcome && types && value.round === round && (value.next === null || isOffer(value.next));
}

function checkWelcome(value) {
  const bad = (name) => {
    throw new Ended(`the coordinator's welcome cannot be used: its ${name} is not what docs/another-device.md says`);
  };
  if (value.version !== 1) bad("version");
  if (!/^[a-z0-9][a-z0-9-]{0,62}$/.test(value.run)) bad("run");
  if (!/^[A-Za-z0-9_-]{20,200}$/.test(value.token)) bad("token");
  if (!(Number.isSafeInteger(value.weight) && value.weight >= 1)) bad("weight");
  if (!(value.prior_average > 0 && value.prior_average <= 1)) bad("prior_average");
  if (!(value.prior_rounds > 0 && value.prior_rounds < Infinity)) bad("prior_rounds");
  if (!(value.remember === null || value.remember >= 1)) bad("remember");
  if (!["bit", "probability"].includes(value.by)) bad("by");
  if (typeof value.mechanism?.kind !== "string") bad("mechanism");
  if (!isOffer(value.offer)) bad("offer");
  return value;
}

// ---- What is on file --------------------------------------------------------------------------------------------

/** All reports about the cost, in all runs: reserved before the coin is tossed, and never given back. */
class Ledger {
  constructor(path, asked) {
    this.journal = new Journal(path);
    if (!this.journal.entries.length) this.journal.append({ limit: { reports: asked.reports ?? 10_000, epsilon: asked.epsilon ?? 1 } });
    const limits = this.journal.entries.filter((entry) => entry.limit);
    const limit = { ...limits[limits.length - 1].limit };
    for (const name of ["reports", "epsilon"]) {
      if (asked[name] > limit[name] && !asked.raise)
        throw new Ended(`${path}: it allows ${name} ${limit[name]}, got ${asked[name]}: add --raise-limit if the owner agrees`);
    }
    this.limit = { reports: asked.reports ?? limit.reports, epsilon: asked.epsilon ?? limit.epsilon };
    if (JSON.stringify(this.limit) !== JSON.stringify(limit)) this.journal.append({ limit: this.limit });
  }
  get spent() {
    return this.journal.entries.filter((entry) => entry.run !== undefined).length;
  }
  reserved(run) {
    return this.journal.entries.filter((entry) => entry.run === run).map((entry) => entry.round);
  }
  reserve(run, round, epsilon) {
    this.journal.append({ run, round, epsilon: Number.isFinite(epsilon) ? epsilon : "infinite" });
  }
}

/** The rounds of one run: what was decided and what the coordinator acknowledged. */
class Rounds {
  constructor(path, welcome, ledger) {
    this.welcome = welcome;
    this.journal = new Journal(path);
    const { prior_average, prior_rounds, offer } = welcome;
    const start = { participations: prior_average * prior_rounds, rounds: prior_rounds };
    if (!this.journal.entries.length) this.journal.append({ entry: "begun", state: start, last: offer.round - 1 });
    this.#replay();
    const reserved = new Set(ledger.reserved(welcome.run));
    const unknown = [...this.decisions.values()].filter(({ round }) => !reserved.has(round));
    if (unknown.length) throw new Ended(`the ledger lacks ${unknown.length} reports of ${welcome.run}: restore the newest copy`);
    const open = [...reserved].filter((round) => round > this.last);
    if (open.length > 1) throw new Ended(`${path} lacks ${open.length} rounds that were reserved: restore the newest copy`);
    for (const round of open) this.add({ round, kind: "lost", participates: false, moved: 0 }); // a coin may have been tossed
  }

  #replay() {
    this.base = this.journal.entries[0];
    this.decisions = new Map();
    for (const entry of this.journal.entries.slice(1)) {
      if (entry.entry === "decided") this.decisions.set(entry.round, entry);
      else this.decisions.set(entry.round, { ...this.decisions.get(entry.round), counted: entry.counted });
    }
  }

  get last() {
    return Math.max(this.base.last, ...this.decisions.keys());
  }

  /** The newest decision, if the coordinator's answer to it is not on file. */
  unacknowledged() {
    const found = this.decisions.get(this.last);
    return found && found.kind !== "lost" && found.counted === undefined ? found : undefined;
  }

  add(decision) {
    this.journal.append({ entry: "decided", ...decision });
    this.decisions.set(decision.round, decision);
  }

  acknowledge(round, counted) {
    const known = this.decisions.get(round);
    if (known.counted !== undefined) {
      if (known.counted !== counted) said(`round ${round} was acknowledged as counted ${known.counted} before: that stays`);
      return;
    }
    this.journal.append({ entry: "acknowledged", round, counted });
    this.decisions.set(round, { ...known, counted });
  }

  /** The history before a round later than the last: what was not counted or was missed is a round without participation. */
  before(round, decisions = this.decisions.values()) {
    const { remember, by } = this.welcome;
    let { state, last } = this.base;
    for (const decision of decisions) {
      const takenBack = decision.counted === false && by === "bit"; // a probability stays: the state must not hold the bit
      state = after(missed(state, decision.round - 1 - last, remember), takenBack ? 0 : decision.moved, remember);
      last = decision.round;
    }
    return missed(state, round - 1 - last, remember);
  }

  /** If the file has grown long: older rounds remain in the history alone. */
  tidy() {
    if (this.journal.entries.length < LINES) return;
    const all = [...this.decisions.values()];
    const older = all.slice(0, -KEPT);
    const last = older.length ? older[older.length - 1].round : this.base.last;
    const begun = { entry: "begun", state: this.before(last + 1, older), last };
    this.journal.rewrite([begun, ...all.slice(-KEPT).map((decision) => ({ entry: "decided", ...decision }))]);
    this.#replay();
  }
}

// ---- Work under a lease -----------------------------------------------------------------------------------------

/** Work is on only under a lease and only with its marker on file, so that the next start ends what this one left on. */
class Work {
  constructor(marker, start, stop) {
    Object.assign(this, { marker, start, stop, until: 0 });
    if (readJson(marker)) this.end();
    setInterval(() => this.look(), 500).unref(); // a sleeping machine wakes no timer
  }
  grant(round, until) {
    putJson(this.marker, { round });
    this.until = until;
    this.round = round;
    if (this.start && !this.#running()) {
      const lease = Math.max(0, until - clock()).toFixed(3);
      const env = { ...process.env, TURNOUT_ROUND: String(round), TURNOUT_LEASE_SECONDS: lease };
      this.process = spawn(this.start, { stdio: "ignore", env, detached: true });
      this.process.on("error", (error) => said(`starting work failed: ${error.message}`));
    }
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.look(), 1000 * Math.max(0, until - clock()));
  }
  #running() {
    return this.process?.pid && this.process.exitCode === null && this.process.signalCode === null;
  }
  #signal(name) {
    try {
      process.kill(-this.process.pid, name); // the whole group
    } catch {} // it has just ended
  }
  look() {
    if (this.until && clock() >= this.until) this.end();
  }
  /** End it at once; if the command fails, again and again. */
  end() {
    clearTimeout(this.timer);
    if (!this.until && !readJson(this.marker)) return;
    this.until = 0;
    if (this.#running()) this.#signal("SIGTERM");
    if (this.stop && spawnSync(this.stop, { stdio: "ignore", timeout: 10_000 }).status !== 0) {
      said("ending work failed: it will be tried again");
      this.timer = setTimeout(() => this.end(), 5000);
      return;
    }
    remove(this.marker);
  }
}

// ---- The device -------------------------------------------------------------------------------------------------

class Device {
  constructor(url, options, cost) {
    Object.assign(this, { url, options, cost, folder: options.folder, conflicts: new Set() });
    this.coordinator = new Coordinator(url, options.ca);
    this.polling = new Backoff(LONGEST_POLL);
  }

  async run() {
    this.work = new Work(join(this.folder, "working.json"), this.options["on-participate"], this.options["on-stop"]);
    const { reports, "epsilon-per-report": epsilon, "raise-limit": raise } = this.options;
    this.welcome = await this.#enrolled();
    this.ledger = new Ledger(join(this.folder, "ledger.jsonl"), { reports: reports && Number(reports), epsilon: epsilon && Number(epsilon), raise });
    this.box = await this.#agreed();
    mkdirSync(join(this.folder, this.welcome.run), { recursive: true, mode: 0o700 });
    this.rounds = new Rounds(join(this.folder, this.welcome.run, "rounds.jsonl"), this.welcome, this.ledger);
    const tag = createHash("sha256").update(this.welcome.token).digest("hex").slice(0, 8);
    said(`device ${tag} in run ${this.welcome.run}, ${this.ledger.spent} of ${this.ledger.limit.reports} reports spent`);
    const left = this.rounds.unacknowledged();
    let offer = left && (await this.#report(left)); // before anything else, whatever is open
    for (;;) offer = await this.#one(offer ?? (await this.#open()));
  }

  /** The welcome on file, or a new one: what will be asked with is on file before it is asked. */
  async #enrolled() {
    const [file, asking] = [join(this.folder, "device.json"), join(this.folder, "enrolling.json")];
    const [known, code] = [readJson(file), this.options.code?.trim()];
    if (known && (!code || code === known.code)) {
      if (known.url !== this.url) throw new Ended(`this device has enrolled at ${known.url}: give that address, or another folder`);
      return known.welcome;
    }
    let pending = readJson(asking);
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

  /** The box of the proposed mechanism, if the owner allows it; a device that declines leaves. */
  async #agreed() {
    try {
      const box = agreed(this.welcome.mechanism);
      if (box.epsilon === Infinity && !this.options["accept-uncertified"])
        throw new Error(`${this.welcome.mechanism.kind} promises nothing: accept it explicitly (--accept-uncertified)`);
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
      if (rounds.last - offer.round > KEPT) throw new Ended(`the coordinator offers round ${offer.round}, this device is at ${rounds.last}: enrol in a new run`);
      return this.#sitOut(offer.round);
    }
    if (!decision) {
      if (this.ledger.spent >= this.ledger.limit.reports) await this.#leave(`all ${this.ledger.limit.reports} reports are spent`);
      rounds.tidy();
      const state = rounds.before(offer.round);
      this.ledger.reserve(welcome.run, offer.round, this.box.epsilon); // on the disk before the coin is tossed
      const made = decide({ box: this.box, cost: this.cost, weight: welcome.weight, state, signal: offer.signal, word: freshWord() });
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
      const reply = await coordinator.ask("POST", "/v1/report", { run: welcome.run, round, participates }, welcome.token);
      if (reply.status === 409 && reply.value?.error === "run") throw new Ended(`the coordinator does not run ${welcome.run} any more`);
      if (reply.status === 409 && reply.value?.error === "ahead" && isOffer(reply.value.next) && reply.value.next.round < round) {
        this.work.end(); // it was restored from a copy: what is on file is sent again
        await this.polling.wait();
        return reply.value.next;
      }
      if (reply.status === 409 && reply.value?.error === "conflict") return this.#conflict(round, reply.value.next);
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
  const good = coefficients?.length === powers.length && coefficients.every((a) => a >= 0 && a < Infinity) && coefficients.some((a) => a > 0);
  if (!good || !powers.every((power, t) => Number.isInteger(power) && power >= 2 && (!t || power > powers[t - 1])))
    throw new Ended("the cost must be --cost A, for A x^2, or --cost-file FILE.json with coefficients from 0 and ascending powers from 2");
  return { coefficients, powers };
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
  mkdirSync(values.folder, { recursive: true, mode: 0o700 });
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
