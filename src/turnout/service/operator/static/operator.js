// The operator's page: shows each event of the coordinator, draws the last rounds, and sends what is asked for.
import { ask, at, send, sure } from "./asking.js";
import "./codes.js";
import { freshenDevices } from "./devices.js";
import { by, css, element, number, say, span } from "./showing.js";

const SHOWN = 500; // rounds
const SILENCE = 15000; // milliseconds without a sign of life: the connection is lost, whatever the browser believes
const PALETTE = { turnout: "#3072df", hard: "#b72494", signal: "#18a07e", heard: "#9189c6", seconds: "#d97230" };

let snapshot = null;
let rounds = [];
let received = 0; // when the snapshot was received

// What the tiles and lists show

const MODES = { running: "Running", draining: "Draining", paused: "Paused", stopped: "Stopping" };
const MODE_NOTES = { running: "rounds close", draining: "pauses after this round", paused: "no round closes", stopped: "nobody participates" };

const show = () => {
  const now = snapshot;
  const last = rounds.at(-1);
  document.title = `${now.troubles.length ? "⚠ " : ""}${now.run}: ${last ? number(last.participants) : "–"} of ${number(now.capacity)}`;
  say("run", now.run);
  by("turnout").replaceChildren(last ? number(last.participants) : "–", element("small", ` of ${number(now.capacity)}`));
  const off = last && now.capacity ? (100 * (last.participants - now.capacity)) / now.capacity : null;
  const limit = now.hard_limit === null ? "no hard limit" : `hard limit ${number(now.hard_limit)}`;
  const closing = now.mode === "running" || now.mode === "draining";
  const when = closing ? "" : `in round ${number(last ? last.round : 0)}, the last that closed: `;
  say("turnout-note", off === null ? limit : `${when}${off < 0 ? "−" : "+"}${Math.abs(off).toFixed(1)} %, ${limit}`);
  say("mode", MODES[now.mode] || now.mode);
  by("mode").className = now.mode === "running" ? "value" : "value heed";
  say("mode-note", now.leader ? MODE_NOTES[now.mode] || "" : "another process closes rounds");
  say("round", number(now.round));
  by("heard").replaceChildren(number(now.heard), element("small", ` of ${number(now.members)}`));
  say("heard-note", now.members ? `${Math.floor((100 * now.heard) / now.members)} % of the devices` : "no device yet");
  say("late", number(now.late));
  say("gone", number(now.gone));
  by("gone").className = now.gone > 0.5 * now.members ? "value alarm" : "value";
  showNotices(now);
  say("account", now.account.text);
  say("budget", now.budget ? `Budgets: ${now.budget}.` : "");
  showFaults(now.faults);
  for (const button of by("modes").children)
    button.disabled = button.dataset.mode === now.mode || (button.dataset.mode === "draining" && now.mode !== "running");
  say("capacity-now", `now ${number(now.capacity)}`);
  if (!by("capacity").value && document.activeElement !== by("capacity")) by("capacity").value = now.capacity;
  const rules = now.rules && now.rules.version > 1 ? ` Rules: version ${now.rules.version} since round ${now.rules.since}.` : "";
  say("foot", `turnout ${now.version}, up for ${span(now.uptime)}.${rules} This page never shows what a device decided.`);
  tick();
};

const showNotices = (now) => {
  by("troubles").hidden = !now.troubles.length;
  if ([...by("troubles").children].map((item) => item.textContent).join() !== now.troubles.join())
    by("troubles").replaceChildren(...now.troubles.map((text) => element("li", text)));
  const waits = now.waiting_for > 0;
  by("waiting").hidden = !waits;
  say("waiting", waits ? `Waiting for ${number(now.waiting_for)} more ${now.waiting_for === 1 ? "device" : "devices"} to enrol: no round closes before that.` : "");
};

const showFaults = (faults) => {
  const found = Object.entries(faults).sort(([one, n], [other, m]) => (m > 0) - (n > 0) || m - n || one.localeCompare(other));
  by("no-faults").hidden = found.length > 0;
  list("faults", found.map(([name, count]) => [name, number(count), count ? "some" : "none"]));
};

// A list of names and values, touched only where it differs, so that a selection survives.
const list = (id, rows) => {
  const made = rows.flatMap(([name, value, look = ""]) => [element("dt", name, look), element("dd", value, look)]);
  const box = by(id);
  if (box.children.length !== made.length || made.some((part, i) => !part.isEqualNode(box.children[i]))) box.replaceChildren(...made);
};

const tick = () => {
  if (!snapshot) return;
  const open = snapshot.open_seconds + (Date.now() - received) / 1000;
  const until = snapshot.mode === "running" || snapshot.mode === "draining" ? `, deadline ${number(snapshot.deadline, 3)} s` : "";
  if (document.body.dataset.link === "live")
    say("round-note", snapshot.waiting_for ? "waits for devices" : `open for ${span(open)}${until}`);
};

