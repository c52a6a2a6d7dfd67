// The requests of a device: each is repeated until the coordinator has answered it.

import { readFileSync } from "node:fs";
import http from "node:http";
import https from "node:https";

const REQUEST_SECONDS = 90; // for a whole request; more than the coordinator holds one
const LARGEST_REPLY = 64 * 1024;
const [FIRST_PAUSE, LONGEST_PAUSE] = [0.5, 60]; // seconds
const LONGEST_RETRY_AFTER = 3600;

/** Ends the device; a restart does not help. */
export class Ended extends Error {}

/** A line of the log; what a hostile coordinator sends cannot control the terminal. */
export function said(text) {
  console.log(`${new Date().toISOString()} ${String(text).slice(0, 400).replace(/[^\n\x20-\x7e]/g, "?")}`);
}

/** Seconds on a clock that nobody sets and that runs while the machine sleeps (on Linux). */
export function clock() {
  try {
    return Number(readFileSync("/proc/uptime", "utf8").split(" ")[0]);
  } catch {
    return Number(process.hrtime.bigint()) / 1e9;
  }
}

const pause = (seconds) => new Promise((done) => setTimeout(done, 1000 * seconds));

/** Pauses that grow: after n failures drawn evenly from 0 to 0.5 * 2^n seconds, so that a fleet does not return at once. */
export class Backoff {
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

export class Coordinator {
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

export const isOffer = (value) => Number.isSafeInteger(value?.round) && value.round >= 0 && typeof value.signal === "number";

export function isAnswer(value, round) {
  const outcome = ["accepted", "confirmed", "closed", "pending"].includes(value?.outcome);
  const types = typeof value?.counted === "boolean" && typeof value?.lease === "number";
  return outcome && types && value.round === round && (value.next === null || isOffer(value.next));
}

export function checkWelcome(value) {
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
