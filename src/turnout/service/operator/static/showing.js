// How the parts of the operator's page put texts, numbers and times on it.

export const by = (id) => document.getElementById(id);
export const say = (id, text) => { if (by(id).textContent !== text) by(id).textContent = text; };
export const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

export const number = (value, digits = 6) =>
  value === null || value === undefined ? "–"
  : Number(value).toLocaleString("en", { maximumSignificantDigits: Math.max(digits, Math.trunc(Math.abs(value)).toString().length) }).replace("-", "−");
export const span = (seconds) =>
  seconds < 120 ? `${Math.round(seconds)} s` : seconds < 7200 ? `${Math.round(seconds / 60)} min`
  : seconds < 172800 ? `${Math.round(seconds / 3600)} h` : `${Math.round(seconds / 86400)} days`;
export const element = (kind, text, name = "") => Object.assign(document.createElement(kind), { textContent: text, className: name });