const showLog = async () => {
  try {
    const { changes } = await ask("/api/log");
    const zone = new Date().toLocaleTimeString("en", { timeZoneName: "short" }).split(" ").pop();
    say("when", `When (${zone})`);
    const rows = changes.slice(-20).reverse().map((change) => {
      const row = document.createElement("tr");
      const when = new Date(1000 * change.at);
      const time = element("time", when.toLocaleString("sv").slice(5, 19));
      time.dateTime = when.toISOString();
      const first = document.createElement("td");
      first.append(time);
      row.append(first, element("td", change.what), element("td", change.detail), element("td", change.who));
      return row;
    });
    by("no-changes").hidden = rows.length > 0;
    by("changes").hidden = rows.length === 0;
    by("changes").tBodies[0].replaceChildren(...rows);
  } catch { /* the connection is lost, which is shown; the log comes again with it */ }
};

// Plots

const line = (y, name, colour, more = {}) => {
  const { dash = "solid", width = 2, ...rest } = more;
  return { type: "scatter", mode: "lines", x: rounds.map((round) => round.round), y, name, line: { color: colour, dash, width, ...rest.line }, hovertemplate: "%{y:,.6~g}", ...rest.trace };
};

const waits = (round) => round.frozen || round.beyond_reach;

const frozenParts = () => {
  const parts = [];
  for (const one of rounds) {
    const round = one.round, frozen = waits(one);
    const last = parts.at(-1);
    if (frozen && last && last.x1 === round - 0.5) last.x1 = round + 0.5;
    else if (frozen)
      parts.push({ type: "rect", xref: "x", yref: "paper", x0: round - 0.5, x1: round + 0.5, y0: 0, y1: 1, fillcolor: css("--frozen"), line: { width: 0 }, layer: "below" });
  }
  return parts;
};

const layout = (box, more, title) => {
  const ticks = { automargin: true, gridcolor: css("--grid"), linecolor: css("--line"), tickcolor: css("--line"), zeroline: false, fixedrange: true, separatethousands: true, minexponent: 6, nticks: 5 };
  const empty = { text: "No round has closed yet", showarrow: false, xref: "paper", yref: "paper", x: 0.5, y: 0.5, font: { color: css("--muted"), size: 14 } };
  const first = rounds.length ? rounds[0].round : 0;
  const end = rounds.length ? rounds.at(-1).round : 1;
  return {
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
    font: { family: css("--sans"), size: 12, color: css("--ink") },
    margin: { l: 8, r: 8, t: 10, b: 8 }, width: box.clientWidth, height: box.clientHeight,
    hovermode: "x unified", dragmode: false, separators: ".,", showlegend: false,
    hoverlabel: { bgcolor: css("--raised"), bordercolor: css("--line"), font: { color: css("--ink") } },
    xaxis: { ...ticks, showgrid: false, showline: true, ticks: "outside", range: [first - 0.5, Math.max(end, first + 1) + 0.5], tickformat: ",d", ...(title && { title: { text: title, standoff: 8 } }), visible: rounds.length > 0, spikecolor: css("--muted"), spikethickness: 1, hoverformat: ",d" },
    yaxis: { ...ticks, rangemode: "tozero", visible: rounds.length > 0 },
    shapes: frozenParts(),
    annotations: rounds.length ? [] : [empty],
    ...more,
  };
};

const of = (name) => rounds.map((round) => round[name]);

const turnoutTraces = () => {
  const traces = [line(of("participants"), "turnout", PALETTE.turnout)];
  // What was wanted, only around the rounds in which not all of it was acknowledged.
  const differs = rounds.map((round) => round.demand !== round.participants);
  if (differs.includes(true)) {
    const wanted = rounds.map((round, i) => (differs[i - 1] || differs[i] || differs[i + 1] ? round.demand : null));
    traces.push(line(wanted, "wanted", css("--muted"), { width: 1.5, dash: "dot" }));
  }
  traces.push(line(of("capacity"), "capacity", css("--ink"), { width: 1.5, dash: "dash", line: { shape: "hv" } }));
  if (snapshot.hard_limit !== null)
    traces.push(line(rounds.map(() => snapshot.hard_limit), "hard limit", PALETTE.hard, { width: 1.5 }));
  if (rounds.some(waits)) // for the legend alone
    traces.push({ type: "scatter", mode: "markers", x: [null], y: [null], name: "signal waits", marker: { symbol: "square", size: 12, color: css("--frozen") } });
  return traces;
};

