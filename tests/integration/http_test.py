"""HTTP itself: routes, framing, limits, probes, connection handling."""
import http.client
import json
import re
import socket

import pytest

from headroom_server import HeadroomServer
from wire import assert_error, complete, metric, metrics, raw, request, wait_for

POST_PATHS = ["/v1/chat/completions", "/v1/completions"]
GET_PATHS = ["/v1/models", "/v1/models/tiny", "/health", "/livez", "/readyz", "/metrics",
             "/version"]
BODY = json.dumps({"prompt": [1, 2, 3], "max_tokens": 2, "temperature": 0}).encode()


def post_bytes(path="/v1/completions", body=BODY, headers=(), version="1.1", length=None):
    lines = [f"POST {path} HTTP/{version}", "Host: test", *headers]
    if length is not False:
        lines.append(f"Content-Length: {len(body) if length is None else length}")
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def status_of(response):
    return int(response.split(b" ", 2)[1])


def test_models_are_listed_with_what_clients_read(tiny):
    reply = request(tiny, "GET", "/v1/models")
    listing = reply.json()
    assert reply.status == 200 and listing["object"] == "list"
    (model,) = listing["data"]
    assert model["id"] == model["root"] == "tiny" and model["object"] == "model"
    assert model["parent"] is None and model["owned_by"] == "headroom" and model["created"] > 0
    assert model["max_model_len"] == model["context_length"] == 2048
    assert model["meta"]["kv_policies"] == [
        "full", "streaming", "h2o", "scissorhands", "snapkv", "adakv", "pyramidinfer", "gemfilter",
        "fastkv", "fastgen", "random"]
    assert request(tiny, "GET", "/v1/models/tiny").json() == model
    assert_error(request(tiny, "GET", "/v1/models/other"), 404, "model_not_found")


def test_probes_answer_ok(tiny):
    for path in ("/health", "/livez", "/readyz"):
        reply = request(tiny, "GET", path)
        assert (reply.status, reply.body) == (200, b"ok\n")
    version = request(tiny, "GET", "/version").json()
    assert version["name"] == "headroom" and re.fullmatch(r"\d+\.\d+\.\d+.*", version["version"])
    assert request(tiny, "GET", "/health?verbose=1").status == 200


def test_metrics_are_prometheus_text(tiny):
    before = metrics(tiny)
    reply = request(tiny, "POST", "/v1/completions", json.loads(BODY))
    assert reply.status == 200
    after = metrics(tiny)
    labels = '{model_name="tiny"}'
    assert after["headroom_prompt_tokens_total" + labels] == \
        before["headroom_prompt_tokens_total" + labels] + 3
    assert after["headroom_generation_tokens_total" + labels] == \
        before["headroom_generation_tokens_total" + labels] + 2
    assert after["headroom_kv_cache_pages" + labels] > 0
    for name in ("headroom_requests_waiting", "headroom_requests_running",
                 "headroom_kv_cache_pages_used", "headroom_kv_cache_pages_reserved",
                 "headroom_kv_cache_usage_ratio", "headroom_engine_steps_total",
                 "headroom_engine_heartbeat_age_seconds", "headroom_http_connections"):
        assert name + labels in after, name
    for name in ("time_to_first_token", "inter_token_latency", "e2e_request_latency",
                 "engine_step"):
        assert metric(tiny, f"headroom_{name}_seconds_count") > 0, name
    assert metric(tiny, "headroom_http_responses_total") > 0


def test_unknown_fields_are_counted(tiny):
    before = metric(tiny, "headroom_unknown_request_fields_total")
    request(tiny, "POST", "/v1/completions", {**json.loads(BODY), "store": True, "metadata": {}})
    assert metric(tiny, "headroom_unknown_request_fields_total") == before + 2


def test_labels_do_not_come_from_clients(tiny):
    request(tiny, "GET", "/canary-path")
    request(tiny, "GET", "/v1/models/canary-model")
    assert not any("canary" in key for key in metrics(tiny))


@pytest.mark.parametrize("path", ["/", "/v1", "/v1/chat", "/v1/embeddings", "/v1/completions/",
                                  "/%2e%2e/etc/passwd", "/" + "a" * 8000, "/v1/responses"])
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_unknown_paths_are_404(tiny, method, path):
    assert_error(request(tiny, method, path), 404, "not_found")


@pytest.mark.parametrize("path", POST_PATHS)
def test_only_post_generates(tiny, path):
    for method in ("GET", "PUT", "DELETE", "OPTIONS", "PATCH"):
        reply = request(tiny, method, path)
        assert_error(reply, 405, "method_not_allowed")
        assert reply.headers["allow"] == "POST"


@pytest.mark.parametrize("path", GET_PATHS)
def test_only_get_reads(tiny, path):
    for method in ("POST", "PUT", "DELETE"):
        reply = request(tiny, method, path)
        assert_error(reply, 405, "method_not_allowed")
        assert reply.headers["allow"] == "GET"


