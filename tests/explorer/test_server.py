"""The explorer's server: recordings with interventions for its own page, and refusals for everything else."""

import http.client
import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
import time
import zlib
from base64 import b64decode
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path
from threading import Event
from types import SimpleNamespace

import anyio
import numpy as np
import pytest
import torch
from tests.program import invoke

import structattn
from structattn.explorer.interventions import ForcedAction, HeadOff, SublayerOff
from structattn.explorer.recording import record
from structattn.explorer.recording_files import recording_to_json

testclient = pytest.importorskip("starlette.testclient", reason="starlette is not installed; pip install starlette")

from structattn.explorer import server  # noqa: E402  # imports starlette
from structattn.explorer.requests import MAX_BYTES, RecordRequest  # noqa: E402  # imports starlette
from structattn.explorer.server import MAX_WAITING, PER_MINUTE, Recorder, explorer_app  # noqa: E402  # imports starlette

TOKEN, PORT = "secret", 8765
HOST = f"127.0.0.1:{PORT}"
HEADERS = {"host": HOST, "x-structattn-token": TOKEN, "content-type": "application/json"}
TEXT = {"formal language": "()()", "language model": "the dog ran", "translation": "eins zwei"}
TEXT["translation with stacks"] = TEXT["translation"]


@pytest.fixture
def client(run_dir):
    """client(kind) talks to the server of a run."""

    def make(kind="formal language"):
        first = RecordRequest(text=TEXT[kind])
        app = explorer_app(Recorder(structattn.load(run_dir(kind)), 4), first, TOKEN, PORT)
        return testclient.TestClient(app, base_url=f"http://{HOST}", raise_server_exceptions=False)

    return make


def asked(client, headers=(), **content):
    return client.post("/record", json=content, headers=HEADERS | dict(headers))


def as_json(recording):
    return json.loads(json.dumps(recording_to_json(recording)))


def array(recording, description):
    packed = zlib.decompress(b64decode(recording["arrays"][description["array"]]))
    return np.frombuffer(packed, dtype=description["dtype"]).reshape(description["shape"])


def test_the_page_has_the_token_and_may_ask_its_own_server_only(client):
    answer = client().get(f"/?token={TOKEN}")
    assert answer.status_code == 200
    assert "connect-src 'self'" in answer.text
    live = json.loads(re.search(r'<script type="application/json" id="live">(.*?)</script>', answer.text)[1])
    assert live == {"token": TOKEN, "request": {"text": "()()"}, "refusal": None}
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]
    assert answer.headers["referrer-policy"] == "no-referrer"
    assert "access-control-allow-origin" not in answer.headers


def test_a_text_is_recorded_as_python_records_it(client, run_dir):
    answer = asked(client(), text="(())")
    expected = record(structattn.load(run_dir("formal language")), ["(())"], depths=4)
    assert answer.json() == as_json(expected)


def test_interventions_are_those_of_python(client, run_dir):
    wanted = [
        {"kind": "head_off", "layer": 0, "head": 1},
        {"kind": "sublayer_off", "layer": 0, "sublayer": "feedforward"},
        {"kind": "forced_action", "layer": 1, "position": 2, "action": "pop"},
    ]
    found = asked(client(), text="(())", interventions=wanted).json()
    run = structattn.load(run_dir("formal language"))
    chosen = [HeadOff(0, 1), SublayerOff(0, "feedforward"), ForcedAction(1, 2, "pop")]
    expected = record(run, ["(())"], depths=4, interventions=chosen)
    assert found == as_json(expected)
    (stack,) = [each for each in found["examples"][0]["records"] if each["mechanism"] == "nondeterministic"]
    assert stack["action_names"][2] == "pop"
    np.testing.assert_allclose(array(found, stack["actions"])[2], [0, 0, 1], atol=1e-6)


def test_an_example_is_recorded_as_python_records_it(client, run_dir):
    expected = record(structattn.load(run_dir("formal language")), examples=[1], depths=4)
    assert asked(client(), example=1).json() == as_json(expected)


def test_interventions_keep_the_original_translation(client):
    app, off = (
        client("translation"),
        [{"kind": "head_off", "layer": 0, "head": 0, "sublayer": "cross", "side": "decoder"}],
    )
    original, changed = asked(app, text="eins zwei").json(), asked(app, text="eins zwei", interventions=off).json()
    assert changed["examples"][0]["tokens"] == original["examples"][0]["tokens"]
    assert "beam_search" in original["examples"][0]
    assert not np.array_equal(
        *(array(each, each["examples"][0]["surprisal"]) for each in (original, changed)), equal_nan=True
    )


