// One-time codes: making them, and the list of those that were made, without the codes themselves.
import { ask, send, sure } from "./asking.js";
import { by, element, number, say, span } from "./showing.js";

const NONE = { unused: "No unused code.", used: "No device has used one.", expired: "None has expired.", void: "None is void." };
const rows = by("code-rows");
const state = by("code-states").elements;

let page = 1;
let asked = 0; // questions so far

// Making

by("codes-form").addEventListener("submit", async (event) => {
  event.preventDefault();
  const { count, weight, hours, label, site, note } = event.target.elements;
  const names = { label: label.value, site: site.value, note: note.value };
  const made = await send("/api/codes", { count: count.valueAsNumber, weight: weight.valueAsNumber, hours: hours.valueAsNumber, ...names }, "codes-said", () => "");
  if (!made) return;
  label.value = "";
  by("codes").value = made.codes.join("\n");
  by("codes-made").hidden = false;
  const called = [names.label && `“${names.label}”`, names.site && `site “${names.site}”`].filter(Boolean).map((text) => `, ${text}`).join("");
  say("codes-note", `${number(made.codes.length)} of weight ${number(made.weight)}${called}, valid for ${number(made.hours)} hours, one device each. They are shown only once: the coordinator keeps only their hashes.`);
  by("copy").focus();
  look();
});

by("copy").addEventListener("click", async () => {
  by("codes").select();
  try {
    await navigator.clipboard.writeText(by("codes").value);
  } catch {
    document.execCommand("copy"); // without TLS a browser has no clipboard of the new kind
  }
  by("codes-said").className = "said good";
  say("codes-said", "Copied.");
});

by("hide").addEventListener("click", () => {
  by("codes").value = "";
  by("codes-made").hidden = true;
  say("codes-said", "");
  by("codes-form").elements.count.focus();
});

// The list

const validity = (code) => {
  if (code.state === "used") return `device ${code.device}`;
  if (code.state !== "unused") return code.state;
  return code.expires_at === null ? "for ever" : `for ${span(code.expires_at - Date.now() / 1000)}`;
};

const lineOf = (code) => {
  const row = element("tr", "");
  row.dataset.tag = code.tag;
  row.dataset.label = code.label;
  const name = Object.assign(element("th", ""), { scope: "row" });
  if (code.label) name.append(element("span", code.label));
  name.append(element("code", code.tag, code.label ? "note" : ""));
  const more = [code.site, code.note, code.weight === 1 ? "" : `weight ${number(code.weight)}`].filter(Boolean).join(", ");
  if (more) name.append(element("span", more, "note"));
  const act = element("td", "");
  if (code.state === "unused") {
    const button = Object.assign(element("button", "Void…", "quiet"), { type: "button" });
    button.setAttribute("aria-label", `Void code ${code.label || code.tag}`);
    act.append(button);
  }
  row.append(name, element("td", validity(code)), act);
  return row;
};

const look = async () => {
  if (!by("codes-list").open) return;
  const search = by("code-search").value;
  const mine = ++asked;
  try {
    const found = await ask(`/api/codes?${new URLSearchParams({ state: state.state.value, search, page })}`);
    if (mine !== asked) return; // a later one is on its way
    for (const [name, count] of Object.entries(found.counts)) say(`codes-${name}`, number(count));
    rows.replaceChildren(...found.codes.map(lineOf));
    by("code-table").hidden = !found.found;
    const first = (found.page - 1) * found.size + 1;
    const many = found.pages > 1 ? `${number(first)}–${number(first + found.codes.length - 1)} of ${number(found.found)}` : "";
    say("codes-found", found.found ? many : search ? `None is found for “${search}”.` : NONE[state.state.value]);
    by("code-pages").hidden = found.pages < 2;
    by("code-before").setAttribute("aria-disabled", found.page <= 1);
    by("code-after").setAttribute("aria-disabled", found.page >= found.pages);
    page = found.page;
  } catch { /* the connection is lost, which is shown */ }
};

const lookAnew = () => { page = 1; look(); };
by("codes-list").addEventListener("toggle", lookAnew);
by("code-states").addEventListener("input", lookAnew);
by("code-states").addEventListener("submit", (event) => event.preventDefault()); // it has looked already
const turn = (pages) => ({ currentTarget }) => {
  if (currentTarget.getAttribute("aria-disabled") === "true") return;
  page += pages;
  look();
};
by("code-before").addEventListener("click", turn(-1));
by("code-after").addEventListener("click", turn(1));

rows.addEventListener("click", async ({ target }) => {
  if (target.tagName !== "BUTTON") return;
  const { tag, label } = target.closest("tr").dataset;
  const called = label ? `“${label}” (${tag})` : tag;
  if (!(await sure(`Void code ${label || tag}?`, `Nobody can enrol with code ${called} any more.`, "Void it", true))) return;
  await send(`/api/codes/${tag}/void`, {}, "void-said", () => `Done: code ${tag} is void.`);
  look();
});
