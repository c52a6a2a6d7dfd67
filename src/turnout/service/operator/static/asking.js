// How the parts of the operator's page ask the coordinator, and the operator.
import { by, say } from "./showing.js";

export const at = (path) => location.origin + path; // an address with a password in it could not be asked

export const ask = async (path, body) => {
  const change = { method: "POST", headers: { "Content-Type": "application/json", "X-Turnout": "1" }, body: JSON.stringify(body) };
  const reply = await fetch(at(path), body === undefined ? {} : change);
  const found = await reply.json().catch(() => ({ message: `the coordinator answered ${reply.status}` }));
  if (!reply.ok) throw new Error(found.message);
  return found;
};

export const sure = (title, text, action, danger = false) => new Promise((decide) => {
  const dialog = by("ask");
  say("ask-title", title);
  say("ask-text", text);
  say("ask-yes", action);
  by("ask-yes").className = danger ? "sure danger" : "sure";
  dialog.returnValue = "no";
  // The news that it was closed may come when it is open again, with the next question.
  dialog.onclose = () => { if (!dialog.open) decide(dialog.returnValue === "yes"); };
  dialog.showModal();
  by(danger ? "ask-no" : "ask-yes").focus();
});

// Sends a change, and says beside its control how it went.
export const send = async (path, body, place, words) => {
  const tell = (text, look) => { by(place).className = `said ${look}`; say(place, text); };
  tell("Sending…", "");
  try {
    const found = await ask(path, body);
    tell(words(found), "good");
    document.dispatchEvent(new Event("sent"));
    return found;
  } catch (error) {
    tell(error instanceof TypeError ? "Not sent: no connection to the coordinator." : `Refused: ${error.message}`, "bad");
    return null;
  }
};
