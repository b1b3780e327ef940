"""A client that goes away: whatever its request was doing ends within a step, all pages return."""
import json
import socket

import pytest

from headroom_server import HeadroomServer
from wire import metric, metrics, wait_for, wait_until_free

# On the reference backend with tiny steps a request lasts long enough to be met in any state.
FLAGS = ["--backend", "ref", "--threads", "1", "--max-batch-rows", "8", "--max-running", "8",
         "--check-invariants"]
LONG_ANSWER = {"prompt": "abc", "max_tokens": 1900, "ignore_eos": True, "n": 8}
LONG_PROMPT = {"prompt": [7] * 1900, "max_tokens": 100, "ignore_eos": True}


@pytest.fixture(scope="module")
def server():
    with HeadroomServer("builtin:tiny", *FLAGS) as server:
        yield server


def send(server, fields, **more):
    """Sends a completion request and leaves the connection open."""
    body = json.dumps({"temperature": 0, **fields, **more}).encode()
    connection = socket.create_connection(("127.0.0.1", server.port), timeout=60)
    connection.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n%s"
                       % (len(body), body))
    return connection


def cancelled(server):
    return sum(value for key, value in metrics(server).items()
               if key.startswith("headroom_requests_finished_total") and '"cancelled"' in key)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("hard", [False, True], ids=["close", "reset"])
def test_while_decoding(server, stream, hard):
    before, tokens = cancelled(server), metric(server, "headroom_generation_tokens_total")
    connection = send(server, LONG_ANSWER, stream=stream)
    wait_for("tokens", lambda: metric(server, "headroom_generation_tokens_total") > tokens)
    assert metric(server, "headroom_kv_cache_pages_used") > 0
    if hard:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    connection.close()
    wait_until_free(server)
    assert cancelled(server) == before + 8, "every choice was cancelled, none ran to its end"


@pytest.mark.parametrize("stream", [False, True])
def test_while_the_prompt_is_read(server, stream):
    before, tokens = cancelled(server), metric(server, "headroom_generation_tokens_total")
    connection = send(server, LONG_PROMPT, stream=stream)
    wait_for("prefill", lambda: metric(server, "headroom_kv_cache_pages_used") > 0)
    connection.close()
    wait_until_free(server)
    assert cancelled(server) == before + 1
    assert metric(server, "headroom_generation_tokens_total") == tokens


@pytest.mark.parametrize("stream", [False, True])
def test_while_queued(server, stream):
    before = cancelled(server)
    running = send(server, LONG_ANSWER)
    wait_for("a full house", lambda: metric(server, "headroom_requests_running") == 8)
    queued = send(server, LONG_PROMPT, stream=stream)
    wait_for("a queue", lambda: metric(server, "headroom_requests_waiting") == 1)
    queued.close()
    wait_for("an empty queue", lambda: metric(server, "headroom_requests_waiting") == 0)
    assert cancelled(server) == before + 1
    assert metric(server, "headroom_requests_running") == 8, "the others go on"
    running.close()
    wait_until_free(server)


def test_after_the_next_request_was_begun(server):
    before, tokens = cancelled(server), metric(server, "headroom_generation_tokens_total")
    connection = send(server, LONG_ANSWER)
    wait_for("tokens", lambda: metric(server, "headroom_generation_tokens_total") > tokens)
    connection.sendall(b"POST /v1/comple")
    connection.close()
    wait_until_free(server)
    assert cancelled(server) == before + 8


def test_before_the_body_is_whole(server):
    before = metric(server, "headroom_prompt_tokens_total")
    for data in (b"", b"POST /v1/completions HT",
                 b"POST /v1/completions HTTP/1.1\r\nContent-Length: 100\r\n\r\n{\"prompt\""):
        with socket.create_connection(("127.0.0.1", server.port)) as connection:
            connection.sendall(data)
    # One connection is the one that asks.
    wait_for("closed connections", lambda: metric(server, "headroom_http_connections") <= 1)
    assert metric(server, "headroom_prompt_tokens_total") == before
