"""A browser without a window: Chromium, driven over its DevTools protocol, which is JSON over a WebSocket.

    with Browser() as browser:
        ada, bob = browser.page(url), browser.page(url)
        ada.write("#text", "hello")
        ada.click("#send")
        bob.wait("document.body.textContent.includes('hello')")
        ada.check()                                       # no error in the console

Tests that need it have @needs_browser: they are skipped without Chromium, which `scripts/setup --browser` installs.
"""
import base64
import json
import re
import shutil
import subprocess
import tempfile
import unittest

from harness.environment import SANITIZER, WAIT, WINDOWS, OTHER_SYSTEM
from harness.websocket import WebSocket

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = ("--headless --no-sandbox --disable-gpu --disable-dev-shm-usage --no-first-run --no-default-browser-check "
         "--disable-background-networking --disable-component-update --disable-sync --disable-default-apps "
         "--disable-extensions --disable-domain-reliability --disable-client-side-phishing-detection "
         "--disable-features=OptimizationHints,MediaRouter,DialMediaRouteProvider,Translate --hide-scrollbars").split()


def needs_browser(case):
    """Skip the tests of a class where they would show nothing new, and where there is no browser."""
    for wrong, reason in ((WINDOWS, OTHER_SYSTEM + "the browser runs on this system"),
                          (SANITIZER, "the page is the same in every build"),
                          (not CHROMIUM, "chromium is not installed; scripts/setup --browser installs it")):
        if wrong:
            return unittest.skip(reason)(case)
    return case


class Browser:
    """One process of the browser with a profile of its own."""

    def __init__(self, flags=()):
        self.profile = tempfile.mkdtemp(prefix="luaserve-chromium-")
        self.process = subprocess.Popen(
            [CHROMIUM, *FLAGS, *flags, "--remote-debugging-port=0", "--user-data-dir=" + self.profile, "about:blank"],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        self.socket = None
        self.number = 0
        self.pages = {}  # by session
        try:
            self.socket = self._connect()
        except BaseException:
            self.close()
            raise

    def _connect(self):
        said = []
        for line in self.process.stderr:
            said.append(line.decode("utf-8", "replace"))
            found = re.search(r"DevTools listening on ws://127\.0\.0\.1:(\d+)(/\S+)", said[-1])
            if found:
                port = int(found.group(1))
                return WebSocket(("127.0.0.1", port), found.group(2), {"Host": "127.0.0.1:%d" % port}, timeout=3 * WAIT)
        raise AssertionError("the browser does not start:\n%s" % "".join(said)[-3000:])

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        if self.socket is not None:
            self.socket.conn.close()
        self.process.terminate()
        self.process.stderr.close()
        self.process.wait(WAIT)
        shutil.rmtree(self.profile, ignore_errors=True)

    def call(self, method, session=None, **parameters):
        """One command; returns its result. Events that come first are given to their pages."""
        self.number += 1
        command = {"id": self.number, "method": method, "params": parameters}
        self.socket.send(json.dumps({**command, "sessionId": session} if session else command))
        while True:
            message = json.loads(self.socket.receive())
            if message.get("id") == self.number:
                break
            page = self.pages.get(message.get("sessionId"))
            if page and message.get("method") in ("Runtime.exceptionThrown", "Runtime.consoleAPICalled"):
                page.happened(message["method"], message["params"])
        if "error" in message:
            raise AssertionError("%s: %r" % (method, message["error"]))
        return message["result"]

    def page(self, url, width=1000, height=700, phone=False):
        """A page in a window of this size, when it has loaded. Pages share cookies and local storage."""
        target = self.call("Target.createTarget", url="about:blank", newWindow=True)["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = self.pages[session] = Page(self, session, target)
        page.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=2 if phone else 1, mobile=phone)
        page.call("Runtime.enable")
        page.call("Page.navigate", url=url)
        page.wait("location.href !== 'about:blank' && document.readyState === 'complete'")
        return page


class Page:
    def __init__(self, browser, session, target):
        self.browser, self.session, self.target, self.errors = browser, session, target, []

    def close(self):
        del self.browser.pages[self.session]
        self.browser.call("Target.closeTarget", targetId=self.target)

    def call(self, method, **parameters):
        return self.browser.call(method, self.session, **parameters)

    def happened(self, method, parameters):
        if method == "Runtime.exceptionThrown":
            details = parameters["exceptionDetails"]
            self.errors.append(details.get("exception", {}).get("description") or details["text"])
        elif parameters["type"] in ("error", "assert"):
            self.errors.append(repr(parameters["args"]))

    def check(self):
        """Fail if a script of the page has failed."""
        self.run("0")  # receives the events before
        if self.errors:
            raise AssertionError("errors of the page:\n" + "\n".join(self.errors))

    def run(self, script):
        """The value of an expression; a promise is awaited."""
        result = self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True, userGesture=True)
        if "exceptionDetails" in result:
            raise AssertionError("%s\n%s" % (script, result["exceptionDetails"].get("exception", {}).get("description")))
        return result["result"].get("value")

    def wait(self, condition):
        """Wait in the page until the expression is true; returns its value."""
        value = self.run("""new Promise((resolve) => {
            const end = Date.now() + %d;
            (function look() {
                const value = (() => { try { return %s; } catch { return false; } })();
                if (value || Date.now() > end) resolve(value); else setTimeout(look, 20);
            })();
        })""" % (WAIT * 1000, condition))
        if not value:
            raise AssertionError("not within %.0f s: %s\nthe page:\n%s" % (WAIT, condition, self.run("document.body.innerText")))
        return value

    def text(self, selector):
        return self.run("document.querySelector(%s).innerText" % json.dumps(selector))

    def click(self, selector):
        self.run("document.querySelector(%s).click()" % json.dumps(selector))

    def write(self, selector, text):
        """Replace the text of a field as a person does."""
        self.run("(() => { const field = document.querySelector(%s); field.focus(); field.select(); })()" % json.dumps(selector))
        self.call("Input.insertText", text=text)

    def drag(self, points):
        """Draw with the mouse through points [(x, y)] of the page."""
        for number, (x, y) in enumerate(points):
            kind = "mousePressed" if number == 0 else "mouseMoved"
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", buttons=1, clickCount=1)
        self.call("Input.dispatchMouseEvent", type="mouseReleased", x=points[-1][0], y=points[-1][1], button="left", clickCount=1)

    def screenshot(self, path):
        with open(path, "wb") as out:
            out.write(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))