def test_an_answer_to_head_has_no_body(tiny):
    connection = http.client.HTTPConnection("127.0.0.1", tiny.port, timeout=60)
    for path in ("/health", "/v1/completions", "/nowhere"):
        connection.request("HEAD", path)
        response = connection.getresponse()
        assert response.status in (404, 405) and response.read() == b""
    # The connection is still in step.
    connection.request("GET", "/version")
    assert json.loads(connection.getresponse().read())["name"] == "headroom"
    connection.close()


@pytest.mark.parametrize("name,data", {
    "a length and chunks": post_bytes(headers=["Transfer-Encoding: chunked"]),
    "two lengths": post_bytes(headers=["Content-Length: 5"]),
    "a signed length": post_bytes(length="+5"),
    "a negative length": post_bytes(length="-1"),
    "a list of lengths": post_bytes(length="5,5"),
    "the same length twice": post_bytes(headers=[f"Content-Length: {len(BODY)}"]),
    "an encoding that is not chunked": post_bytes(headers=["Transfer-Encoding: gzip"],
                                                  length=False),
    "two encodings": post_bytes(headers=["Transfer-Encoding: gzip, chunked"], length=False,
                                body=b"0\r\n\r\n"),
    "a length of 2^64": post_bytes(length=2**64),
    "a negative chunk": post_bytes(headers=["Transfer-Encoding: chunked"], length=False,
                                   body=b"-2\r\nab\r\n0\r\n\r\n"),
    "a chunk that is no number": post_bytes(headers=["Transfer-Encoding: chunked"], length=False,
                                            body=b"zz\r\nab\r\n0\r\n\r\n"),
    "no version": b"GET /health\r\n\r\n",
    "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "a header without a colon": b"GET /health HTTP/1.1\r\nHost test\r\n\r\n",
    "a space before the colon": b"GET /health HTTP/1.1\r\nHost : test\r\n\r\n",
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 64 + b"\r\n\r\n",
}.items())
def test_bad_framing_is_refused_and_the_connection_closed(tiny, name, data):
    response = raw(tiny, data)
    assert status_of(response) in (400, 413), (name, response)
    head, _, body = response.partition(b"\r\n\r\n")
    assert b"Connection: close" in head
    assert json.loads(body)["error"]["code"] in ("bad_framing", "payload_too_large")
    assert response.count(b"HTTP/1.1 ") == 1, "nothing after the fault is parsed"


def test_too_large_headers_are_431(tiny):
    response = raw(tiny, post_bytes(headers=["x-filler: " + "a" * 40_000]))
    assert status_of(response) == 431
    assert b'"headers_too_large"' in response


def test_encoded_bodies_are_415(tiny):
    response = raw(tiny, post_bytes(headers=["Content-Encoding: gzip"]))
    assert status_of(response) == 415
    assert b'"unsupported_encoding"' in response


def test_too_large_bodies_are_413_before_they_are_read():
    with HeadroomServer("builtin:tiny", "--threads", "1", "--max-body-mib", "1") as server:
        response = raw(server, post_bytes(length=(1 << 20) + 1, body=b""))
        assert status_of(response) == 413 and b'"payload_too_large"' in response
        chunks = (b"10000\r\n" + b" " * 65536 + b"\r\n") * 17 + b"0\r\n\r\n"
        try:
            response = raw(server, post_bytes(headers=["Transfer-Encoding: chunked"],
                                              length=False, body=chunks))
            assert status_of(response) == 413
        except ConnectionError:
            pass  # closed while we were still sending
        padded = b" " * ((1 << 20) - len(BODY)) + BODY
        assert request(server, "POST", "/v1/completions", padded).status == 200


def test_chunked_bodies_are_read(tiny):
    half = len(BODY) // 2
    body = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in (BODY[:half], BODY[half:]))
    response = raw(tiny, post_bytes(headers=["Transfer-Encoding: chunked", "Connection: close"],
                                    length=False, body=body + b"0\r\n\r\n"))
    assert status_of(response) == 200


def test_expect_100_continue_is_answered(tiny):
    with socket.create_connection(("127.0.0.1", tiny.port), timeout=60) as connection:
        connection.sendall(post_bytes(headers=["Expect: 100-continue", "Connection: close"],
                                      body=b"", length=len(BODY)))
        assert connection.recv(1024).startswith(b"HTTP/1.1 100 Continue\r\n\r\n")
        connection.sendall(BODY)
        received = b""
        while chunk := connection.recv(65536):
            received += chunk
        assert status_of(received) == 200


