// Makes a small comparison with the program, opens its report in a browser and checks what a reader would see.
//
//   node report/browser_test.mjs STRATA [SCREENSHOT-FOLDER]
//
// Exits with 77 where there is no Chromium or Chrome.
import assert from 'node:assert/strict';
import {execFileSync, spawnSync} from 'node:child_process';
import {existsSync, mkdtempSync, rmSync, writeFileSync} from 'node:fs';
import {tmpdir} from 'node:os';
import {join} from 'node:path';

const [strata, screenshots] = process.argv.slice(2);
const browser = ['chromium', 'chromium-browser', 'google-chrome'].find(
    (name) => spawnSync(name, ['--version']).status === 0);
if (!browser) {
  console.log('report_in_browser: skipped, expected chromium or google-chrome, got none');
  process.exit(77);
}

const folder = mkdtempSync(join(tmpdir(), 'strata-browser-'));
const open = (page, ...options) => execFileSync(browser, [
  '--headless', '--no-sandbox', '--disable-gpu', '--no-first-run', '--disable-background-networking',
  '--disable-component-update', '--disable-sync', '--disable-dev-shm-usage', '--hide-scrollbars',
  '--host-resolver-rules=MAP * ~NOTFOUND', `--user-data-dir=${mkdtempSync(join(folder, 'profile-'))}`,
  '--virtual-time-budget=5000', ...options, `file://${page}`],
    {encoding: 'utf8', maxBuffer: 1 << 26, timeout: 90000, stdio: ['ignore', 'pipe', 'ignore']});

try {
  const text = join(folder, 'text.txt'), out = join(folder, 'out');
  writeFileSync(text, Array.from({length: 300}, (_, i) => `Layer ${i % 17} rests on layer ${(i * 7) % 13}.\n`).join(''));
  const rows = execFileSync(strata, [
    'compare', '--residual', 'standard', '--residual', 'mhc', '--residual', 'attnres:block=2', '--seeds', '2',
    '--blocks', '2', '--dim', '16', '--heads', '2', '--context', '16', '--batch', '2', '--steps', '24',
    '--evaluate', '6', '--prompt', '</script><b id="inject">', '--text', text, '--out', out, '--json', '--quiet'],
      {encoding: 'utf8', stdio: ['ignore', 'pipe', 'inherit']}).trim().split('\n').map((line) => JSON.parse(line));
  assert.equal(rows.length, 3);
  const page = join(out, 'report.html');

  const dom = open(page, '--dump-dom');
  const root = dom.match(/<html[^>]*>/)[0];
  assert.ok(!root.includes('data-errors'), `expected no errors on the page, got ${root}`);
  assert.match(root, /data-ready="5"/);
  // Only what is shown: scripts and their data are left out.
  const shown = dom.replace(/<script[\s\S]*?<\/script>/g, '');
  for (const key of ['difference', 'validation', 'training', 'state', 'update']) {
    const chart = shown.match(new RegExp(`id="chart-${key}"[\\s\\S]*?</figure>`));
    assert.ok(chart, `expected a chart of ${key}, got none`);
    const svg = chart[0].match(/<svg[\s\S]*<\/svg>/);
    assert.ok(svg, `expected the chart of ${key} to be drawn, got none`);
    // One line a connection, except where standard is what the others are measured against.
    const lines = (svg[0].match(/<path [^>]*fill="none"[^>]*stroke-width="2"/g) || []).length;
    const arms = key === 'difference' ? 2 : 3;
    assert.ok(lines >= arms, `expected ${arms} lines in the chart of ${key}, got ${lines}`);
    const bands = (svg[0].match(/fill-opacity="0\.18"|opacity="0\.18"/g) || []).length;
    assert.equal(bands, arms, `bands in the chart of ${key}`);
  }
  for (const row of rows) {
    assert.ok(shown.includes(row.residual), row.residual);
    assert.ok(shown.includes(row.loss.toFixed(4)), `expected the loss ${row.loss.toFixed(4)} of ${row.residual}`);
    assert.ok(shown.includes(row.parameters.toLocaleString('en-US')), `expected ${row.parameters} parameters`);
  }
  const low = rows[1].difference_low;
  assert.ok(shown.includes(`${low < 0 ? '' : '+'}${low.toFixed(4)} to `), 'expected the interval of mhc');
  assert.equal((shown.match(/class="sample"/g) || []).length, 4);  // three and the template
  assert.ok(!shown.includes('<b id="inject">'), 'expected the prompt as text');
  assert.ok(!/(src|href)="(https?:)?\/\//.test(shown), 'expected no reference to a network');

  if (screenshots) {
    open(page, `--screenshot=${join(screenshots, 'report-wide.png')}`, '--window-size=1200,2600');
    open(page, `--screenshot=${join(screenshots, 'report-phone.png')}`, '--window-size=500,3600');
    open(page, `--screenshot=${join(screenshots, 'report-dark.png')}`, '--window-size=1200,2600',
        '--blink-settings=preferredColorScheme=0');
    open(page, `--print-to-pdf=${join(screenshots, 'report.pdf')}`);
    assert.ok(existsSync(join(screenshots, 'report-wide.png')));
  }
  console.log('report_in_browser: the page shows 5 charts, 3 rows and 3 samples without an error');
} finally {
  rmSync(folder, {recursive: true, force: true, maxRetries: 5, retryDelay: 200});
}
