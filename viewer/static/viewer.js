// A slider and the number field beside it show one value; the field is what the form sends.
"use strict";

document.addEventListener("input", (event) => {
  const changed = event.target;
  if (changed.matches("input[data-for]")) {
    document.getElementById(changed.dataset.for).value = changed.value;
  } else if (changed.id) {
    const slider = document.querySelector(`input[data-for="${CSS.escape(changed.id)}"]`);
    if (slider) slider.value = changed.value;
  }
});

// A call that is chosen is read out, and stays where the reader is.
document.addEventListener("htmx:afterSettle", (event) => {
  const panel = event.target.id === "document" && document.getElementById("call");
  if (panel) panel.focus({ preventScroll: true });
});

// Keys that judge a call, while the focus is within its form; on a page of nothing else it begins there, and a click
// beside the controls brings it back.
document.addEventListener("keydown", (event) => {
  const form = event.target.closest && event.target.closest("form.verdict");
  if (!form || event.ctrlKey || event.metaKey || event.altKey) return;
  const button = form.querySelector(`button[data-key="${CSS.escape(event.key.toLowerCase())}"]`);
  if (button) button.click();
});

const judged = document.querySelector('nav a[href="/judge"][aria-current]') && document.querySelector("form.verdict");
const judge = () => judged && judged.focus({ preventScroll: true });
judge();
document.addEventListener("click", (event) => {
  if (!event.target.closest("a, button, input, select, textarea, label, form")) judge();
});

// One verdict for each call that is shown: a second key before the next call is there would change the first verdict.
document.addEventListener("submit", (event) => {
  const form = event.target.closest("form.verdict");
  if (!form) return;
  if (form.dataset.sent) event.preventDefault();
  form.dataset.sent = "yes";
});
addEventListener("pageshow", () => {
  for (const form of document.querySelectorAll("form.verdict")) delete form.dataset.sent;
});
