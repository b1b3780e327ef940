"""Generation through the `openai` package: both endpoints, streaming and not."""
import json

import openai
import pytest

import receipt_assert
from wire import TINY, TINY_SUFFIX, chat, complete, request, stream, wait_until_free

MESSAGES = [{"role": "user", "content": "Say something."}]


@pytest.fixture(scope="module")
def client(tiny):
    return openai.OpenAI(base_url=f"{tiny.url}/v1", api_key="none", max_retries=0, timeout=120)


def chat_tokens(text):
    """Tokens of one user message in builtin:tiny's template."""
    return len("#user\n#\n#assistant\n") + len(text.encode())


def test_a_chat_answer_is_whole(client):
    answer = client.chat.completions.create(
        model="tiny", messages=MESSAGES, temperature=0, max_tokens=8)
    assert answer.object == "chat.completion" and answer.model == "tiny"
    assert answer.id.startswith("chatcmpl-") and answer.created > 1_700_000_000
    (choice,) = answer.choices
    assert choice.index == 0 and choice.message.role == "assistant"
    assert choice.finish_reason in ("stop", "length") and choice.message.content
    assert choice.message.tool_calls is None
    usage = answer.usage
    assert usage.prompt_tokens == chat_tokens("Say something.")
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens
    receipt_assert.check(answer.model_extra["kv"], {}, n=usage.prompt_tokens, suffix=TINY_SUFFIX,
                        **TINY)


def test_models_are_read_by_the_client(client):
    assert [model.id for model in client.models.list()] == ["tiny"]
    assert client.models.retrieve("tiny").id == "tiny"
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("other")


def test_a_chat_stream_says_the_same_and_ends_exactly_once(client, tiny):
    whole = chat(tiny, "Say something.", max_tokens=12)
    chunks = list(client.chat.completions.create(
        model="tiny", messages=MESSAGES, temperature=0, max_tokens=12, stream=True,
        stream_options={"include_usage": True}))
    assert len({chunk.id for chunk in chunks}) == 1
    assert len({chunk.created for chunk in chunks}) == 1
    assert {chunk.object for chunk in chunks} == {"chat.completion.chunk"}
    first, *middle, usage = chunks
    assert first.choices[0].delta.role == "assistant" and first.choices[0].delta.content == ""
    assert usage.choices == [] and usage.usage.model_dump(exclude_none=True) == whole["usage"]
    assert all(chunk.usage is None for chunk in chunks[:-1])
    reasons = [chunk.choices[0].finish_reason for chunk in chunks[:-1]]
    assert reasons[-1] == whole["choices"][0]["finish_reason"]
    assert reasons[:-1] == [None] * (len(reasons) - 1)
    text = "".join(chunk.choices[0].delta.content or "" for chunk in middle)
    assert text == whole["choices"][0]["message"]["content"]
    receipt = middle[-1].model_extra["kv"]
    assert {**receipt, "compress_ms": 0} == {**whole["kv"], "compress_ms": 0}


def test_a_completion_stream_says_the_same(client, tiny):
    whole = complete(tiny, prompt="abc", max_tokens=10)
    chunks = list(client.completions.create(
        model="tiny", prompt="abc", temperature=0, max_tokens=10, stream=True))
    assert {chunk.object for chunk in chunks} == {"text_completion"}
    assert "".join(chunk.choices[0].text for chunk in chunks) == whole["choices"][0]["text"]
    assert [c.choices[0].finish_reason for c in chunks][-1] == whole["choices"][0]["finish_reason"]
    # Not asked for: no usage, no chunk without choices.
    assert all(chunk.usage is None and chunk.choices for chunk in chunks)


def test_raw_streams_carry_usage_null_only_when_usage_is_asked_for(tiny):
    _, plain = stream(tiny, "/v1/completions", {"prompt": "a", "max_tokens": 3})
    assert all("usage" not in chunk for chunk in plain)
    _, asked = stream(tiny, "/v1/completions",
                      {"prompt": "a", "max_tokens": 3, "stream_options": {"include_usage": True}})
    assert [chunk.get("usage", 0) for chunk in asked[:-1]] == [None] * (len(asked) - 1)
    assert asked[-1]["choices"] == [] and asked[-1]["usage"]["completion_tokens"] <= 3


def test_completions_without_max_tokens_are_16_tokens(client):
    answer = client.completions.create(
        model="tiny", prompt="abc", temperature=0, extra_body={"ignore_eos": True})
    assert answer.usage.completion_tokens == 16
    assert answer.choices[0].finish_reason == "length"


