// A person at the dashboard, with a real Chromium. Reads one JSON document from standard input, which says what to do,
// and prints one with what was seen; tests/it/browser.rs checks it. Nothing here waits for time to pass.

import { readFile, appendFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { join } from "node:path";

const require = createRequire(new URL("../../.tools/npm/", import.meta.url));
const { chromium } = require("playwright-core");

const PHONE = { width: 390, height: 844 };
const DESK = { width: 1280, height: 900 };
const RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"];
// Far more than anything takes; a wait that needs it has failed.
const LONG = 120_000;

// What the hostile texts of the tests would do if they were more than text.
const RAN = () => globalThis.ran !== undefined;

const jobs = { look, switchAndRelease, watch };
const task = JSON.parse(await readFile("/dev/stdin", "utf8"));
const browser = await chromium.launch({
  executablePath: task.chromium,
  // Root has no sandbox. No name leads anywhere: whatever a page might ask of the world stays on this machine.
  args: ["--no-sandbox", "--disable-gpu", "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"],
});
try {
  console.log(JSON.stringify(await jobs[task.job](task)));
} finally {
  await browser.close();
}

// A window of its own, with its own cookies, for the pages of these origins; `problems` fills with what no page may do.
async function open(origins, problems, options = {}) {
  const context = await browser.newContext({ viewport: DESK, ...options });
  context.setDefaultTimeout(LONG);
  const page = await context.newPage();
  const report = (kind, what) => problems.push({ page: page.url(), kind, what });
  page.on("console", (message) => {
    // The browser also notes there that a page we asked for has a status of an error.
    const ofThePage = message.location().url === page.url() && message.text().startsWith("Failed to load resource");
    if (message.type() === "error" && !ofThePage) report("console", message.text());
  });
  page.on("pageerror", (error) => report("console", String(error)));
  page.on("request", (request) => {
    if (!origins.includes(new URL(request.url()).origin)) report("foreign request", request.url());
  });
  return page;
}

// Looks at pages in some sizes and schemes, keeps pictures of them, and holds them to the rules.
async function look({ views, looks, pictures }) {
  const axe = await readFile(require.resolve("axe-core/axe.min.js"), "utf8");
  const problems = [];
  const statuses = {};
  const page = await open(views.map(({ url }) => new URL(url).origin), problems);
  for (const { name, url, texts } of views) {
    statuses[name] = (await page.goto(url)).status();
    await page.evaluate(axe);
    for (const [size, colorScheme] of looks) {
      await page.setViewportSize({ phone: PHONE, desk: DESK }[size]);
      await page.emulateMedia({ colorScheme });
      await page.screenshot({ path: join(pictures, `${name}-${size}-${colorScheme}.png`), fullPage: true });
      const report = (kind, what) => problems.push({ page: `${name}, ${size}, ${colorScheme}`, kind, what });
      await unfold(page, true);
      for (const violation of await violations(page)) report("accessibility", violation);
      const excess = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
      if (excess > 0) report("sideways scrolling", `${excess} px`);
      const visible = await page.evaluate(() => document.body.innerText);
      for (const text of texts) if (!visible.includes(text)) report("missing text", text);
      await unfold(page, false);
    }
    if (await page.evaluate(RAN)) problems.push({ page: name, kind: "script", what: "a text was run" });
  }
  return { statuses, problems };
}

// Unfolds or folds everything that can be.
async function unfold(page, open) {
  await page.evaluate((open) => document.querySelectorAll("details").forEach((one) => { one.open = open; }), open);
}

async function violations(page) {
  const found = await page.evaluate((runOnly) => globalThis.axe.run(document, { runOnly, resultTypes: ["violations"] }), RULES);
  return found.violations.flatMap((violation) =>
    violation.nodes.map((node) => `${violation.id}: ${node.html.slice(0, 200)}: ${node.failureSummary}`));
}

// Without scripts: stops all applies and allows them again, then gives back the one lock there is.
async function switchAndRelease({ url, user, reason, pictures }) {
  const problems = [];
  const page = await open([url], problems, { javaScriptEnabled: false, viewport: PHONE, httpCredentials: user });
  const said = async () => {
    await page.getByRole("status").waitFor();
    return page.locator("main").innerText();
  };
  await page.goto(`${url}/`);
  await page.locator("summary", { hasText: "Stop all applies" }).click();
  await page.getByLabel("Reason, shown to people whose applies are stopped").fill(reason);
  await page.screenshot({ path: join(pictures, "form-phone.png") });
  await page.getByRole("button", { name: "Stop all applies" }).click();
  await page.getByRole("heading", { name: "All applies are stopped" }).waitFor();
  const stopped = await said();
  await page.locator("summary", { hasText: "Allow applies again" }).click();
  await page.getByRole("button", { name: "Yes, allow applies" }).click();
  await page.getByRole("heading", { name: "Applies are allowed" }).waitFor();
  const allowed = await said();
  await page.getByRole("link", { name: "Details of the lock" }).click();
  await page.locator("summary", { hasText: "Release…" }).click();
  await page.getByRole("button", { name: "Yes, release" }).click();
  await page.getByText("No locks are held.").waitFor();
  const released = await said();
  const scripts = await page.evaluate(RAN);
  return { stopped, allowed, released, scripts, problems };
}

// With the password: goes from the first page to the run under way and watches it to its end. The run waits at a pipe
// for a word before each of its next two lines.
async function watch({ url, user, gate, lines: [first, second, third], pictures }) {
  const problems = [];
  const stranger = await open([url], problems);
  // A browser without a password and without a person to ask for one shows a page of its own in place of ours.
  const refusal = stranger.waitForResponse(`${url}/`);
  await stranger.goto(`${url}/`).catch(() => undefined);
  const refused = await refusal;
  const page = await open([url], problems, { httpCredentials: user });
  const welcome = await page.goto(`${url}/`);
  await page.locator("#commands li", { hasText: "running" }).getByRole("link").click();
  await page.getByText(first).waitFor();
  const running = { title: await page.title(), facts: await page.locator("#facts").innerText() };

  let loads = 0;
  page.on("request", (request) => { if (request.isNavigationRequest()) loads += 1; });
  await page.getByText("Live: new lines appear as they are printed.").waitFor();
  const line = (text) => page.locator("#output .l", { hasText: text });
  const appeared = [];
  for (const text of [second, third]) {
    if (await line(text).count()) problems.push({ page: page.url(), kind: "too early", what: text });
    await appendFile(gate, "go\n");
    await line(text).waitFor();
    appeared.push(await line(text).locator("span span", { hasText: text }).getAttribute("class"));
    await page.screenshot({ path: join(pictures, `live-${appeared.length}.png`) });
  }
  await page.getByText("The run has ended.").waitFor();
  await page.locator("#facts .badge", { hasText: "applied" }).waitFor();
  await page.screenshot({ path: join(pictures, "live-ended.png") });
  const ended = { title: await page.title(), facts: await page.locator("#facts").innerText() };
  const scripts = await page.evaluate(RAN);
  return { refused: refused.status(), welcome: welcome.status(), running, appeared, ended, loads, scripts, problems };
}