def test_a_connection_serves_many_requests(tiny):
    connection = http.client.HTTPConnection("127.0.0.1", tiny.port, timeout=60)
    seen = set()
    for body in (BODY, b"{", BODY, json.dumps({"prompt": "a", "max_tokens": 3,
                                               "stream": True}).encode(), BODY):
        connection.request("POST", "/v1/completions", body)
        response = connection.getresponse()
        response.read()
        assert response.status == (400 if body == b"{" else 200)
        assert not response.will_close
        seen.add(response.headers["x-request-id"])
    assert len(seen) == 5, "every answer has an id of its own"
    connection.close()


def test_pipelined_requests_are_answered_in_order(tiny):
    data = post_bytes() + b"GET /version HTTP/1.1\r\nHost: a\r\n\r\n" + \
        post_bytes(body=b"{") + post_bytes(headers=["Connection: close"])
    response = raw(tiny, data)
    statuses = [int(s) for s in re.findall(rb"HTTP/1\.1 (\d+)", response)]
    assert statuses == [200, 200, 400, 200]
    assert response.index(b'"text_completion"') < response.index(b'"version"')


def test_a_request_sent_while_an_answer_is_made_waits_for_its_turn(tiny):
    with socket.create_connection(("127.0.0.1", tiny.port), timeout=60) as connection:
        body = json.dumps({"prompt": "a", "max_tokens": 60, "ignore_eos": True,
                           "stream": True}).encode()
        connection.sendall(post_bytes(body=body))
        received = connection.recv(65536)
        connection.sendall(b"GET /version HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        while chunk := connection.recv(65536):
            received += chunk
    assert received.count(b"data: [DONE]") == 1
    assert received.index(b"data: [DONE]") < received.index(b'"headroom"')


def test_http_1_0_gets_a_whole_answer_and_a_stream_without_chunks(tiny):
    response = raw(tiny, post_bytes(version="1.0"))
    head, _, body = response.partition(b"\r\n\r\n")
    assert status_of(head) == 200 and b"Connection: close" in head
    assert json.loads(body)["object"] == "text_completion"
    stream = json.dumps({"prompt": "a", "max_tokens": 3, "stream": True}).encode()
    head, _, body = raw(tiny, post_bytes(version="1.0", body=stream)).partition(b"\r\n\r\n")
    assert b"Transfer-Encoding" not in head
    assert body.startswith(b"data: {") and body.endswith(b"data: [DONE]\n\n")


def test_stream_headers(tiny):
    reply = request(tiny, "POST", "/v1/completions",
                    {"prompt": "a", "max_tokens": 1, "stream": True})
    assert reply.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert reply.headers["cache-control"] == "no-cache"
    assert reply.headers["x-accel-buffering"] == "no"
    assert reply.headers["content-length"] is None


def test_client_request_ids_are_echoed_only_when_safe(tiny):
    for good in ("abc-123", "a" * 128, "trace:1.2_3"):
        reply = request(tiny, "POST", "/v1/completions", BODY, {"x-request-id": good})
        assert reply.headers["x-client-request-id"] == good
        assert reply.headers["x-request-id"].startswith("req-")
    for bad in ("a" * 129, "a b", "a<script>", "\u00e9"):
        reply = request(tiny, "POST", "/v1/completions", BODY, {"x-request-id": bad})
        assert reply.status == 200 and reply.headers["x-client-request-id"] is None


def test_a_silent_stream_gets_keep_alive_comments():
    # A prompt of many steps: silence long enough for a comment every 10 ms.
    flags = ["--backend", "ref", "--threads", "1", "--max-batch-rows", "4",
             "--sse-keep-alive-ms", "10"]
    with HeadroomServer("builtin:tiny", *flags) as server:
        reply = request(server, "POST", "/v1/completions",
                        {"prompt": [7] * 1500, "max_tokens": 1, "stream": True})
        assert reply.body.startswith(b": keep-alive\n\n")
        assert reply.body.endswith(b"data: [DONE]\n\n")


def test_a_fresh_server_has_counted_no_tokens():
    with HeadroomServer("builtin:tiny", "--threads", "1") as server:
        assert metric(server, "headroom_prompt_tokens_total") == 0
        assert metric(server, "headroom_generation_tokens_total") == 0
        complete(server, prompt=[1, 2, 3], max_tokens=2, ignore_eos=True)
        assert metric(server, "headroom_prompt_tokens_total") == 3
        assert metric(server, "headroom_generation_tokens_total") == 2


def test_connections_over_the_limit_are_refused_at_once():
    with HeadroomServer("builtin:tiny", "--threads", "1", "--max-connections", "3") as server:
        held = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(3)]
        with socket.create_connection(("127.0.0.1", server.port), timeout=60) as extra:
            received = b""
            while chunk := extra.recv(65536):
                received += chunk
        assert status_of(received) == 503 and b'"overloaded_error"' in received
        assert b"\r\nx-request-id: req-" in received
        for connection in held:
            connection.close()

        def serves_again():
            try:
                return request(server, "GET", "/health").status == 200
            except OSError:
                return False

        wait_for("room for a connection", serves_again)
