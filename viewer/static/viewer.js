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
