// Drives Chromium for the tests, and runs an OpenID provider. The arguments are the directory of the
// packages and the scenario as JSON; the report is JSON on the standard output.
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';

const [modules, text] = process.argv.slice(2);
const scenario = JSON.parse(text);
// The provider has notices; only the report belongs on the standard output.
console.info = console.warn;
const load = (path) => import(pathToFileURL(join(modules, path)).href);
const { chromium } = (await load('playwright-core/index.mjs')).default;

/** A provider at which each user name is valid. */
async function provider({ port, redirect }) {
  const { default: Provider } = await load('oidc-provider/lib/index.js');
  const issuer = `http://127.0.0.1:${port}`;
  const provider = new Provider(issuer, {
    clients: [
      {
        client_id: 'stockade',
        redirect_uris: [redirect],
        response_types: ['code'],
        grant_types: ['authorization_code'],
        token_endpoint_auth_method: 'none',
      },
    ],
    pkce: { required: () => true },
    cookies: { keys: ['a key for tests'] },
  });
  return new Promise((resolve) => {
    const server = provider.listen(port, '127.0.0.1', () => resolve(server));
  });
}

async function launch() {
  return chromium.launch({
    executablePath: scenario.chromium,
    args: ['--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run'],
  });
}

/** What went wrong in a page: errors, and violations of its policy. */
function watch(page, report) {
  page.on('console', (message) => {
    if (message.type() === 'error') report.push(message.text());
  });
  page.on('pageerror', (error) => report.push(String(error)));
}

/** Submits the form of a page, and waits for the next page. */
async function submit(page) {
  const before = page.url();
  await Promise.all([
    page.waitForURL((url) => url.href !== before, { waitUntil: 'domcontentloaded' }),
    page.click('button[type=submit]'),
  ]);
}

/** Signs a user in at the provider. */
async function signIn(page, name) {
  await page.fill('input[name=login]', name);
  await page.fill('input[name=password]', 'any');
  await submit(page);
  // The consent of the first login.
  if (page.url().includes('/interaction/')) await submit(page);
}

