// The work of a device, under a lease.

import { spawn, spawnSync } from "node:child_process";

import { clock, said } from "./coordinator.mjs";
import { putJson, readJson, remove } from "./disk.mjs";

/** Work is on only under a lease and only with its marker on file, so that the next start ends what this one left on. */
export class Work {
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
  #signal({ pid }, name) {
    try {
      process.kill(-pid, name); // the whole group
    } catch {} // it has just ended
  }
  look() {
    if (this.until && clock() + 0.01 >= this.until) this.end(); // the clock has hundredths: rather too early
  }
  /** End it at once; if the command fails, again and again. */
  end() {
    clearTimeout(this.timer);
    if (!this.until && !readJson(this.marker)) return;
    this.until = 0;
    if (this.#running()) {
      const ended = this.process;
      this.#signal(ended, "SIGTERM");
      setTimeout(() => ended.exitCode ?? ended.signalCode ?? this.#signal(ended, "SIGKILL"), 10_000).unref();
    }
    if (this.stop && spawnSync(this.stop, { stdio: "ignore", timeout: 10_000 }).status !== 0) {
      said("ending work failed: it will be tried again");
      this.timer = setTimeout(() => this.end(), 5000);
      return;
    }
    remove(this.marker);
  }
}
