// The three engines, each with one page, all driven by WebDriver.
import * as tools from '../../scripts/tools.mjs';
import { suspend } from './processes.mjs';
import { screen } from '../../scripts/screen.mjs';
import { WebDriver } from './webdriver.mjs';

const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

/** A browser with one page. */
class Engine {
  constructor(driver) {
    this.driver = driver;
  }

  open(url) {
    return this.driver.command('POST', '/url', { url });
  }

  /** Evaluates an expression in the page. */
  evaluate(expression) {
    return this.driver.command('POST', '/execute/sync', { script: `return ${expression}`, args: [] });
  }

  /** Nobody sees the page for a while. */
  async hide(ms) {
    await this.driver.command('POST', '/window/minimize');
    await pause(ms);
    await this.driver.command('POST', '/window/rect', { width: 800, height: 600 });
  }

  /** The process that runs the page stands still for a while, as on a machine that sleeps. */
  async freeze(ms) {
    const stopped = await suspend(this.driver.pid, this.isPageProcess, ms);
    if (stopped === 0) throw new Error('no process to stop');
  }

  /** Leaves the page for another and goes back. */
  async leave(url, ms) {
    await this.open(url);
    await pause(ms);
    await this.driver.command('POST', '/execute/sync', { script: 'setTimeout(() => history.back(), 0)', args: [] });
  }

  stop() {
    return this.driver.stop();
  }
}

class Chromium extends Engine {
  static async start() {
    return new Chromium(
      await WebDriver.start(tools.chromedriver(), (port) => [`--port=${port}`], process.env, {
        'goog:chromeOptions': { binary: tools.chromium(), args: ['--headless=new', ...tools.chromiumFlags] },
      }),
    );
  }

  #devtools(cmd, params) {
    return this.driver.command('POST', '/goog/cdp/execute', { cmd, params });
  }

  /** Chromium freezes tabs itself that were long hidden; here it does so at once. */
  async freeze(ms) {
    await this.driver.command('POST', '/window/minimize');
    await this.#devtools('Page.setWebLifecycleState', { state: 'frozen' });
    await pause(ms);
    await this.#devtools('Page.setWebLifecycleState', { state: 'active' });
    await this.driver.command('POST', '/window/rect', { width: 800, height: 600 });
  }
}

class Firefox extends Engine {
  static async start() {
    return new Firefox(
      await WebDriver.start(
        tools.geckodriver(),
        (port) => ['--port', String(port), '--websocket-port', '0', '--log', 'error'],
        { ...process.env, MOZ_HEADLESS: '1' },
        {
          'moz:firefoxOptions': {
            binary: tools.firefox(),
            args: ['-headless'],
            prefs: { 'remote.active-protocols': 1 },
          },
        },
      ),
    );
  }

  /** It keeps no page in its cache whose socket is open. */
  needsSilence = true;

  isPageProcess = (command) => / -contentproc .* tab$/.test(command);
}

class WebKit extends Engine {
  static async start() {
    const { display, stop } = await screen();
    const engine = new WebKit(
      await WebDriver.start(
        tools.webkitDriver(),
        (port) => [`--port=${port}`],
        { ...process.env, DISPLAY: display, WEBKIT_DISABLE_SANDBOX_THIS_IS_DANGEROUS: '1' },
        {
          browserName: 'MiniBrowser',
          'webkitgtk:browserOptions': { binary: tools.webkitBrowser(), args: ['--automation'] },
        },
      ),
    );
    engine.stopScreen = stop;
    return engine;
  }

  isPageProcess = (command) => command.includes('WebKitWebProcess');

  async stop() {
    await super.stop();
    await this.stopScreen();
  }
}

/** By name. WebKit has a driver for every system on Linux only. */
export const ENGINES = { Chromium, Firefox, ...(process.platform === 'linux' && { WebKit }) };