const scenarios = {
  /** Opens ports of two sandboxes through a login, and attacks from one of them. */
  async login({ first, second, server, providerPort, received }) {
    const server_ = await provider({ port: providerPort, redirect: `${server}/auth/callback` });
    const browser = await launch();
    const context = await browser.newContext();
    const page = await context.newPage();
    await page.goto(`${first}/page?x=1`);
    const atProvider = page.url().startsWith(`http://127.0.0.1:${providerPort}/`);
    await signIn(page, 'alice');
    await page.waitForFunction(() => document.getElementById('name')?.textContent === 'hello');
    const report = { atProvider, url: page.url(), title: await page.title() };
    report.cookies = (await context.cookies(first)).map(({ name, domain, httpOnly, secure }) => ({
      name, domain, httpOnly, secure,
    }));
    report.visible = await page.evaluate(() => document.cookie);
    // The page tries to reach the server itself, and another sandbox.
    const other = await context.newPage();
    await other.goto(`${second}/page`);
    await other.waitForFunction(() => document.getElementById('name')?.textContent === 'hello');
    report.second = { url: other.url(), visible: await other.evaluate(() => document.cookie) };
    await other.goto(`${second}/x`);
    report.second.headers = await other.evaluate(() => document.body.innerText);
    report.attacks = await page.evaluate(
      async ({ targets, second }) => {
        const results = {};
        for (const url of targets) {
          for (const mode of ['cors', 'no-cors']) {
            try {
              const response = await fetch(url, { mode, credentials: 'include' });
              results[`${mode} ${url}`] = [response.type, response.status];
            } catch (error) {
              results[`${mode} ${url}`] = String(error);
            }
          }
        }
        results.socket = await new Promise((resolve) => {
          const socket = new WebSocket(`${second.replace('http', 'ws')}/socket`);
          socket.onopen = () => resolve('open');
          socket.onerror = () => resolve('refused');
        });
        results.frame = await new Promise((resolve) => {
          const frame = document.createElement('iframe');
          frame.src = `${second}/page`;
          frame.onload = () => {
            try {
              resolve(frame.contentDocument ? frame.contentDocument.body.innerText : 'closed');
            } catch {
              resolve('closed');
            }
          };
          document.body.append(frame);
        });
        return results;
      },
      { targets: [`${server}/v1/sandboxes`, `${server}/api/sandbox`, `${second}/x`], second },
    );
    report.received = received;
    // A user who is not the owner.
    const stranger = await (await browser.newContext()).newPage();
    await stranger.goto(`${first}/page`);
    await signIn(stranger, 'mallory');
    await stranger.waitForURL((url) => url.href.startsWith(server));
    report.stranger = await stranger.evaluate(() => document.body.innerText);
    await browser.close();
    server_.close();
    server_.closeAllConnections();
    return report;
  },

  /** Opens a one-time link. */
  async link({ url }) {
    const browser = await launch();
    const page = await (await browser.newContext()).newPage();
    await page.goto(url);
    await page.waitForFunction(() => document.getElementById('name')?.textContent === 'hello');
    const report = { url: page.url() };
    const again = await (await browser.newContext()).newPage();
    const response = await again.goto(url);
    report.again = response.status();
    await browser.close();
    return report;
  },

  /** Uses the playground by keyboard, in both colour schemes. */
  async playground({ server, shots, key, link }) {
    const browser = await launch();
    const problems = [];
    const report = { problems };
    for (const colorScheme of ['light', 'dark']) {
      const size = { width: 1280, height: 800 };
      const context = await browser.newContext({ colorScheme, viewport: size });
      const page = await context.newPage();
      watch(page, problems);
      await page.goto(`${server}/playground`);
      await page.waitForSelector('.editor');
      if (key) {
        await page.keyboard.press('Control+Enter');
        await page.fill('input[type=password]', key);
        await page.keyboard.press('Enter');
        // A refused request is an error of the console.
        await page.waitForFunction(() => document.querySelector('[role=status]').innerText.includes('Succeeded'));
        problems.length = 0;
      }
      await page.keyboard.press('Control+Enter');
      const status = () => page.innerText('[role=status]');
      await page.waitForFunction(() => /Succeeded|Failed/.test(document.querySelector('[role=status]').innerText));
      report.status = await status();
      report.facts = await page.innerText('[role=tabpanel]');
      await page.screenshot({ path: `${shots}/${colorScheme}-facts.png`, caret: 'initial' });
      await page.focus('#tab-Facts');
      await page.keyboard.press('ArrowRight');
      report.logs = await page.innerText('[role=tabpanel]');
      await page.screenshot({ path: `${shots}/${colorScheme}-logs.png`, caret: 'initial' });
      await page.keyboard.press('End');
      report.focused = await page.evaluate(() => document.activeElement.id);
      report.errors = await page.innerText('[role=tabpanel]');
      await page.click('button:has-text("Share")');
      report.shared = page.url();
      await context.close();
    }
    const context = await browser.newContext({ viewport: { width: 420, height: 800 } });
    if (key) await context.addInitScript((key) => sessionStorage.setItem('key', key), key);
    const page = await context.newPage();
    watch(page, problems);
    await page.goto(link);
    await page.waitForFunction(() => /Succeeded|Failed/.test(document.querySelector('[role=status]').innerText));
    report.linked = await page.innerText('[role=tabpanel]');
    report.linkedStatus = await page.innerText('[role=status]');
    await page.screenshot({ path: `${shots}/narrow.png`, caret: 'initial' });
    const failing = await context.newPage();
    watch(failing, problems);
    await failing.goto(`${server}/playground${new URL(report.shared).hash}`);
    await failing.waitForSelector('.editor');
    await failing.focus('.cm-content');
    await failing.keyboard.press('Control+a');
    // Chromium itself adds an inline style where typed text replaces a selection.
    await failing.keyboard.press('Delete');
    await failing.keyboard.type('import fs from "node:fs";\nconsole.log(fs);\n');
    await failing.keyboard.press('Control+Enter');
    await failing.waitForFunction(() => /Failed/.test(document.querySelector('[role=status]').innerText));
    report.failed = await failing.innerText('[role=tabpanel]');
    await failing.screenshot({ path: `${shots}/failed.png`, caret: 'initial' });
    await browser.close();
    return report;
  },
};

console.log(JSON.stringify(await scenarios[scenario.name](scenario)));