const draw = () => {
  if (!snapshot || document.hidden) return;
  const legend = { orientation: "h", x: 0, y: 1.02, yanchor: "bottom", font: { size: 12 } };
  const plot = (id, traces, more = {}, title = "") =>
    Plotly.react(by(id), rounds.length ? traces : [], layout(by(id), more, title), { displayModeBar: false, responsive: false });
  plot("turnout-plot", turnoutTraces(), { showlegend: rounds.length > 0, legend, margin: { l: 8, r: 8, t: 34, b: 8 } }, "Round");
  plot("signal-plot", [line(of("signal"), "signal", PALETTE.signal)]);
  plot("heard-plot", [line(of("members"), "devices", css("--ink"), { width: 1.5, dash: "dash" }), line(of("heard"), "reported", PALETTE.heard)]);
  plot("seconds-plot", [line(of("seconds"), "seconds", PALETTE.seconds, { width: 1.5 })]);
  document.documentElement.dataset.drawn = rounds.length ? rounds.at(-1).round : "empty";
};

let drawing = 0;
const drawSoon = () => { drawing = drawing || requestAnimationFrame(() => { drawing = 0; draw(); }); };

// The live connection: the browser reconnects by itself where it can; where it gives up, or all is silent, we do.

let source = null;
let seen = "";
let heard = Date.now();
let lostAt = null;
let patience = 1000;

const linked = (state) => {
  if (state === "live") { lostAt = null; patience = 1000; } else if (!lostAt) lostAt = new Date();
  document.body.dataset.link = state;
  say("link-text", state === "live" ? "Live" : "Connection lost");
  by("lost").hidden = state === "live";
  if (state === "live") return;
  say("lost-text", `The page shows the state of ${lostAt.toLocaleTimeString("sv")}. It reconnects by itself. Devices do not need this page.`);
  for (const button of document.querySelectorAll(".side button:not(#copy, #hide), #devices button")) button.disabled = true;
};

const receive = (event) => {
  const news = JSON.parse(event.data);
  const before = snapshot;
  seen = event.lastEventId;
  rounds = (news.fresh ? news.rounds : rounds.concat(news.rounds)).slice(-SHOWN);
  snapshot = news.snapshot;
  received = heard = Date.now();
  const back = document.body.dataset.link !== "live";
  linked("live");
  if (back) for (const button of document.querySelectorAll(".side button, #devices button")) button.disabled = false;
  show();
  drawSoon();
  freshenDevices();
  if (back || before.mode !== snapshot.mode || before.capacity !== snapshot.capacity) showLog();
};

const connect = () => {
  if (source) source.close();
  heard = Date.now();
  source = new EventSource(at(`/api/events?after=${encodeURIComponent(seen)}`));
  source.onmessage = receive;
  source.addEventListener("beat", () => { heard = Date.now(); });
  source.onerror = () => {
    linked("lost");
    if (source.readyState !== EventSource.CLOSED) return; // it tries again by itself
    setTimeout(connect, patience);
    patience = Math.min(2 * patience, 10000);
  };
};

// What the operator does

by("modes").addEventListener("click", async ({ target }) => {
  const mode = target.dataset.mode;
  if (!mode) return;
  const text = "The open round closes at once, nobody's participation is acknowledged, and no further round closes until you resume. Devices end their work when their answer or the end of their lease reaches them.";
  if (mode === "stopped" && !(await sure("Stop all devices?", text, "Stop all", true))) return;
  await send("/api/control", { mode }, "done", () => `Done: ${(MODES[mode] || mode).toLowerCase()}.`);
});

by("capacity-form").addEventListener("submit", async (event) => {
  event.preventDefault();
  const capacity = by("capacity").valueAsNumber;
  const limit = snapshot.hard_limit;
  if (limit !== null && capacity > limit) { // the coordinator would refuse it
    by("done").className = "said bad";
    say("done", `Refused: the capacity must be at most the hard limit of ${number(limit)}. turnout operate rules changes the limit.`);
    return;
  }
  const text = `From ${number(snapshot.capacity)} to ${number(capacity)}, from the open round on.`;
  if (await sure(`Change the capacity to ${number(capacity)}?`, text, `Change to ${number(capacity)}`))
    await send("/api/control", { capacity }, "done", () => `Done: capacity ${number(capacity)}.`);
});

document.addEventListener("sent", showLog);
setInterval(tick, 1000);
setInterval(() => { if (Date.now() - heard > SILENCE) { linked("lost"); connect(); } }, 1000);
setInterval(() => { if (document.body.dataset.link === "live" && !document.hidden) showLog(); }, 20000);
document.addEventListener("visibilitychange", drawSoon);
window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawSoon);
new ResizeObserver(drawSoon).observe(by("turnout-plot"));
connect();
