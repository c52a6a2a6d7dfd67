// The list of devices: the coordinator gives a page at a time, of one state or one number.
import { ask, send, sure } from "./asking.js";
import { by, element, number, say } from "./showing.js";

const PAUSE = 2000; // milliseconds: at least between two automatic updates
const STILL = 3000; // milliseconds after the last scroll or touch in which rows do not move by themselves
const NOBODY = { all: "No device has enrolled yet.", here: "No device is here.", gone: "No device is gone.", left: "No device has left." };
const rows = by("device-rows");
const state = by("device-states").elements;

let page = 1;
let shown = null; // the question that the rows answer
let asked = 0; // questions so far
let looked = 0; // when the last of them was asked
let waiting = 0;
let touched = 0;

const question = () => new URLSearchParams(by("device-number").value ? { number: by("device-number").value } : { state: state.state.value, page }).toString();

// Rows

const lineOf = (device) => {
  const row = element("tr", "");
  row.dataset.slot = device.slot;
  row.tabIndex = -1;
  const slot = Object.assign(element("th", device.slot), { scope: "row" });
  const tag = element("td", "", "wide");
  tag.append(element("code", device.tag));
  const is = element("td", "");
  is.append(element("span", device.state, `state ${device.state}`));
  const note = element("span", device.state === "left" ? `in round ${number(device.left)}` : `missed ${number(device.missed)}`, "note");
  if (device.state !== "left") note.append(element("span", " in a row", "wide"));
  if (device.missed !== 0) is.append(note);
  if (device.why) is.append(element("span", device.why, "note why"));
  const act = element("td", "");
  if (device.state !== "left") {
    const button = Object.assign(element("button", "Revoke…", "quiet"), { type: "button" });
    button.setAttribute("aria-label", `Revoke device ${device.slot}`);
    act.append(button);
  }
  row.append(slot, tag, element("td", number(device.weight)), element("td", number(device.joined)), is);
  if (device.state === "left") is.colSpan = 2; // nothing to revoke: the room is for the reason
  else row.append(act);
  return row;
};

// Changes a row only where it differs, so that the focus and a selection survive.
const renewed = (row, made) => {
  if (!row) return made;
  const cells = [...made.children];
  cells.forEach((cell, i) => { if (!cell.isEqualNode(row.children[i])) row.children[i].replaceWith(cell); });
  while (row.children.length > cells.length) row.lastElementChild.remove();
  return row;
};

const rowsNow = () => [...rows.children];
const row = (slot) => rowsNow().find((one) => one.dataset.slot === String(slot));

const isInUse = () => rows.matches(":hover, :focus-within") || by("ask").open || Date.now() - touched < STILL || (!getSelection().isCollapsed && rows.contains(getSelection().anchorNode));

const showRows = ({ devices, round }, isAsked) => {
  const made = devices.map((device) => renewed(row(device.slot), lineOf(device)));
  const differs = made.length !== rows.children.length || made.some((one, i) => one !== rows.children[i]);
  const waits = differs && !isAsked && isInUse();
  if (differs && !waits) rows.replaceChildren(...made);
  if (!waits) rows.dataset.round = round;
  say("devices-when", waits ? `As of round ${number(Number(rows.dataset.round))}: rows do not move while you use them.` : "");
  by("device-table").hidden = !rows.children.length;
};

const showList = (found, isAsked) => {
  const { counts } = found;
  for (const name of ["here", "gone", "left"]) say(`count-${name}`, number(counts[name]));
  say("count-all", number(counts.here + counts.gone + counts.left));
  showRows(found, isAsked);
  const first = (found.page - 1) * found.size + 1;
  const many = found.pages > 1 ? `${number(first)}–${number(first + found.devices.length - 1)} of ${number(found.found)}` : found.found > 1 ? `${number(found.found)} devices` : "";
  const none = by("device-number").value ? `No device has the number ${by("device-number").value}.` : NOBODY[state.state.value];
  say("devices-found", found.found ? many : none);
  by("device-pages").hidden = found.pages < 2;
  by("device-before").setAttribute("aria-disabled", found.page <= 1); // not disabled: that would lose the focus
  by("device-after").setAttribute("aria-disabled", found.page >= found.pages);
  page = found.page;
};

// Questions

const look = async () => {
  if (!by("device-number").validity.valid) return say("devices-found", "A device's number has digits only.");
  const asks = question();
  const mine = ++asked;
  looked = Date.now();
  try {
    const found = await ask(`/api/devices?${asks}`);
    if (mine !== asked) return; // a later one is on its way
    showList(found, shown !== asks);
    shown = question(); // the page may have been beyond the last
  } catch { /* the connection is lost, which is shown; the list comes again with it */ }
};

// Something has changed at the coordinator: look again, but not too often.
export const freshenDevices = () => {
  if (waiting || document.hidden) return;
  waiting = setTimeout(() => { waiting = 0; look(); }, Math.max(0, looked + PAUSE - Date.now()));
};

by("device-states").addEventListener("change", () => {
  by("device-number").value = "";
  page = 1;
  look();
});

by("device-number").addEventListener("input", () => {
  if (by("device-number").value) state.state.value = "all";
  page = 1;
  look();
});

by("device-look").addEventListener("submit", (event) => event.preventDefault()); // it has looked already

const turn = (pages) => async ({ currentTarget }) => {
  if (currentTarget.getAttribute("aria-disabled") === "true") return;
  page += pages;
  await look();
  if (by("devices").getBoundingClientRect().top < 0) by("devices").scrollIntoView();
};
by("device-before").addEventListener("click", turn(-1));
by("device-after").addEventListener("click", turn(1));

for (const kind of ["scroll", "touchstart"]) addEventListener(kind, () => { touched = Date.now(); }, { passive: true });

rows.addEventListener("click", async ({ target }) => {
  if (target.tagName !== "BUTTON") return;
  const { slot } = target.closest("tr").dataset;
  const text = "Its token becomes invalid, and it is no member from the open round on. To join again it needs a new code.";
  if (!(await sure(`Revoke device ${slot}?`, text, `Revoke device ${slot}`, true))) return;
  if (!(await send(`/api/devices/${slot}/revoke`, {}, "devices-said", () => `Done: device ${slot} is revoked.`))) return;
  try {
    const { devices } = await ask(`/api/devices?number=${slot}`); // a list of gone devices does not contain it any more
    if (row(slot)) renewed(row(slot), lineOf(devices[0])).focus({ preventScroll: true }); // as its button is gone
  } catch { /* the connection is lost, which is shown */ }
  look();
});
