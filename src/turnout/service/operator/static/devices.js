// The sites, and the list of devices: the coordinator gives a page at a time, of one state, one site, or what was searched.
import { ask, send, sure } from "./asking.js";
import { by, element, number, say } from "./showing.js";

const PAUSE = 2000; // milliseconds: at least between two automatic updates
const STILL = 3000; // milliseconds after the last scroll or touch in which rows do not move by themselves
const NOBODY = { all: "No device has enrolled yet.", here: "No device is here.", gone: "No device is gone.", left: "No device has left." };
const WHICH = { all: "No device", here: "No device that is here", gone: "No device that is gone", left: "No device that has left" };
const SITES_PAUSE = 6000; // the same, for the sites: there may be hundreds
const NO_SITE = "no site";
const rows = by("device-rows");
const state = by("device-states").elements;

let page = 1;
let site = null; // the one that was chosen; "" is none
let shown = null; // the question that the rows answer
let asked = 0; // questions so far
let looked = 0; // when the last of them was asked
let waiting = 0;
let touched = 0;
let listed = []; // the devices of the rows
let sites = { found: 0, sites: [] };
let sitesLooked = 0;

const searched = () => by("device-search").value.trim();
const question = () => new URLSearchParams({ state: state.state.value, page, ...(searched() && { search: searched() }), ...(site !== null && { site }) }).toString();

// Rows

const nameOf = (device) => {
  const cell = element("td", "", "name");
  const button = Object.assign(element("button", device.label || "Name…", device.label ? "plain" : "plain none"), { type: "button" });
  button.dataset.edit = "";
  button.setAttribute("aria-label", device.label ? `${device.label}: change the names of device ${device.number}` : `Name device ${device.number}`);
  cell.append(button);
  const more = [device.site, device.note].filter(Boolean).join(", ");
  if (more) cell.append(element("span", more, "note"));
  return cell;
};

const lineOf = (device) => {
  const row = element("tr", "");
  row.dataset.number = device.number;
  row.tabIndex = -1;
  const head = Object.assign(element("th", device.number), { scope: "row" });
  const tag = element("td", "", "wide");
  tag.append(element("code", device.tag));
  const is = element("td", "");
  is.append(element("span", device.state, `state ${device.state}`));
  const note = element("span", device.state === "left" ? `in round ${number(device.left)}` : `missed ${number(device.missed)}`, "note");
  if (device.state !== "left") note.append(element("span", " in a row", "wide"));
  if (device.missed !== 0) is.append(note);
  const act = element("td", "");
  if (device.state !== "left") {
    const button = Object.assign(element("button", "Revoke…", "quiet"), { type: "button" });
    button.setAttribute("aria-label", `Revoke device ${device.number}`);
    act.append(button);
  }
  row.append(head, nameOf(device), tag, element("td", number(device.weight), "wide"), element("td", `round ${number(device.joined)}`, "wide"), is, act);
  return row;
};

// Changes a row only where it differs, so that the focus and a selection survive.
const renewed = (row, made) => {
  if (!row) return made;
  [...made.children].forEach((cell, i) => { if (!cell.isEqualNode(row.children[i])) row.children[i].replaceWith(cell); });
  return row;
};

const rowsNow = () => [...rows.children];
const row = (wanted) => rowsNow().find((one) => one.dataset.number === String(wanted));

const isInUse = () => rows.matches(":hover, :focus-within") || by("ask").open || by("naming").open || Date.now() - touched < STILL || (!getSelection().isCollapsed && rows.contains(getSelection().anchorNode));

const showRows = ({ devices, round }, isAsked) => {
  const made = devices.map((device) => renewed(row(device.number), lineOf(device)));
  const differs = made.length !== rows.children.length || made.some((one, i) => one !== rows.children[i]);
  const waits = differs && !isAsked && isInUse();
  if (differs && !waits) rows.replaceChildren(...made);
  if (!waits) rows.dataset.round = round;
  listed = waits ? [...devices, ...listed] : devices;
  say("devices-when", waits ? `As of round ${number(Number(rows.dataset.round))}: rows do not move while you use them.` : "");
  by("device-table").hidden = !rows.children.length;
};

const nobody = () => {
  const where = site === null ? "" : site ? ` at ${site}` : ` of ${NO_SITE}`;
  if (searched()) return `${WHICH[state.state.value]}${where} is found for “${searched()}”.`;
  return where && state.state.value === "all" ? `No device${where}.` : NOBODY[state.state.value].replace(".", `${where}.`);
};

const showList = (found, isAsked) => {
  const { counts } = found;
  for (const name of ["here", "gone", "left"]) say(`count-${name}`, number(counts[name]));
  say("count-all", number(counts.here + counts.gone + counts.left));
  showRows(found, isAsked);
  const first = (found.page - 1) * found.size + 1;
  const many = found.pages > 1 ? `${number(first)}–${number(first + found.devices.length - 1)} of ${number(found.found)}` : found.found > 1 ? `${number(found.found)} devices` : "";
  say("devices-found", found.found ? many : nobody());
  by("device-pages").hidden = found.pages < 2;
  by("device-before").setAttribute("aria-disabled", found.page <= 1); // not disabled: that would lose the focus
  by("device-after").setAttribute("aria-disabled", found.page >= found.pages);
  page = found.page;
};