@pytest.mark.parametrize(
    ("changes", "status", "message"),
    [
        ({"host": "evil.example"}, 421, "names another server"),
        ({"host": "127.0.0.1:1"}, 421, "names another server"),
        ({"host": f"evil.example:{PORT}"}, 421, "names another server"),
        ({"origin": "http://evil.example"}, 403, "from another page"),
        ({"origin": "null"}, 403, "from another page"),
        ({"origin": f"https://{HOST}"}, 403, "from another page"),
        ({"x-structattn-token": "wrong"}, 403, "the token is missing or wrong"),
        ({"x-structattn-token": ""}, 403, "the token is missing or wrong"),
        ({"content-type": "text/plain"}, 415, "expected application/json"),
        ({"content-type": "application/x-www-form-urlencoded"}, 415, "expected application/json"),
    ],
)
def test_requests_of_others_are_refused(client, changes, status, message):
    answer = asked(client(), changes, text="()")
    assert (answer.status_code, message in answer.json()["error"]) == (status, True)


def test_the_page_is_for_those_who_have_its_link(client):
    pages = client()
    for query in ("", "?token=", "?token=wrong", f"?token={TOKEN}&token={TOKEN}"):
        assert pages.get(f"/{query}").status_code == 403
    assert pages.get(f"/?token={TOKEN}", headers={"host": "evil.example"}).status_code == 421
    assert pages.get(f"/?token={TOKEN}", headers={"host": f"localhost:{PORT}"}).status_code == 200


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({}, "the request: expected either a text or an example"),
        ({"text": "()", "example": 0}, "expected either a text or an example"),
        ({"example": 0, "target": "()"}, "target: an example has its own"),
        ({"example": 10_000}, "10000"),
        ({"text": 3}, "text: expected text"),
        ({"text": "()", "depths": 1000}, "depths: no such field"),
        ({"text": "(" * 30_000}, "text: expected at most 20000 characters"),
        ({"text": "(" * 2_000}, "expected at most 1024"),
        ({"text": "(x"}, "x"),
        ({"text": "()", "target": "()"}, "target"),
        ({"text": "()", "interventions": [{"kind": "rm"}]}, "interventions.0"),
        ({"text": "()", "interventions": [{"kind": "head_off", "layer": -1, "head": 0}]}, "interventions.0"),
        (
            {"text": "()", "interventions": [{"kind": "head_off", "layer": 7, "head": 0}]},
            "layer 8: there is no such layer",
        ),
        (
            {"text": "()", "interventions": [{"kind": "head_off", "layer": 0, "head": 9}]},
            "layer 1: there is no such head",
        ),
        (
            {
                "text": "()",
                "interventions": [{"kind": "forced_action", "layer": 1, "position": 0, "action": "pop"}],
            },
            "layer 2, pop at 1: only the bottom is on the stack",
        ),
        (
            {"text": "()", "interventions": [{"kind": "head_off", "layer": 0, "head": 0}] * 65},
            "interventions: expected at most 64 items",
        ),
    ],
)
def test_bad_requests_are_refused_with_what_is_wrong(client, content, message):
    answer = asked(client(), **content)
    assert answer.status_code == 422
    assert message in answer.json()["error"]


def test_the_page_says_which_models_take_no_interventions():
    recorder = Recorder(SimpleNamespace(model=torch.nn.LSTM(2, 2)), 4)
    assert recorder.refusal.endswith("transformers of structattn without loops; the model is a LSTM")


def test_large_bodies_are_refused_with_and_without_a_length(client):
    app = client()
    body = json.dumps({"text": " " * MAX_BYTES}).encode()
    assert app.post("/record", content=body, headers=HEADERS).status_code == 413

    def pieces():
        yield from (body[i : i + 1000] for i in range(0, len(body), 1000))

    assert app.post("/record", content=pieces(), headers=HEADERS).status_code == 413


def test_too_many_requests_are_refused(client, run_dir, monkeypatch):
    recorder = Recorder(structattn.load(run_dir("formal language")), 4)
    assert [recorder.admit() for _ in range(PER_MINUTE + 1)] == [True] * PER_MINUTE + [False]
    now = server.monotonic() + 61
    monkeypatch.setattr(server, "monotonic", lambda: now)
    assert recorder.admit()  # a minute later
    recorder._waiting = MAX_WAITING
    assert not recorder.admit()
    monkeypatch.setattr(Recorder, "admit", lambda self: False)
    assert asked(client(), text="()").status_code == 429


