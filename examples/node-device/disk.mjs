// Files that survive a crash: what has returned from here is on the disk. One process for each folder.

import { closeSync, existsSync, fsyncSync, ftruncateSync, linkSync, openSync } from "node:fs";
import { mkdirSync, readFileSync, renameSync, rmSync, writeSync } from "node:fs";
import { dirname, join, resolve } from "node:path";

/** A folder for this device alone, made if it is missing. */
export function makeFolder(folder) {
  mkdirSync(folder, { recursive: true, mode: 0o700 });
  syncFolder(dirname(resolve(folder)));
}

function syncFolder(folder) {
  const descriptor = openSync(folder, "r");
  try {
    fsyncSync(descriptor);
  } finally {
    closeSync(descriptor);
  }
}

function writeAll(descriptor, text) {
  let rest = Buffer.from(text);
  while (rest.length) rest = rest.subarray(writeSync(descriptor, rest));
  fsyncSync(descriptor);
}

/** Replace a whole small file: afterwards it is the old one or the new, never a part. */
export function put(path, text) {
  const descriptor = openSync(`${path}.new`, "w", 0o600);
  try {
    writeAll(descriptor, text);
  } finally {
    closeSync(descriptor);
  }
  renameSync(`${path}.new`, path);
  syncFolder(dirname(path));
}

export const putJson = (path, value) => put(path, `${JSON.stringify(value, null, 1)}\n`);

export const readJson = (path) => (existsSync(path) ? JSON.parse(readFileSync(path, "utf8")) : undefined);

export function remove(path) {
  rmSync(path, { force: true });
  syncFolder(dirname(path));
}

/** A file of JSON lines that only grows. A torn last line is dropped at opening: its `append` never returned. */
export class Journal {
  constructor(path) {
    this.path = path;
    const text = existsSync(path) ? readFileSync(path, "utf8") : "";
    const whole = text.slice(0, text.lastIndexOf("\n") + 1);
    try {
      this.entries = whole.split("\n").slice(0, -1).map((line) => JSON.parse(line));
    } catch (error) {
      throw new Error(`${path}: damaged before its last line (${error.message}): restore the newest copy`);
    }
    this.descriptor = openSync(path, "a", 0o600);
    ftruncateSync(this.descriptor, Buffer.byteLength(whole));
    fsyncSync(this.descriptor);
    syncFolder(dirname(path));
  }

  /** On return the line is on the disk. If this throws, end the process: the next one mends the file. */
  append(entry) {
    writeAll(this.descriptor, `${JSON.stringify(entry)}\n`);
    this.entries.push(entry);
  }

  /** All lines anew, at once. */
  rewrite(entries) {
    put(this.path, entries.map((entry) => `${JSON.stringify(entry)}\n`).join(""));
    closeSync(this.descriptor);
    this.descriptor = openSync(this.path, "a", 0o600);
    this.entries = entries;
  }
}

/** What tells a process from a later one with the same number; "" if it is gone. */
function identity(pid) {
  try {
    const fields = readFileSync(`/proc/${pid}/stat`, "utf8").split(")").pop().trim().split(" ");
    const boot = readFileSync("/proc/sys/kernel/random/boot_id", "utf8").trim();
    return fields[0] === "Z" ? "" : `${pid} ${fields[19]} ${boot}`;
  } catch {
    return "";
  }
}

/** Take a folder for this process. Node has no flock: a file names the owner, and one whose owner is gone is void. Two
 * that start in the same instant after a crash could both remove it: let one supervisor start the device. */
export function takeFolder(folder) {
  const [path, mine] = [join(folder, "lock"), join(folder, `lock.${process.pid}`)];
  put(mine, identity(process.pid));
  try {
    for (;;) {
      try {
        return linkSync(mine, path); // fails if there is one
      } catch (error) {
        if (error.code !== "EEXIST") throw error;
      }
      const owner = readFileSync(path, "utf8");
      if (owner && identity(owner.split(" ")[0]) === owner) throw new Error(`${folder}: another device runs here: stop it`);
      rmSync(path, { force: true });
    }
  } finally {
    rmSync(mine, { force: true });
  }
}
