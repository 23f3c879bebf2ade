// Appends the output of a run, and updates the facts when it ends. Without this script the page reloads itself.
(function () {
  "use strict";
  const output = document.getElementById("output");
  const live = document.getElementById("live");
  if (!output || !output.dataset.events) return;

  const atEnd = () => window.innerHeight + window.scrollY >= document.documentElement.scrollHeight - 120;
  const toEnd = () => window.scrollTo(0, document.documentElement.scrollHeight);
  const say = (text) => { if (live) live.textContent = text; };
  // Follows the end until somebody scrolls up, and again when they are back at the end.
  let follow = !location.hash;
  let lastY = window.scrollY;
  window.addEventListener("scroll", () => {
    if (window.scrollY < lastY) follow = false;
    else if (atEnd()) follow = true;
    lastY = window.scrollY;
  }, { passive: true });

  function append(html) {
    const nothing = document.getElementById("nothing");
    if (nothing) nothing.remove();
    output.insertAdjacentHTML("beforeend", html);
    if (follow) toEnd();
  }

  async function refreshFacts() {
    const answer = await fetch(location.pathname, { headers: { Accept: "text/html" } });
    if (!answer.ok) return;
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    const facts = page.getElementById("facts");
    if (facts) document.getElementById("facts").replaceWith(facts);
    document.title = page.title;
  }

  const events = new EventSource(output.dataset.events + "?after=" + output.dataset.seq);
  events.onopen = () => say("Live: new lines appear as they are printed.");
  events.onmessage = (event) => append(event.data);
  events.addEventListener("end", () => {
    events.close();
    say("The run has ended.");
    refreshFacts().catch(() => say("The run has ended. Reload the page to see the result."));
  });
  events.onerror = () => {
    const lost = events.readyState === EventSource.CLOSED;
    say(lost ? "Live output has stopped. Reload the page to see new lines." : "Connection lost, reconnecting…");
  };
  window.addEventListener("hashchange", () => { follow = false; });
  if (follow && output.childElementCount > 0) toEnd();
})();
