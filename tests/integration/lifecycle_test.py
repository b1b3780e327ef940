"""Start, configuration, drain and stop of the real process."""
import json
import os
import signal
import socket
import subprocess
import threading

import pytest

from headroom_server import HeadroomServer, binary
from wire import assert_error, events, metric, request, wait_for

# Slow enough that an answer is still going on when the signal comes.
FLAGS = ["--backend", "ref", "--threads", "1"]


class Streaming(threading.Thread):
    """Reads one long streamed answer in the background."""

    def __init__(self, server, max_tokens):
        super().__init__(daemon=True)
        self.server, self.max_tokens, self.data = server, max_tokens, None
        before = metric(server, "headroom_generation_tokens_total")
        self.start()
        wait_for("tokens",
                 lambda: metric(server, "headroom_generation_tokens_total") > before)

    def run(self):
        reply = request(self.server, "POST", "/v1/completions",
                        {"prompt": "abc", "max_tokens": self.max_tokens, "ignore_eos": True,
                         "temperature": 0, "n": 4, "stream": True})
        self.data = events(reply.body)

    def result(self):
        self.join(120)
        assert self.data is not None
        return self.data


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_first_signal_drains(number):
    with HeadroomServer("builtin:tiny", *FLAGS) as server:
        answer = Streaming(server, max_tokens=300)
        server.process.send_signal(number)
        wait_for("drain", lambda: request(server, "GET", "/readyz").status == 503)
        assert_error(request(server, "GET", "/readyz"), 503, "draining",
                     type_name="overloaded_error")
        assert request(server, "GET", "/livez").status == 200
        refused = request(server, "POST", "/v1/completions", {"prompt": "a", "max_tokens": 1})
        assert_error(refused, 503, "draining", type_name="overloaded_error")
        assert int(refused.headers["retry-after"]) > 0
        data = answer.result()
        assert data[-1] == "[DONE]"
        ends = [c["finish_reason"] for d in data[:-1] for c in json.loads(d)["choices"]]
        assert ends.count("length") == 4
        assert server.process.wait(60) == 0


def cut_stream(data):
    """A stream that was cut: one error event is its end, and it does not say [DONE]."""
    assert "[DONE]" not in data
    error = json.loads(data[-1])["error"]
    assert error["code"] == "server_shutting_down" and error["type"] == "overloaded_error"
    assert all("error" not in json.loads(text) for text in data[:-1])


def test_the_second_signal_stops_at_once():
    with HeadroomServer("builtin:tiny", *FLAGS) as server:
        answer = Streaming(server, max_tokens=2000)
        server.process.send_signal(signal.SIGTERM)
        wait_for("drain", lambda: request(server, "GET", "/readyz").status == 503)
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(60) == 75
        cut_stream(answer.result())


def test_a_drain_that_takes_too_long_is_75():
    with HeadroomServer("builtin:tiny", *FLAGS, "--shutdown-timeout", "0") as server:
        answer = Streaming(server, max_tokens=2000)
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(60) == 75
        cut_stream(answer.result())


