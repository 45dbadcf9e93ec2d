# SPDX-License-Identifier: Apache-2.0
"""Pages in a real browser: Debian's chromium through its driver, without a window.

A test file derives from PageTest; `opened` loads a page and checks what holds for every page: it says
that it is ready, logs no error, asks the network for nothing.
"""

import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import WebDriverWait


def start(width=1280, height=900, scale=1):
    """A browser; `scale` pixels of its screen are one of a page. As root, in a container, it cannot have a sandbox, and only a small /dev/shm."""
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium")
    for flag in ["--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--hide-scrollbars",
                 f"--force-device-scale-factor={scale}", "--disable-component-update", f"--window-size={width},{height}"]:
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    return webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))


def load(driver, path, seconds=60):
    """Opens a page and waits until its script has filled it. Returns the addresses that it asked for."""
    driver.get_log("performance")
    driver.get(pathlib.Path(path).resolve().as_uri())
    WebDriverWait(driver, seconds).until(lambda d: d.execute_script("return 'ready' in document.body.dataset"))
    asked = []
    for entry in driver.get_log("performance"):
        message = json.loads(entry["message"])["message"]
        if message["method"] == "Network.requestWillBeSent":
            asked.append(message["params"]["request"]["url"])
    return asked


class PageTest(unittest.TestCase):
    """`make_pages` and `graphs` come from the command line: see main()."""

    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(cls.enterClassContext(tempfile.TemporaryDirectory()))
        cls.driver = start()
        cls.addClassCleanup(cls.driver.quit)

    @classmethod
    def make(cls, graph, *arguments):
        """The pages of a graph, given as a path or as text. Returns their folder."""
        folder = pathlib.Path(tempfile.mkdtemp(dir=cls.folder))
        if isinstance(graph, str):
            (folder / "net").write_text(graph, encoding="utf-8", errors="surrogateescape")
            graph = folder / "net"
        subprocess.run([cls.make_pages, graph, folder, *arguments], check=True, timeout=600)
        return folder

    def opened(self, path):
        """Loads a page; returns the data in it, and the JSON that was written beside it."""
        asked = load(self.driver, path)
        # data: is the empty icon, which is in the page.
        self.assertEqual([url for url in asked if not url.startswith("data:")], [path.resolve().as_uri()])
        self.no_errors()
        return json.loads(path.with_suffix(".json").read_text(encoding="utf-8", errors="replace"))

    def no_errors(self):
        # Looking at pixels, as tests do, is what the browser advises against.
        self.assertEqual([entry for entry in self.driver.get_log("browser") if "willReadFrequently" not in entry["message"]], [])

    def script(self, text, *arguments):
        return self.driver.execute_script(text, *arguments)

    def find(self, selector):
        return self.driver.find_element(By.CSS_SELECTOR, selector)

    def find_all(self, selector):
        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    def texts(self, selector):
        # One call: a round trip for each element is slow.
        return self.script("return [...document.querySelectorAll(arguments[0])].map((e) => e.textContent)", selector)

    def cells(self, table, *names):
        """The exact numbers, None where there are none, of a table's columns by their title: what its rows show."""
        return self.script("""
          const root = document.querySelector(`[data-table="${arguments[0]}"]`);
          const titles = [...root.querySelectorAll("thead button")].map((each) => each.textContent);
          const at = arguments[1].map((name) => titles.indexOf(name));
          return [...root.querySelectorAll("tbody tr:not(.detail)")].map((row) => at.map((i) =>
            row.cells[i].dataset.exact === undefined ? null : Number(row.cells[i].dataset.exact)));""", table, names)

    def show_all_rows(self):
        self.script("""
          for (const more of document.querySelectorAll(".more button")) while (!more.hidden) more.click();""")

    def emulate(self, media="", scheme="light"):
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {
            "media": media, "features": [{"name": "prefers-color-scheme", "value": scheme}]})
        # What hangs on it is told in the next frame.
        WebDriverWait(self.driver, 10).until(lambda d: d.execute_script(
            "return document.documentElement.classList.contains('paper') === arguments[0]", media == "print"))

    def press(self, element, *keys):
        self.script("arguments[0].focus()", element)
        ActionChains(self.driver).send_keys(*keys).perform()


def main():
    """TEST.py MAKE_PAGES GRAPHS_DIR [unittest's own arguments]"""
    PageTest.make_pages = sys.argv[1]
    PageTest.graphs = pathlib.Path(sys.argv[2])
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
