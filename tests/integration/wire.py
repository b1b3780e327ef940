"""Requests as bytes, so that the tests see exactly what the server sends."""
import http.client
import json
import re
import socket
import time
import urllib.request

# What receipt_assert needs of the built-in models, keys and values in bf16, the default.
TINY = {"layers": 4, "kv_heads": 2, "tsp_layer": 1, "head_dim": 16, "element_bytes": 2}
NEEDLE = {"layers": 6, "kv_heads": 2, "tsp_layer": 2, "head_dim": 32, "element_bytes": 2}
INT8 = {"element_bytes": 1, "scale_bytes": 8}  # what differs with --kv-dtype int8
# Tokens that builtin:tiny's template puts behind a message: <|im_end|>\n<|im_start|>assistant\n
TINY_SUFFIX = 13

TIMEOUT_S = 300


class Reply:
    def __init__(self, response):
        self.status = response.status
        self.headers = response.headers
        self.version = response.version
        self.body = response.read()

    def json(self):
        return json.loads(self.body)


def request(server, method, path, body=None, headers=None):
    """One request on a connection of its own."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=TIMEOUT_S)
    try:
        if body is not None and not isinstance(body, (bytes, str)):
            body = json.dumps(body)
        connection.request(method, path, body, headers or {})
        return Reply(connection.getresponse())
    finally:
        connection.close()


def complete(server, headers=None, **fields):
    """POST /v1/completions that must succeed, as parsed JSON."""
    reply = request(server, "POST", "/v1/completions", {"temperature": 0, **fields}, headers)
    assert reply.status == 200, reply.body
    return reply.json()


def chat(server, text, headers=None, **fields):
    body = {"messages": [{"role": "user", "content": text}], "temperature": 0, **fields}
    reply = request(server, "POST", "/v1/chat/completions", body, headers)
    assert reply.status == 200, reply.body
    return reply.json()


def events(body):
    """The data of each event of an SSE body; comments are dropped."""
    found = []
    for block in body.decode("utf-8").split("\n\n"):
        if block and not block.startswith(":"):
            assert block.startswith("data: ") and "\n" not in block, block
            found.append(block[len("data: "):])
    return found


def stream(server, path, body, headers=None):
    """A whole streamed answer: the reply and its parsed chunks; it must end with [DONE]."""
    reply = request(server, "POST", path, {"temperature": 0, **body, "stream": True}, headers)
    assert reply.status == 200, reply.body
    data = events(reply.body)
    assert data.count("[DONE]") == 1 and data[-1] == "[DONE]", data[-3:]
    return reply, [json.loads(text) for text in data[:-1]]


def raw(server, data, timeout=TIMEOUT_S):
    """Sends bytes and returns all that comes until the server closes."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=timeout) as connection:
        connection.sendall(data)
        received = b""
        while chunk := connection.recv(65536):
            received += chunk
        return received


def assert_error(reply, status, code, param=None, type_name="invalid_request_error"):
    """The error envelope, whole."""
    assert reply.status == status, (reply.status, reply.body)
    assert reply.headers["content-type"] == "application/json"
    assert reply.headers["x-request-id"].startswith("req-")
    error = reply.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}, error
    assert (error["type"], error["code"], error["param"]) == (type_name, code, param), error
    assert error["message"]
    return error["message"]


def metrics(server):
    """Prometheus text as {name{labels}: value}."""
    with urllib.request.urlopen(f"{server.url}/metrics", timeout=TIMEOUT_S) as response:
        text = response.read().decode()
    values = {}
    for line in text.splitlines():
        if line and not line.startswith("#"):
            match = re.fullmatch(r"([a-zA-Z_:][\w:]*(?:\{[^}]*\})?) (\S+)", line)
            assert match, line
            values[match[1]] = float(match[2])
    return values


def metric(server, name):
    """The sum of a metric over its labels."""
    return sum(value for key, value in metrics(server).items() if key.split("{")[0] == name)


def wait_for(what, condition, timeout=60):
    """Polls until condition() is true; the bound is wide, a loaded machine is slow."""
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, f"no {what} within {timeout} s"
        time.sleep(0.02)


def wait_until_free(server, timeout=60):
    """Waits until no request is in the engine and no page is in use."""
    wait_for("free pool", lambda: metric(server, "headroom_kv_cache_pages_used") == 0
             and metric(server, "headroom_requests_running") == 0
             and metric(server, "headroom_requests_waiting") == 0, timeout)
