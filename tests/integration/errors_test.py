"""Faults of requests: a real status before anything is streamed, named, and never an echo."""
import json

import pytest

from wire import assert_error, metric, request, wait_until_free

CANARY = "canary-8d1f3a"
CHAT = "/v1/chat/completions"
TEXT = "/v1/completions"
USER = [{"role": "user", "content": "hi"}]


def post(server, path, fields, headers=None):
    base = {"messages": USER} if path == CHAT else {"prompt": "hi"}
    return request(server, "POST", path, {**base, **fields}, headers)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", [CHAT, TEXT])
@pytest.mark.parametrize("fields,status,code,param", [
    ({"temperature": 3}, 400, "invalid_value", "temperature"),
    ({"top_p": 0}, 400, "invalid_value", "top_p"),
    ({"n": 10**9}, 400, "invalid_value", "n"),
    ({"n": 0}, 400, "invalid_value", "n"),
    ({"max_tokens": 0}, 400, "invalid_value", "max_tokens"),
    ({"max_tokens": -1}, 400, "invalid_value", "max_tokens"),
    ({"stop": ""}, 400, "invalid_value", "stop"),
    ({"stop": ["x"] * 17}, 400, "invalid_value", "stop"),
    ({"stop": "x" * 257}, 400, "invalid_value", "stop"),
    ({"logit_bias": {"258": 1}}, 400, "invalid_value", "logit_bias"),
    ({"logit_bias": {"1": 101}}, 400, "invalid_value", "logit_bias"),
    ({"stop_token_ids": [258]}, 400, "invalid_value", "stop_token_ids"),
    ({"timeout": 0}, 400, "invalid_value", "timeout"),
    ({"max_tokens": 5000}, 400, "context_length_exceeded", "PROMPT"),
    ({"model": "other"}, 404, "model_not_found", "model"),
    ({"response_format": {"type": "json_object"}}, 400, "unsupported_parameter",
     "response_format"),
    ({"response_format": {"type": 5}}, 400, "unsupported_parameter", "response_format"),
    ({"tools": [{"type": "function"}]}, 400, "unsupported_parameter", "tools"),
    ({"kv_policy": "magic"}, 400, "invalid_budget", "kv_policy"),
    ({"kv_policy": "adaptive"}, 400, "policy_unsupported", "kv_policy"),
    ({"kv_policy": "adakv", "kv_options": {"canary": 1}}, 400, "invalid_budget", "kv_options"),
    ({"kv_policy": "gemfilter", "kv_options": {"filter_layer": 999}}, 400, "invalid_budget",
     "kv_options"),
    ({"kv_policy": "gemfilter", "tsp_ratio": 0.5}, 400, "policy_unsupported", "kv_policy"),
    ({"kv_retention": 0}, 400, "invalid_budget", "kv_retention"),
    ({"kv_retention": 1.01}, 400, "invalid_budget", "kv_retention"),
    ({"kv_retention": 0.1234567}, 400, "invalid_budget", "kv_retention"),
    ({"kv_window": 8, "kv_window_raw": 8}, 400, "invalid_budget", "kv_window_raw"),
    ({"kv_policy": "full", "kv_retention": 0.5}, 400, "policy_unsupported", "kv_policy"),
    ({"kv_recovery": 0.9}, 400, "policy_unsupported", "kv_recovery"),
    ({"kv_scope": "layer"}, 400, "policy_unsupported", "kv_scope"),
    ({"kv_mode": "fast"}, 400, "invalid_budget", "kv_mode"),
    ({"kv_retention": 0.5, "kv_strict": True}, 400, "budget_not_exact", "kv_strict"),
])
def test_faults_are_statuses_streamed_or_not(tiny, path, stream, fields, status, code, param):
    if param == "PROMPT":
        param = "messages" if path == CHAT else "prompt"
    assert_error(post(tiny, path, {**fields, "stream": stream}), status, code, param)


@pytest.mark.parametrize("headers,code,param", [
    ({"x-kv-retention": ""}, "invalid_budget", "x-kv-retention"),
    ({"x-kv-retention": "abc"}, "invalid_budget", "x-kv-retention"),
    ({"x-kv-retention": "1e-1"}, "invalid_budget", "x-kv-retention"),
    ({"x-kv-retention": "0"}, "invalid_budget", "x-kv-retention"),
    ({"x-kv-retention": "2"}, "invalid_budget", "x-kv-retention"),
    ({"x-tsp-ratio": "-0.2"}, "invalid_budget", "x-tsp-ratio"),
    ({"x-kv-window": "18446744073709551616"}, "invalid_budget", "x-kv-window"),
    ({"x-kv-policy": "magic"}, "invalid_budget", "x-kv-policy"),
    ({"x-kv-policy": "full", "x-kv-retention": "0.5"}, "policy_unsupported", "x-kv-policy"),
    ({"x-kv-options": "{}"}, "invalid_budget", "x-kv-options"),
    ({"x-kv-mode": "both"}, "policy_unsupported", "x-kv-mode"),
])
def test_budget_headers_are_named_as_written(tiny, headers, code, param):
    assert_error(post(tiny, TEXT, {}, headers), 400, code, param)


