"""The needle models in numpy and double precision, with a mask over what a policy evicts.

Written from the architecture (LLaMA: RMSNorm, RoPE in halves, grouped heads, SwiGLU, tied
embeddings) and from the papers' selections, without a line of Headroom's: an oracle for whole
answers, slow and plain.
"""
import json
import struct

import numpy

WINDOW = 8
POOL = 7
SINKS = 4
DTYPES = {"F32": numpy.float32, "F16": numpy.float16}


def read_tensors(path):
    data = path.read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    for name, info in json.loads(data[8:8 + size]).items():
        if name != "__metadata__":
            begin, end = (8 + size + offset for offset in info["data_offsets"])
            values = numpy.frombuffer(data[begin:end], DTYPES[info["dtype"]])
            yield name, values.reshape(info["shape"]).astype(numpy.float64)


class Model:
    def __init__(self, folder):
        self.config = json.loads((folder / "config.json").read_text(encoding="ascii"))
        self.weights = dict(read_tensors(folder / "model.safetensors"))
        self.layers = self.config["num_hidden_layers"]
        self.kv_heads = self.config["num_key_value_heads"]
        self.group = self.config["num_attention_heads"] // self.kv_heads
        self.head_dim = self.config["head_dim"]
        half = numpy.arange(0, self.head_dim, 2) / self.head_dim
        self.frequencies = self.config["rope_theta"] ** -half

    def norm(self, rows, name):
        mean = (rows * rows).mean(-1, keepdims=True)
        return rows / numpy.sqrt(mean + self.config["rms_norm_eps"]) * self.weights[name]

    def rotate(self, rows, positions):
        """rows [n, heads, head_dim]: the first half of a head turns with the second."""
        angles = positions[:, None, None] * self.frequencies
        first, second = numpy.split(rows, 2, axis=-1)
        cos, sin = numpy.cos(angles), numpy.sin(angles)
        return numpy.concatenate([first * cos - second * sin, second * cos + first * sin], -1)

    def attend(self, layer, rows, positions, cache, kept):
        """The layer's attention output, its K and V [kv_heads, m, head_dim] with `cache` before
        them, and the probabilities of every query head [n, m]. `kept` masks the first slots."""
        name = f"model.layers.{layer}.self_attn."
        q, k, v = ((rows @ self.weights[f"{name}{part}_proj.weight"].T).reshape(
            len(rows), -1, self.head_dim) for part in "qkv")
        q = self.rotate(q, positions)
        k, v = self.rotate(k, positions).swapaxes(0, 1), v.swapaxes(0, 1)
        if cache is not None:
            k, v = (numpy.concatenate(pair, 1) for pair in zip(cache, (k, v)))
        old = k.shape[1] - len(rows)
        visible = numpy.tril(numpy.ones((len(rows), k.shape[1]), bool), old)
        outputs, maps = [], []
        for head in range(q.shape[1]):
            kv_head = head // self.group
            allowed = visible.copy()
            if kept is not None:
                allowed[:, :kept.shape[-1]] &= kept[layer, kv_head]
            logits = q[:, head] @ k[kv_head].T / numpy.sqrt(self.head_dim)
            logits = numpy.where(allowed, logits, -numpy.inf)
            weights = numpy.exp(logits - logits.max(-1, keepdims=True))
            maps.append(weights / weights.sum(-1, keepdims=True))
            outputs.append(maps[-1] @ v[kv_head])
        output = numpy.concatenate(outputs, -1) @ self.weights[f"{name}o_proj.weight"].T
        return output, (k, v), maps

    def forward(self, ids, cache=None, kept=None, first_position=0):
        """Logits of the last row, the cache with these rows, the maps [layers][heads]."""
        positions = numpy.arange(first_position, first_position + len(ids), dtype=float)
        rows = self.weights["model.embed_tokens.weight"][ids]
        new_cache, maps = [], []
        for layer in range(self.layers):
            name = f"model.layers.{layer}."
            output, pair, layer_maps = self.attend(
                layer, self.norm(rows, f"{name}input_layernorm.weight"), positions,
                None if cache is None else cache[layer], kept)
            new_cache.append(pair)
            maps.append(layer_maps)
            rows = rows + output
            inner = self.norm(rows, f"{name}post_attention_layernorm.weight")
            gate, up = (inner @ self.weights[f"{name}mlp.{part}_proj.weight"].T
                        for part in ("gate", "up"))
            rows = rows + (gate / (1 + numpy.exp(-gate)) * up) @ self.weights[
                f"{name}mlp.down_proj.weight"].T
        last = self.norm(rows[-1:], "model.norm.weight")
        return (last @ self.weights["model.embed_tokens.weight"].T)[0], new_cache, maps


def full(model, maps, num_tokens, rho):
    return numpy.ones((model.layers, model.kv_heads, num_tokens), bool)


def streaming(model, maps, num_tokens, rho):
    """StreamingLLM (2309.17453): the first four tokens and the most recent."""
    kept = numpy.zeros((model.layers, model.kv_heads, num_tokens), bool)
    kept[..., :SINKS] = True
    kept[..., num_tokens - int(num_tokens * rho) + SINKS:] = True
    return kept


def snapkv(model, maps, num_tokens, rho):
    """SnapKV (2404.14469), average pooling: the window, and the tokens that its rows look at."""
    kept = numpy.zeros((model.layers, model.kv_heads, num_tokens), bool)
    before = num_tokens - WINDOW
    kept[..., before:] = True
    for layer in range(model.layers):
        for kv_head in range(model.kv_heads):
            heads = range(kv_head * model.group, (kv_head + 1) * model.group)
            columns = sum(maps[layer][head][-WINDOW:, :before].sum(0) for head in heads)
            padded = numpy.pad(columns, POOL // 2)
            scores = numpy.convolve(padded, numpy.ones(POOL) / POOL, "valid")
            best = numpy.argsort(-scores, kind="stable")[:int(num_tokens * rho) - WINDOW]
            kept[layer, kv_head, best] = True
    return kept


def answers(model, prompt, is_aware, policies):
    """{(policy, rho): greedy answer} after `prompt`'s context and question, compressed together or,
    when not `is_aware`, the context alone. `policies`: pairs (function, rho)."""
    read = prompt["context"] + (prompt["question"] if is_aware else [])
    logits, cache, maps = model.forward(numpy.array(read))
    found = {}
    for policy, rho in policies:
        kept = policy(model, maps, len(read), rho)
        answer, policy_logits, policy_cache, position = [], logits, cache, len(read)
        feed = [] if is_aware else list(prompt["question"])
        while True:
            if not feed:
                answer.append(int(policy_logits.argmax()))
                feed = answer[-1:]
            if len(answer) == len(prompt["answer"]):
                break
            policy_logits, policy_cache, _ = model.forward(numpy.array(feed[:1]), policy_cache,
                                                           kept, position)
            feed, position = feed[1:], position + 1
        found[policy.__name__, rho] = answer
    return found