// Sites

const siteLine = (counts) => {
  const line = element("tr", "");
  const head = Object.assign(element("th", ""), { scope: "row" });
  const button = Object.assign(element("button", counts.site || NO_SITE, counts.site ? "plain" : "plain none"), { type: "button" });
  button.dataset.site = counts.site;
  button.setAttribute("aria-pressed", counts.site === site);
  head.append(button);
  line.append(head, element("td", number(counts.here)), element("td", number(counts.gone), counts.gone ? "heed" : ""), element("td", number(counts.left)));
  return line;
};

const showSites = () => {
  const named = sites.sites.filter((one) => one.site);
  by("sites").hidden = !named.length;
  const made = sites.sites.map(siteLine);
  const old = by("site-rows").children;
  if (made.length !== old.length) by("site-rows").replaceChildren(...made);
  else made.forEach((line, i) => { if (!line.isEqualNode(old[i])) renewed(old[i], line); });
  by("sites-more").hidden = sites.found <= made.length;
  say("sites-more", `The first ${number(made.length)} of ${number(sites.found)} sites: find the others below.`);
  const names = named.map((one) => one.site);
  if (names.join("\n") !== [...by("site-names").children].map((one) => one.value).join("\n"))
    by("site-names").replaceChildren(...names.map((name) => Object.assign(element("option", ""), { value: name })));
};

const choose = (wanted) => {
  site = wanted;
  page = 1;
  by("site-chosen").hidden = site === null;
  say("site-name", site === null ? "" : site ? `Devices at ${site}.` : `Devices of ${NO_SITE}.`);
  showSites();
  look();
};

by("site-rows").addEventListener("click", ({ target }) => {
  if (target.tagName === "BUTTON") choose(target.dataset.site === site ? null : target.dataset.site);
});
by("site-all").addEventListener("click", () => { choose(null); by("device-search").focus({ preventScroll: true }); });

// Questions

const lookAtSites = async () => {
  sitesLooked = Date.now();
  sites = await ask("/api/sites");
  showSites();
};

const look = async (andSites = Date.now() - sitesLooked > SITES_PAUSE) => {
  const asks = question();
  const mine = ++asked;
  looked = Date.now();
  try {
    const [found] = await Promise.all([ask(`/api/devices?${asks}`), andSites && lookAtSites()]);
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

const lookAnew = () => { page = 1; look(); };
by("device-states").addEventListener("change", lookAnew);
by("device-search").addEventListener("input", lookAnew);
by("device-look").addEventListener("submit", (event) => event.preventDefault()); // it has looked already

const turn = (pages) => async ({ currentTarget }) => {
  if (currentTarget.getAttribute("aria-disabled") === "true") return;
  page += pages;
  await look();
  if (by("device-states").getBoundingClientRect().top < 0) by("device-states").scrollIntoView();
};
by("device-before").addEventListener("click", turn(-1));
by("device-after").addEventListener("click", turn(1));

for (const kind of ["scroll", "touchstart"]) addEventListener(kind, () => { touched = Date.now(); }, { passive: true });

// What the operator does

// The new names of a device, or null.
const asksNames = (device) => new Promise((decide) => {
  const dialog = by("naming");
  const { label, site: where, note } = by("naming-form").elements;
  say("naming-title", `Device ${device.number}`);
  say("naming-text", `Tag ${device.tag}, weight ${number(device.weight)}, joined in round ${number(device.joined)}. Names are for operators: the device does not see them.`);
  for (const [field, text] of [[label, device.label], [where, device.site], [note, device.note]]) field.value = text;
  dialog.returnValue = "no";
  dialog.onclose = () => { if (!dialog.open) decide(dialog.returnValue === "yes" ? { label: label.value, site: where.value, note: note.value } : null); };
  dialog.showModal();
  label.focus();
});
by("naming-no").addEventListener("click", () => by("naming").close("no"));

const rename = async (device) => {
  const names = await asksNames(device);
  if (!names) return;
  const made = await send(`/api/devices/${device.number}/name`, names, "devices-said", (now) => `Done: device ${now.number} is ${now.label ? `“${now.label}”` : "without a label"}.`);
  if (made && row(device.number)) renewed(row(device.number), lineOf(made));
  look(true);
};

const revoke = async (device) => {
  const called = device.label ? `device ${device.number}, “${device.label}”` : `device ${device.number}`;
  const text = "Its token becomes invalid, and it is no member from the open round on. To join again it needs a new code.";
  if (!(await sure(`Revoke ${called}?`, text, `Revoke device ${device.number}`, true))) return;
  if (!(await send(`/api/devices/${device.number}/revoke`, {}, "devices-said", () => `Done: ${called} is revoked.`))) return;
  try {
    const { devices } = await ask(`/api/devices?number=${device.number}`); // a list of gone devices does not contain it any more
    if (row(device.number)) renewed(row(device.number), lineOf(devices[0])).focus({ preventScroll: true }); // as its button is gone
  } catch { /* the connection is lost, which is shown */ }
  look(true);
};

rows.addEventListener("click", ({ target }) => {
  if (target.tagName !== "BUTTON") return;
  const device = listed.find((one) => String(one.number) === target.closest("tr").dataset.number);
  if (device) (target.dataset.edit === undefined ? revoke : rename)(device);
});