def test_stop_strings_end_the_text_before_them_streamed_or_not(client, tiny):
    text = complete(tiny, prompt="abc", max_tokens=24, ignore_eos=True)["choices"][0]["text"]
    stop = text[9:12]
    cut = text[:text.index(stop)]
    for streamed in (False, True):
        answer = client.completions.create(
            model="tiny", prompt="abc", temperature=0, max_tokens=24, stop=["\u0000never", stop],
            stream=streamed, extra_body={"ignore_eos": True})
        choices = [c.choices[0] for c in answer] if streamed else [answer.choices[0]]
        assert "".join(choice.text for choice in choices) == cut
        assert choices[-1].finish_reason == "stop"
        assert choices[-1].model_extra["stop_reason"] == stop
    kept = complete(tiny, prompt="abc", max_tokens=24, ignore_eos=True, stop=stop,
                    include_stop_str_in_output=True)["choices"][0]["text"]
    assert kept == cut + stop


def test_stop_token_ids_end_the_answer(tiny):
    ids = complete(tiny, prompt="abc", max_tokens=24, ignore_eos=True,
                   return_token_ids=True)["choices"][0]["token_ids"]
    stop = ids[7]
    answer = complete(tiny, prompt="abc", max_tokens=24, ignore_eos=True, return_token_ids=True,
                      stop_token_ids=[stop])["choices"][0]
    assert answer["finish_reason"] == "stop" and answer["stop_reason"] == stop
    assert answer["token_ids"][:ids.index(stop)] == ids[:ids.index(stop)]
    assert len(answer["token_ids"]) <= ids.index(stop) + 1


def test_min_tokens_hold_back_the_end(tiny):
    for number in (1, 30):
        answer = complete(tiny, prompt="abc", max_tokens=40, min_tokens=number)
        assert answer["usage"]["completion_tokens"] >= number


def test_token_ids_are_returned_on_request(tiny):
    whole = complete(tiny, prompt=[72, 73, 74], max_tokens=6, return_token_ids=True)
    choice = whole["choices"][0]
    assert choice["prompt_token_ids"] == [72, 73, 74]
    assert len(choice["token_ids"]) == whole["usage"]["completion_tokens"]
    _, chunks = stream(tiny, "/v1/completions",
                       {"prompt": [72, 73, 74], "max_tokens": 6, "return_token_ids": True})
    streamed = [i for chunk in chunks for i in chunk["choices"][0].get("token_ids", [])]
    assert streamed == choice["token_ids"]
    assert chunks[0]["choices"][0]["prompt_token_ids"] == [72, 73, 74]
    assert "token_ids" not in complete(tiny, prompt="a", max_tokens=1)["choices"][0]
    text = chat(tiny, "ab", max_tokens=2, return_token_ids=True)
    assert len(text["prompt_token_ids"]) == text["usage"]["prompt_tokens"]


def test_text_and_its_ids_are_the_same_prompt(tiny):
    by_text = complete(tiny, prompt="Hello", max_tokens=12)
    by_ids = complete(tiny, prompt=list(b"Hello"), max_tokens=12)
    assert by_text["choices"] == by_ids["choices"] and by_text["usage"] == by_ids["usage"]


def test_seeds_reproduce_and_differ(client):
    def sample(seed, **fields):
        answer = client.completions.create(model="tiny", prompt="abc", max_tokens=24, seed=seed,
                                           temperature=1.5, extra_body={"ignore_eos": True},
                                           **fields)
        return [choice.text for choice in answer.choices]

    assert sample(7) == sample(7)
    assert sample(7) != sample(8)
    assert sample(-2**63) == sample(-2**63)
    three = sample(7, n=3)
    assert len(set(three)) == 3 and three[0] == sample(7)[0]
    assert sample(7, n=3) == three


def test_n_choices_stream_side_by_side(tiny):
    body = {"messages": MESSAGES, "n": 3, "temperature": 1.2, "seed": 5, "max_tokens": 20,
            "stream_options": {"include_usage": True}}
    whole = request(tiny, "POST", "/v1/chat/completions", body | {"stream_options": None}).json()
    assert [choice["index"] for choice in whole["choices"]] == [0, 1, 2]
    _, chunks = stream(tiny, "/v1/chat/completions", body)
    texts, ends = {0: "", 1: "", 2: ""}, []
    for chunk in chunks[:-1]:
        (choice,) = chunk["choices"]
        texts[choice["index"]] += choice["delta"].get("content", "")
        if choice["finish_reason"] is not None:
            ends.append(choice["index"])
            assert "kv" in chunk
    assert sorted(ends) == [0, 1, 2], "each choice ends once"
    assert [texts[i] for i in range(3)] == [c["message"]["content"] for c in whole["choices"]]
    assert chunks[-1]["usage"] == whole["usage"]


