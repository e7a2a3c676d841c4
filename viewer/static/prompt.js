// One prompt to two models: each answer is read as server-sent events, and shown as text as it comes.
"use strict";

const promptForm = document.getElementById("prompt");
const stopButton = document.getElementById("stop");
let writing = null; // what ends the answers that are being written

promptForm.addEventListener("submit", (event) => {
  event.preventDefault();
  if (writing) writing.abort();
  writing = new AbortController();
  const own = writing;
  const query = new URLSearchParams(new FormData(promptForm));
  history.replaceState(null, "", `/models/prompt?${query}`);
  stopButton.hidden = false;
  Promise.all(["a", "b"].map((side) => write(side, query, own.signal))).then(() => {
    if (writing === own) stopButton.hidden = true;
  });
});

stopButton.addEventListener("click", () => writing && writing.abort());

// Control and Enter send the prompt from its field, as in other forms for texts of several lines.
document.getElementById("text").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) promptForm.requestSubmit();
});

async function write(side, query, signal) {
  const text = document.getElementById(`written-${side}`);
  const state = document.getElementById(`state-${side}`);
  const body = new URLSearchParams(query);
  body.set("side", side);
  document.getElementById(`name-${side}`).textContent = query.get(side);
  text.textContent = query.get("prompt").trim();
  text.setAttribute("aria-busy", "true"); // it is read out when it is whole
  state.textContent = "Writing";
  let call = null;
  const failed = [];
  const show = (event) => {
    if (event.kind === "text") {
      text.append(event.text);
    } else if (event.kind === "call") {
      const mark = document.createElement("mark");
      mark.className = `call ${event.class}`;
      call = document.createElement("bdi");
      call.textContent = event.text;
      mark.append(call);
      text.append(mark);
    } else if (event.kind === "more") {
      if (call) call.append(event.text);
      if (event.problem) failed.push(`A call failed: ${event.problem.replaceAll("_", " ")}. `);
    } else {
      state.textContent = failed.join("") + event.text;
    }
  };
  try {
    const answer = await fetch("/models/prompt", { method: "POST", headers: { accept: "text/event-stream" }, body, signal });
    if (!answer.ok) {
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      const problem = page.querySelector("[role=alert]");
      throw new Error(problem ? problem.textContent : `The viewer answers with status ${answer.status}`);
    }
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    for (;;) {
      const { done, value } = await reader.read();
      if (done) break;
      const events = (rest + value).split("\n\n");
      rest = events.pop();
      for (const one of events) show(JSON.parse(one.slice("data: ".length)));
    }
  } catch (error) {
    state.textContent = signal.aborted ? "Stopped" : error.message;
  } finally {
    text.removeAttribute("aria-busy");
  }
}