def test_200_malformed_requests_get_a_refusal_each(client):
    """Bodies and headers with random damage: never a success without a recording, never a failure of the server."""
    app, generator, statuses = client(), random.Random(1), set()
    whole = json.dumps(
        {"text": "()", "interventions": [{"kind": "forced_action", "layer": 1, "position": 0, "action": "push"}]}
    ).encode()
    for _ in range(200):
        body, headers = bytearray(whole), dict(HEADERS)
        for _ in range(generator.randint(1, 4)):
            damage = generator.randrange(4)
            if damage == 0 and body:
                body[generator.randrange(len(body))] = generator.randrange(256)
            elif damage == 1:
                del body[generator.randrange(len(body) + 1) :]
            elif damage == 2:
                place = generator.randrange(len(body) + 1)
                body[place:place] = generator.choice(
                    [b"[" * 5000, b"1e999", b"\x00", b'"a":', b"\xed\xa0\x80", b"{" * 99]
                )
            else:
                name = generator.choice(["host", "x-structattn-token", "content-type", "content-length"])
                headers[name] = generator.choice(["", "x", "-1", "9" * 40, "\x7f", "application/json; a=b", "0x10"])
        answer = app.post("/record", content=bytes(body), headers=headers)
        statuses.add(answer.status_code)
        if answer.status_code == 200:
            assert answer.json()["examples"][0]["records"]
        else:
            assert 400 <= answer.status_code < 500, (answer.status_code, bytes(body), headers)
            assert answer.json()["error"]
    assert len(statuses) >= 4
    assert 429 not in statuses  # recordings that have ended make room for others


def test_a_fault_of_the_server_is_told_without_details(client, monkeypatch):
    def fails(*arguments, **keywords):
        raise ZeroDivisionError("a secret")

    app = client()
    monkeypatch.setattr("structattn.explorer.server.record", fails)
    answer = asked(app, text="()")
    assert answer.status_code == 500
    assert "secret" not in answer.text


def test_other_paths_and_methods(client):
    app = client()
    assert app.get(f"/record?token={TOKEN}").status_code == 405
    assert app.get(f"/../etc/passwd?token={TOKEN}").status_code == 404
    assert app.put("/record", json={}, headers=HEADERS).status_code == 405
    assert app.options("/record", headers={"host": HOST}).status_code == 403


@pytest.fixture(scope="module")
def served(run_dir):
    """The link and process of `structattn explore --serve`, which SIGTERM ends, and which waits little for headers."""
    program = (
        "from structattn.explorer import server\n"
        "from structattn.cli.main import main\n"
        "server.HEADER_SECONDS = 1\n"
        "main()"
    )
    words = [sys.executable, "-c", program, "explore", run_dir("formal language"), "--text", "()", "--serve"]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    link = process.stdout.readline().strip()
    yield link, process
    process.terminate()
    process.communicate()
    assert process.returncode == 0


def test_the_command_serves_on_this_computer_only(served):
    link, _ = served
    host, port, token = re.fullmatch(r"http://(127\.0\.0\.1):(\d+)/\?token=([\w-]{32})", link).groups()
    connection = http.client.HTTPConnection(host, int(port))
    with closing(connection):
        connection.request("GET", f"/?token={token}")
        assert connection.getresponse().read().startswith(b"<!doctype html>")
    listening = Path("/proc/net/tcp")
    if listening.exists():
        addresses = [line.split()[1] for line in listening.read_text().splitlines()[1:] if line.split()[3] == "0A"]
        assert f"0100007F:{int(port):04X}" in addresses
        assert f"00000000:{int(port):04X}" not in addresses
    with socket.create_connection((host, int(port))) as raw:
        raw.sendall(b"GET / HTTP/1.1\r\nHost: " + b"a" * 100_000)
        assert raw.recv(100).startswith(b"HTTP/1.1 4")