def test_batches_of_prompts_are_flat_choices(tiny):
    answer = complete(tiny, prompt=["ab", "cd"], n=2, max_tokens=5)
    assert [choice["index"] for choice in answer["choices"]] == [0, 1, 2, 3]
    texts = [choice["text"] for choice in answer["choices"]]
    for index, prompt in enumerate(["ab", "ab", "cd", "cd"]):
        assert texts[index] == complete(tiny, prompt=prompt, max_tokens=5)["choices"][0]["text"]
    assert answer["usage"]["prompt_tokens"] == 4


def test_chat_logprobs(client):
    answer = client.chat.completions.create(
        model="tiny", messages=MESSAGES, temperature=0, max_tokens=6, logprobs=True,
        top_logprobs=3)
    content = answer.choices[0].logprobs.content
    assert len(content) == answer.usage.completion_tokens
    for entry in content:
        assert -9999 <= entry.logprob <= 0 and len(entry.top_logprobs) == 3
        assert bytes(entry.bytes).decode() == entry.token
        best = [top.logprob for top in entry.top_logprobs]
        assert best == sorted(best, reverse=True)
        # Greedy: the sampled token is the best one.
        assert entry.top_logprobs[0].token == entry.token
        assert entry.top_logprobs[0].logprob == entry.logprob


def test_completion_logprobs_streamed_and_not(tiny):
    fields = {"prompt": "abc", "max_tokens": 6, "logprobs": 2}
    whole = complete(tiny, **fields)["choices"][0]
    logprobs = whole["logprobs"]
    assert "".join(logprobs["tokens"]) == whole["text"]
    assert all(len(top) == 2 for top in logprobs["top_logprobs"])
    assert logprobs["text_offset"] == list(range(len(logprobs["tokens"])))
    _, chunks = stream(tiny, "/v1/completions", fields)
    parts = [chunk["choices"][0]["logprobs"] for chunk in chunks
             if chunk["choices"][0]["logprobs"]]
    for name in logprobs:
        assert sum((part[name] for part in parts), []) == logprobs[name], name
    only = complete(tiny, prompt="abc", max_tokens=2, logprobs=0)["choices"][0]["logprobs"]
    assert len(only["token_logprobs"]) == 2


def test_logit_bias_forces_and_forbids(tiny):
    forced = complete(tiny, prompt="abc", max_tokens=5, logit_bias={"65": 100})
    assert forced["choices"][0]["text"] == "AAAAA"


def test_penalties_change_the_text(tiny):
    plain = complete(tiny, prompt="abc", max_tokens=60, ignore_eos=True)["choices"][0]["text"]
    far = complete(tiny, prompt="abc", max_tokens=60, ignore_eos=True, presence_penalty=2,
                   frequency_penalty=2)["choices"][0]["text"]
    assert len(set(far)) > len(set(plain)) * 0.9 and far != plain


def test_errors_are_typed_exceptions_with_ids(client):
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(model="tiny", messages=MESSAGES, temperature=9)
    assert caught.value.param == "temperature" and caught.value.code == "invalid_value"
    assert caught.value.request_id.startswith("req-")
    with pytest.raises(openai.BadRequestError) as caught:
        client.completions.create(model="tiny", prompt="a" * 3000, stream=True)
    assert caught.value.code == "context_length_exceeded"
    with pytest.raises(openai.NotFoundError):
        client.completions.create(model="other", prompt="a")


def test_a_deadline_is_a_504_before_the_stream_and_an_error_event_in_it(client):
    with pytest.raises(openai.InternalServerError) as caught:
        client.completions.create(model="tiny", prompt="a", max_tokens=2000,
                                  extra_body={"ignore_eos": True, "timeout": 0.05})
    assert caught.value.status_code == 504 and caught.value.code == "deadline_exceeded"
    with pytest.raises(openai.APIError) as caught:
        for _ in client.completions.create(model="tiny", prompt="a", max_tokens=2000, stream=True,
                                           extra_body={"ignore_eos": True, "timeout": 0.05}):
            pass
    assert caught.value.code == "deadline_exceeded"