def test_an_idle_server_stops_with_open_connections():
    with HeadroomServer("builtin:tiny", *FLAGS) as server:
        with socket.create_connection(("127.0.0.1", server.port)) as idle:
            idle.sendall(b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n")
            assert idle.recv(65536)
            assert server.stop() == 0


def test_probes_are_answered_while_the_model_loads(tmp_path):
    model = tmp_path / "model.gguf"
    os.mkfifo(model)  # reading it waits for a writer
    server = HeadroomServer(str(model))
    with subprocess.Popen([*server._command], stderr=subprocess.PIPE, text=True) as process:
        try:
            def answers(path):
                try:
                    return request(server, "GET", path)
                except OSError:
                    return None

            wait_for("the listening socket", lambda: answers("/livez") is not None)
            assert answers("/livez").status == 200 and answers("/version").status == 200
            for path in ("/readyz", "/metrics", "/v1/models"):
                assert_error(answers(path), 503, "model_loading", type_name="overloaded_error")
            early = request(server, "POST", "/v1/completions", {"prompt": "a"})
            assert_error(early, 503, "model_loading", type_name="overloaded_error")
            assert int(early.headers["retry-after"]) > 0
        finally:
            model.open("w").close()
        assert process.wait(60) == 78
        assert "not a regular file" in process.stderr.read()


def run(*arguments, **environment):
    return subprocess.run([binary(), *arguments], capture_output=True, text=True, timeout=120,
                          env={**os.environ, **environment})


@pytest.mark.parametrize("arguments,names", [
    (["serve"], "model"),
    (["serve", "builtin:nope"], "needle-1hop"),
    (["serve", "/no/such/model.gguf"], "/no/such/model.gguf"),
    (["serve", "builtin:tiny", "--prot", "1"], "--port"),
    (["serve", "builtin:tiny", "--port", "70000"], "--port"),
    (["serve", "builtin:tiny", "--port", "abc"], "--port"),
    (["serve", "builtin:tiny", "--host", "0.0.0.0"], "loopback"),
    (["serve", "builtin:tiny", "--host", "127.0.0.nonsense"], "--host"),
    (["serve", "builtin:tiny", "--backend", "gpu"], "--backend"),
    (["serve", "builtin:tiny", "--cpu-isa", "mmx"], "mmx"),
    (["serve", "builtin:tiny", "--kv-dtype", "int3"], "--kv-dtype"),
    (["serve", "builtin:tiny", "--kv-pages", "1"], "--kv-memory-mib"),
    (["serve", "builtin:tiny", "--tsp-layer", "4"], "--tsp-layer"),
    (["serve", "builtin:tiny", "--max-context", "4096"], "--max-context"),
    (["serve", "builtin:tiny", "--log-level", "loud"], "--log-level"),
    (["serve", "builtin:tiny", "--config", "/no/such/file"], "/no/such/file"),
    (["nonsense"], "subcommand"),
    ([], "subcommand"),
], ids=lambda value: " ".join(value) if isinstance(value, list) else None)
def test_a_bad_configuration_is_78_and_named(arguments, names):
    result = run(*arguments)
    assert result.returncode == 78, (result.returncode, result.stderr)
    assert names in result.stderr, result.stderr
    assert result.stdout == ""


def test_a_port_in_use_is_78(tiny):
    result = run("serve", "builtin:tiny", "--threads", "1", "--port", str(tiny.port))
    assert result.returncode == 78 and str(tiny.port) in result.stderr


def test_help_and_version():
    for arguments in (["--help"], ["serve", "--help"], ["bench", "engine", "--help"]):
        result = run(*arguments)
        assert result.returncode == 0 and "Usage" in result.stdout
    assert run("--version").stdout.startswith("headroom ")


def test_flags_go_before_the_environment_before_the_file(tmp_path, monkeypatch):
    config = tmp_path / "headroom.conf"
    config.write_text("# test\n[serve]\nmax-context = 100\nthreads = 1\n"
                      "[bench engine]\nbatch = 1\n")

    def context(*flags):
        with HeadroomServer("builtin:tiny", *flags, "--config", str(config)) as server:
            (model,) = request(server, "GET", "/v1/models").json()["data"]
            return model["max_model_len"]

    assert context() == 100
    monkeypatch.setenv("HEADROOM_MAX_CONTEXT", "200")
    assert context() == 200
    assert context("--max-context", "300") == 300


@pytest.mark.parametrize("text,names", [
    ("[serve]\nmax-contxt = 1\n", ["headroom.conf:2", "max-context"]),
    ("[sreve]\nmax-context = 1\n", ["[serve]"]),
    ("max-context = 1\n", ["headroom.conf:1"]),
    ("[serve]\nmax-context = many\n", ["headroom.conf:2"]),
    ("[serve]\nport = 1\nport = 2\n", ["headroom.conf:3"]),
])
def test_faults_of_a_config_file_are_78_with_the_line(tmp_path, text, names):
    config = tmp_path / "headroom.conf"
    config.write_text(text)
    result = run("serve", "builtin:tiny", "--config", str(config))
    assert result.returncode == 78
    assert all(name in result.stderr for name in names), result.stderr


def test_a_bad_environment_variable_is_78():
    result = run("serve", "builtin:tiny", HEADROOM_MAX_CONTEXT="many")
    assert result.returncode == 78 and "HEADROOM_MAX_CONTEXT" in result.stderr