def test_recordings_of_clients_that_left_are_cancelled(run_dir, monkeypatch):
    """The one that is computed, and the one that waits for it; the next is computed as if nothing had been."""
    recorder, request = Recorder(structattn.load(run_dir("formal language")), 4), RecordRequest(text="()")
    computed, left, results = Event(), Event(), {}

    def endless(*arguments, **keywords):
        computed.set()
        while True:
            torch.zeros(1)

    async def leave():
        while not left.is_set():
            await anyio.sleep(0.01)

    async def ask(name, receive):
        results[name] = await recorder.record(request, receive)

    async def ask_three():
        with monkeypatch.context() as patch, anyio.fail_after(60):
            patch.setattr(server, "record", endless)
            async with anyio.create_task_group() as group:
                group.start_soon(ask, "first", leave)
                await anyio.to_thread.run_sync(computed.wait)
                group.start_soon(ask, "second", leave)
                await anyio.sleep(0.1)
                left.set()
        await ask("third", anyio.sleep_forever)

    with ThreadPoolExecutor(1) as pool:  # playwright may have left a loop in this thread
        pool.submit(anyio.run, ask_three).result()
    assert (results["first"], results["second"]) == (None, None)
    assert len(results["third"].examples) == 1


@pytest.mark.parametrize("cancelled", [lambda: torch.zeros(1), lambda: None], ids=["function", "end of no_grad"])
def test_a_cancelled_recording_is_no_fault_and_leaves_the_thread_as_it_was(run_dir, monkeypatch, cancelled):
    left, taken_for_faults = Event(), []

    def cancelled_within(*arguments, **keywords):
        try:
            with torch.no_grad():
                left.set()
                cancelled()
        except Exception as error:  # as of a comparison with kernels
            taken_for_faults.append(error)

    monkeypatch.setattr(server, "record", cancelled_within)
    recorder = Recorder(structattn.load(run_dir("formal language")), 4)
    with torch.enable_grad():
        assert recorder._record_unless(left, RecordRequest(text="()")) is None
        assert torch.is_grad_enabled()
    assert not taken_for_faults


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGHUP, marks=pytest.mark.slow)])
def test_a_signal_ends_a_recording_within_two_seconds(run_dir, number):
    """Even in a function of torch that does not end."""
    program = (
        "import time, torch; from structattn.explorer import server; from structattn.cli.main import main\n"
        "class Slow(server.Recorder):\n"
        "    def record_now(self, request):\n"
        "        if request.text == '(())':\n"
        "            print('computing', flush=True); time.sleep(60)\n"
        "        return super().record_now(request)\n"
        "server.Recorder = Slow\n"
        "main()"
    )
    words = [sys.executable, "-c", program, "explore", run_dir("formal language"), "--text", "()", "--serve"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        host, port, token = re.fullmatch(
            r"http://(127\.0\.0\.1):(\d+)/\?token=([\w-]{32})\n", process.stdout.readline()
        ).groups()
        connection = http.client.HTTPConnection(host, int(port))
        headers = {"x-structattn-token": token, "content-type": "application/json"}
        with closing(connection):
            connection.request("POST", "/record", json.dumps({"text": "(())"}), headers)
            assert process.stdout.readline() == "computing\n"
            process.send_signal(number)
            asked_at = time.monotonic()
            _, errors = process.communicate(timeout=60)
        assert time.monotonic() - asked_at < 2 + os.getloadavg()[0]
        assert (process.returncode, "Traceback" in errors) == (0, False)


def test_connections_without_headers_do_not_keep_others_out(served):
    link, process = served
    host, port, token = re.fullmatch(r"http://(127\.0\.0\.1):(\d+)/\?token=([\w-]{32})", link).groups()
    with ExitStack() as stack:
        begun = [stack.enter_context(socket.create_connection((host, int(port)), timeout=60)) for _ in range(40)]
        for each in begun:
            each.sendall(b"GET / HTTP/1.1\r\nHost: ")
        connection = stack.enter_context(closing(http.client.HTTPConnection(host, int(port))))
        connection.request("GET", f"/?token={token}")
        assert connection.getresponse().status == 200
        assert [each.recv(1) for each in begun] == [b""] * 40  # closed by the server
    assert process.poll() is None


def test_a_refused_request_ends_its_connection_though_the_body_goes_on(served):
    link, _ = served
    host, port = re.fullmatch(r"http://(127\.0\.0\.1):(\d+)/.*", link).groups()
    with socket.create_connection((host, int(port)), timeout=60) as raw:
        raw.sendall(f"POST /record HTTP/1.1\r\nHost: {host}:{port}\r\nContent-Length: 9\r\n\r\n".encode())
        assert raw.recv(4096).startswith(b"HTTP/1.1 403")
        raw.sendall(b"{")
        while raw.recv(4096):  # the answer may come in parts
            pass


@pytest.mark.parametrize(
    ("runs", "options", "message"),
    [
        (2, [], "--serve is for one run folder"),
        (1, ["--beam", "3"], "--serve is for one run folder, without --beam and --output"),
        (1, ["--output", "page.html"], "--serve is for one run folder, without --beam and --output"),
        (1, ["--example", "0", "--target", "()"], "1 targets for 0 texts; expected one for each"),
        (1, ["--text", "()", "--target", "()", "--target", "()"], "2 targets for 1 texts; expected one for each"),
        (1, ["--split", "foo"], "split: expected 'train', 'valid', 'valid-long', 'test', 'test-held-out', "),
    ],
)
def test_what_is_not_served(run_dir, runs, options, message):
    found = invoke("explore", *[str(run_dir("formal language"))] * runs, "--serve", *options)
    assert (found.exit_code, message in found.stderr) == (2, True)


def test_the_page_shows_texts_and_what_interventions_change(served, browser):
    link, _ = served
    faults, requests = [], []
    context = browser.new_context(viewport={"width": 1200, "height": 1000})
    with closing(context):
        page = context.new_page()
        page.set_default_timeout(300_000)
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.on("console", lambda message: faults.append(message.text) if message.type == "error" else None)
        page.on("request", lambda request: requests.append(request.url))
        page.goto(link)
        page.get_by_role("textbox", name="Text").fill("(())[]")
        page.get_by_role("button", name="Show").click()
        page.get_by_role("combobox", name="Example").locator("option", has_text="( ( ) ) [ ]").wait_for(
            state="attached"
        )
        assert page.locator("section.run").count() == 1
        page.get_by_role("combobox", name="Action").select_option(label="pop")
        page.get_by_label("at token").select_option(index=2)
        page.get_by_role("button", name="Force").click()
        page.get_by_role("button", name="Remove layer 2: pop at 3 (").wait_for()
        page.get_by_role("button", name="Switch off").click()
        page.get_by_role("button", name="Remove layer 1 head 1 off").wait_for()
        page.get_by_role("combobox", name="Part").select_option(label="layer 2 attention")
        page.get_by_role("button", name="Switch off").click()
        page.get_by_role("button", name="Remove layer 2 attention off").click()
        page.get_by_role("button", name="Remove layer 2 attention off").wait_for(state="detached")
        assert page.locator("section.run").count() == 2
        page.get_by_role("button", name="Remove layer 2").click()
        page.get_by_role("button", name="Remove layer 2").wait_for(state="detached")
        assert page.get_by_role("list", name="Interventions in force").get_by_role("listitem").count() == 1
        page.get_by_role("textbox", name="Text").fill("x")
        page.get_by_role("button", name="Show").click()
        assert "'x'" in page.get_by_role("alert").inner_text()
    origin = link.split("?")[0]
    assert set(requests) == {link, origin + "record"}
    assert [fault for fault in faults if "422" not in fault] == []


@pytest.fixture
def live(client, browser):
    """live(kind) is the page of the server of a run, whose requests the client answers."""
    context = browser.new_context(viewport={"width": 1200, "height": 1000})

    def make(kind):
        asks = client(kind)

        def answer(route):
            request = route.request
            found = asks.request(
                request.method, request.url, headers=request.headers | {"host": HOST}, content=request.post_data_buffer
            )
            route.fulfill(status=found.status_code, headers=dict(found.headers), body=found.content)

        page = context.new_page()
        page.route("**/*", answer)
        page.goto(f"http://{HOST}/?token={TOKEN}")
        page.wait_for_selector("#panel .toolbar")
        return page

    with closing(context):
        yield make


def test_forced_actions_are_named_by_the_tokens_of_their_side(live):
    page = live("translation with stacks")
    for number in range(2):
        page.get_by_role("combobox", name="Stack").select_option(str(number))
        at = page.get_by_label("at token")
        at.select_option(index=1)
        token = at.locator("option").nth(1).inner_text()
        page.get_by_role("button", name="Force").click()
        chips = page.get_by_role("list", name="Interventions in force").get_by_role("listitem")
        chips.nth(number).wait_for()
        assert f"push at {token} " in chips.nth(number).inner_text()


def test_the_page_with_interventions_is_accessible(live, axe):
    page = live("formal language")
    page.get_by_role("button", name="Force").click()
    page.get_by_role("list", name="Interventions in force").wait_for()
    assert [each["id"] for each in axe.run(page).response["violations"]] == []