def test_a_header_given_twice_is_refused(tiny):
    from wire import raw
    body = b'{"prompt": "a"}'
    head = (f"POST {TEXT} HTTP/1.1\r\nHost: a\r\nX-KV-Retention: 0.5\r\nx-kv-retention: 0.5\r\n"
            f"Connection: close\r\nContent-Length: {len(body)}\r\n\r\n").encode()
    response = raw(tiny, head + body)
    assert response.startswith(b"HTTP/1.1 400 ") and b'"param":"x-kv-retention"' in response


def test_a_conflict_is_noted_and_refused_under_strict(tiny):
    body = {"prompt": [5] * 600, "max_tokens": 1, "kv_retention": 0.5}
    reply = request(tiny, "POST", TEXT, body, {"x-kv-retention": "0.25"})
    receipt = reply.json()["kv"]
    assert receipt["applied"]["kv_retention"] == 0.5
    assert receipt["sources"] == {"kv_retention": "body"}
    assert "budget_conflict" in receipt["reasons"]
    strict = request(tiny, "POST", TEXT, {**body, "kv_strict": True}, {"x-kv-retention": "0.25"})
    assert_error(strict, 400, "budget_conflict", "kv_retention")


def test_overflow_has_openai_s_words_and_both_numbers(tiny):
    message = assert_error(request(tiny, "POST", TEXT, {"prompt": [5] * 2048, "max_tokens": 1}),
                           400, "context_length_exceeded", "prompt")
    assert message.startswith("This model's maximum context length is 2048 tokens. However, you "
                              "requested 2049 tokens (2048 in the ")


@pytest.mark.parametrize("prompt", [[-1], [258], [10**18], "", []])
def test_prompts_outside_the_vocabulary_or_empty_are_refused(tiny, prompt):
    reply = request(tiny, "POST", TEXT, {"prompt": prompt})
    assert reply.status == 400 and reply.json()["error"]["param"] == "prompt"


def test_a_model_without_a_tokenizer_takes_ids_only(needle):
    assert_error(request(needle, "POST", TEXT, {"prompt": "hi"}), 400, "unsupported_parameter",
                 "prompt")
    assert_error(request(needle, "POST", CHAT, {"messages": USER}), 400, "unsupported_parameter",
                 "messages")
    assert_error(request(needle, "POST", TEXT, {"prompt": [510], "stop": ["a"]}), 400,
                 "unsupported_parameter", "stop")


def test_errors_never_repeat_what_the_client_sent(tiny):
    bodies = [
        f'{{"{CANARY}": "{CANARY}", "prompt": 5, "messages": 5}}',
        f'{{"prompt": "{CANARY}',
        f'{CANARY}',
        f'{{"{CANARY}": 1, "{CANARY}": 2}}',
        json.dumps({"prompt": "a", "messages": USER, "model": CANARY}),
        json.dumps({"prompt": "a", "messages": USER, "kv_policy": CANARY}),
        json.dumps({"prompt": "a", "messages": USER, "kv_pool": CANARY}),
        json.dumps({"prompt": "a", "messages": USER, "kv_decode": CANARY}),
        json.dumps({"prompt": "a", "messages": USER, "kv_options": {CANARY: 1}}),
        json.dumps({"prompt": "a", "messages": USER, "stop": [CANARY] * 20}),
        json.dumps({"prompt": "a", "messages": USER, "logit_bias": {CANARY: 1}}),
        json.dumps({"prompt": "a", "messages": USER, "response_format": {"type": CANARY}}),
        json.dumps({"prompt": CANARY * 200, "messages": [{"role": CANARY, "content": [CANARY]}]}),
        json.dumps({"prompt": CANARY * 200, "messages": [{"role": "user",
                                                          "content": CANARY * 200}]}),
    ]
    for path in (CHAT, TEXT):
        for body in bodies:
            reply = request(tiny, "POST", path, body)
            assert reply.status >= 400, (path, body[:80])
            assert CANARY.encode() not in reply.body, (path, body[:80], reply.body)
        for header in ("x-kv-retention", "x-kv-policy", "x-kv-window", "x-kv-strict", "x-kv-pool"):
            reply = post(tiny, path, {}, {header: CANARY})
            assert reply.status == 400 and CANARY.encode() not in reply.body
    for target in (f"/{CANARY}", f"/v1/models/{CANARY}", f"/v1/completions?{CANARY}"):
        assert CANARY.encode() not in request(tiny, "GET", target).body
    assert CANARY not in tiny.log()


def test_refused_requests_leave_nothing_behind(tiny):
    before = metric(tiny, "headroom_prompt_tokens_total")
    for fields in ({"n": 0}, {"max_tokens": 5000}, {"kv_policy": "magic"}):
        assert post(tiny, TEXT, fields).status == 400
    wait_until_free(tiny)
    assert metric(tiny, "headroom_prompt_tokens_total") == before
