// What a device has on file: the ledger of all its reports, and the rounds of a run.

import { Ended, said } from "./coordinator.mjs";
import { after, missed } from "./decision.mjs";
import { Journal } from "./disk.mjs";

export const KEPT = 256; // rounds whose bits stay on file
const LINES = 4096; // after which a file of rounds is written again

/** All reports about the cost, in all runs: reserved before the coin is tossed, and never given back. */
export class Ledger {
  constructor(path, asked) {
    this.journal = new Journal(path);
    const usual = { reports: asked.reports ?? 10_000, epsilon: asked.epsilon ?? 1 };
    if (!this.journal.entries.length) this.journal.append({ limit: usual });
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
export class Rounds {
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