def test_budget_headers_of_an_answer_and_its_receipt(client):
    prompt = [i % 250 for i in range(600)]
    for stream_it in (False, True):
        raw = client.completions.with_raw_response.create(
            model="tiny", prompt=prompt, temperature=0, max_tokens=2, stream=stream_it,
            extra_headers={"x-kv-retention": "0.29", "X-TSP-Ratio": "0.000001"},
            extra_body={"tsp_min_prompt": 0})
        assert raw.headers["x-kv-policy"] == "fastkv"
        assert raw.headers["x-kv-retention"] == "0.29"
        assert raw.headers["x-tsp-ratio"] == "0.000001"
        parsed = raw.parse()
        receipt = (list(parsed)[-1] if stream_it else parsed).model_extra["kv"]
        asked = {"kv_retention": 0.29, "tsp_ratio": 0.000001, "tsp_min_prompt": 0}
        assert receipt["sources"] == {"kv_retention": "header", "tsp_ratio": "header",
                                      "tsp_min_prompt": "body"}
        receipt_assert.check(receipt, asked, n=600, **TINY)


@pytest.mark.parametrize("length", [1, 12, 13, 100, 511, 512, 513, 700])
@pytest.mark.parametrize("asked", [
    {},
    {"kv_policy": "fastkv"},
    {"kv_policy": "streaming"},
    {"kv_policy": "full"},
    {"kv_retention": 0.1},
    {"kv_retention": 0.29, "kv_min_prompt": 0},
    {"kv_policy": "fastkv", "kv_retention": 0.1, "kv_min_prompt": 0, "kv_sink_tokens": 0},
    {"kv_policy": "streaming", "kv_retention": 0.333333, "kv_min_prompt": 0},
    {"kv_policy": "fastkv", "kv_retention": 0.01, "kv_min_prompt": 0, "kv_window": 64},
    {"kv_policy": "fastkv", "kv_retention_tokens": 40, "kv_min_prompt": 0},
    {"kv_policy": "fastkv", "kv_retention": 0.9, "kv_retention_tokens": 40, "kv_min_prompt": 0},
    {"kv_policy": "fastkv", "kv_retention": 0.5, "tsp_ratio": 0.2, "kv_min_prompt": 0,
     "tsp_min_prompt": 0},
    {"kv_policy": "fastkv", "kv_retention": 0.1, "tsp_ratio": 0.4, "kv_min_prompt": 0,
     "tsp_min_prompt": 0},
    {"tsp_tokens": 50, "tsp_min_prompt": 0},
    {"kv_policy": "full", "tsp_ratio": 0.5, "tsp_min_prompt": 0},
    {"kv_policy": "full", "tsp_tokens": 3, "tsp_min_prompt": 0},
    {"kv_policy": "fastkv", "kv_retention": 0.5, "tsp_ratio": 0.5, "kv_window_raw": 16,
     "kv_pool": "avg", "kv_pool_width": 5, "kv_min_prompt": 0, "tsp_min_prompt": 0},
    {"kv_retention": 1},
], ids=json.dumps)
def test_receipts_follow_from_what_was_asked(tiny, length, asked):
    prompt = [i * 7 % 250 for i in range(length)]
    reply = request(tiny, "POST", "/v1/completions",
                    {"prompt": prompt, "max_tokens": 1, "temperature": 0, **asked})
    receipt = reply.json()["kv"]
    receipt_assert.check(receipt, asked, n=length, **TINY)
    assert float(reply.headers["x-kv-retention"]) == receipt["applied"]["kv_retention"]
    assert float(reply.headers["x-tsp-ratio"]) == receipt["applied"]["tsp_ratio"]


def test_receipts_of_chats_count_the_template_into_the_window(tiny):
    for asked in ({"kv_retention": 0.02, "kv_min_prompt": 0},
                  {"kv_retention": 0.02, "kv_min_prompt": 0, "kv_window_raw": 8},
                  {"kv_retention": 0.5, "tsp_ratio": 0.05, "kv_min_prompt": 0,
                   "tsp_min_prompt": 0}):
        answer = chat(tiny, "word " * 100, max_tokens=1, **asked)
        receipt_assert.check(answer["kv"], asked, n=chat_tokens("word " * 100),
                            suffix=TINY_SUFFIX, **TINY)


def test_retention_one_is_the_full_cache_bit_for_bit(tiny):
    prompt = [i * 11 % 250 for i in range(700)]
    fields = {"prompt": prompt, "max_tokens": 20, "ignore_eos": True, "logprobs": 5}
    full = complete(tiny, **fields)["choices"]
    assert complete(tiny, kv_policy="fastkv", kv_retention=1, tsp_ratio=1, **fields)["choices"] \
        == full
    assert complete(tiny, kv_policy="streaming", kv_retention=1, **fields)["choices"] == full


def test_nothing_is_left_in_the_pool(tiny):
    wait_until_free(tiny)
