#!/usr/bin/env python3
"""Train a needle model (tests/data/needle-1hop, needle-2hop) and write it as a Hugging Face folder.

The model is a small LlamaForCausalLM (about 1.2 M parameters) whose prompts are those of
make_needle_prompts.py. It learns from a mixture of sequences made on the fly:

  text     running text, every token a target
  copy     a random span, later repeated
  recall   records in text, each asked for somewhere after it (many short answers a sequence)
  pairs    the same with random bytes for text
  final    records in text, one of them asked for at the end: the task of the prompts
  chain    (2hop) records and aliases, asked through the alias

Lengths grow by phases. With this recipe the models of tests/data took 26 minutes (1hop) and then
8 more (2hop: --task 2hop --init NEEDLE_1HOP --seconds 450 --lr 1e-3 --max-length 512) of two Zen 5
cores, with an earlier trainer; retrieval begins after about a million tokens. Needs PyTorch.
Phases end by time, so that the same seed gives the same model only with --steps.
"""
import argparse
import json
import math
import pathlib
import struct
import time

import make_needle_prompts as needle

CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 128,
    "intermediate_size": 352,
    "num_hidden_layers": 6,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "hidden_act": "silu",
    "rms_norm_eps": 1e-05,
    "rope_theta": 20000.0,
    "rope_scaling": None,
    "vocab_size": needle.VOCAB_SIZE,
    "max_position_embeddings": 1024,
    "tie_word_embeddings": True,
    "attention_bias": False,
    "mlp_bias": False,
    "bos_token_id": needle.BOS,
    "eos_token_id": None,
    "torch_dtype": "float16",
    "initializer_range": 0.04,
}

# Share of each kind of sequence in a batch.
MIXTURES = {
    "1hop": {"text": .15, "copy": .2, "recall": .25, "pairs": .3, "final": .1},
    "2hop": {"text": .1, "copy": .05, "recall": .2, "pairs": .1, "final": .15, "chain": .4},
}
# Tokens a sequence and the phase's part of the whole; every step has 4,096 tokens.
PHASES = [(128, 0.3), (256, 0.25), (512, 0.25), (1024, 0.2)]
TOKENS_PER_STEP = 4096
ANSWER_WEIGHT = 2.0


# --- sequences: (tokens, weight of each token as a target) ---

def passage(rng, text, count):
    start = rng.randrange(len(text) - count)
    return text[start:start + count]


def weave(rng, text, events, num_tokens):
    """Running text with events [(time, tokens, weights)] set in by ascending time.

    Times are in [0, 1); an event at time 1 or later goes to the very end.
    """
    events = sorted(events, key=lambda event: event[0])
    num_text = num_tokens - sum(len(tokens) for _, tokens, _ in events)
    if num_text < 0:
        return None
    cuts = sorted(rng.randrange(num_text + 1) for _ in events)
    cuts = [num_text if time_ >= 1 else cut for cut, (time_, _, _) in zip(cuts, events)]
    body, taken, tokens, weights = passage(rng, text, num_text), 0, [], []
    for cut, (_, event_tokens, event_weights) in zip(cuts, events):
        tokens += body[taken:cut] + event_tokens
        weights += [1.0] * (cut - taken) + event_weights
        taken = cut
    return tokens + body[taken:], weights + [1.0] * (num_text - taken)


def make_records(rng, count, num_keys):
    keys = [needle.FIRST_KEY + index for index in rng.sample(range(needle.NUM_KEYS), num_keys)]
    records = [[key] + [needle.FIRST_VALUE + rng.randrange(needle.NUM_VALUES)
                        for _ in range(needle.VALUES_PER_RECORD)] for key in keys[:count]]
    return keys, records


def recall_sequence(rng, text, length, final):
    """Records, and questions after them: one at the end, or many anywhere."""
    most = max(2, length // (48 if final else 24))
    count = rng.randint(1 if final else 2, min(most, needle.NUM_KEYS))
    _, records = make_records(rng, count, count)
    times = sorted(rng.random() for _ in records)
    events = [(time_, record, [0.0] * len(record)) for time_, record in zip(times, records)]
    for _ in range(1 if final else max(1, min(2 * count, length // 16))):
        asked = rng.randrange(count)
        when = 2.0 if final else times[asked] + (1 - times[asked]) * rng.random()
        events.append((when, [needle.QUERY] + records[asked],
                       [0.0, 0.0] + [ANSWER_WEIGHT] * needle.VALUES_PER_RECORD))
    return weave(rng, text, events, length - 1)


def chain_sequence(rng, text, length, final):
    """Records and aliases in any order, and questions through the alias once both are known."""
    count = rng.randint(2, max(2, length // (64 if final else 32)))
    keys, records = make_records(rng, count, 2 * count)
    events, known = [], []
    for index, record in enumerate(records):
        alias = [keys[count + index], needle.ALIAS, record[0]]
        times = (rng.random(), rng.random())
        known.append(max(times))
        events.append((times[0], record, [0.0] * len(record)))
        events.append((times[1], alias, [0.0, 1.0, 0.0]))
    for _ in range(1 if final else count):
        asked = rng.randrange(count)
        when = 2.0 if final else known[asked] + (1 - known[asked]) * rng.random()
        answer = [needle.ALIAS] + records[asked]
        events.append((when, [needle.QUERY, keys[count + asked]] + answer,
                       [0.0, 0.0, 1.0] + [ANSWER_WEIGHT] * (len(answer) - 1)))
    return weave(rng, text, events, length - 1)


def copy_sequence(rng, text, length):
    span = rng.randint(8, max(8, length // 3))
    tokens, weights = passage(rng, text, length - 1), [1.0] * (length - 1)
    first = rng.randrange(length - 2 * span)
    second = rng.randrange(first + span, length - span)
    random_bytes = [rng.randrange(32, 127) for _ in range(span)]
    tokens[first:first + span] = random_bytes
    weights[first:first + span] = [0.0] * span
    tokens[second:second + span] = random_bytes
    weights[second:second + 2] = [0.0] * 2  # nothing says yet that the span begins again
    return tokens, weights


def make_sequence(rng, text, kind, length):
    """[length] tokens and weights; plain text where the events do not fit."""
    made = None
    if kind == "copy":
        made = copy_sequence(rng, text, length)
    elif kind in ("recall", "final"):
        made = recall_sequence(rng, text, length, final=kind == "final")
    elif kind == "chain":
        made = chain_sequence(rng, text, length, final=rng.random() < 0.3)
    elif kind == "pairs":
        noise = [rng.randrange(32, 127) for _ in range(length + 1)]
        made = recall_sequence(rng, noise, length, final=False)
        if made is not None:  # noise cannot be predicted
            made = made[0], [weight if weight == ANSWER_WEIGHT else 0.0 for weight in made[1]]
    if made is None:
        made = passage(rng, text, length - 1), [1.0] * (length - 1)
    return [needle.BOS] + made[0], [0.0] + made[1]


# --- the model, in PyTorch, with Hugging Face's names and rotary pairs ---

def make_model(torch):
    from torch import nn
    from torch.nn import functional

    hidden, head_dim = CONFIG["hidden_size"], CONFIG["head_dim"]
    heads, kv_heads = CONFIG["num_attention_heads"], CONFIG["num_key_value_heads"]

    class RmsNorm(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(hidden))

        def forward(self, x):
            scale = torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + CONFIG["rms_norm_eps"])
            return x * scale * self.weight

    def linear(inputs, outputs):
        return nn.Linear(inputs, outputs, bias=False)

    def rotate(x, cos, sin):
        half = head_dim // 2
        return x * cos + torch.cat([-x[..., half:], x[..., :half]], -1) * sin

    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.q_proj = linear(hidden, heads * head_dim)
            self.k_proj = linear(hidden, kv_heads * head_dim)
            self.v_proj = linear(hidden, kv_heads * head_dim)
            self.o_proj = linear(heads * head_dim, hidden)

        def forward(self, x, cos, sin):
            batch, length, _ = x.shape

            def split(y, count):
                return y.view(batch, length, count, head_dim).transpose(1, 2)

            q = rotate(split(self.q_proj(x), heads), cos, sin)
            k = rotate(split(self.k_proj(x), kv_heads), cos, sin)
            v = split(self.v_proj(x), kv_heads)
            group = heads // kv_heads
            y = functional.scaled_dot_product_attention(
                q, k.repeat_interleave(group, 1), v.repeat_interleave(group, 1), is_causal=True)
            return self.o_proj(y.transpose(1, 2).reshape(batch, length, -1))

    class Mlp(nn.Module):
        def __init__(self):
            super().__init__()
            self.gate_proj = linear(hidden, CONFIG["intermediate_size"])
            self.up_proj = linear(hidden, CONFIG["intermediate_size"])
            self.down_proj = linear(CONFIG["intermediate_size"], hidden)

        def forward(self, x):
            return self.down_proj(functional.silu(self.gate_proj(x)) * self.up_proj(x))

    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.input_layernorm, self.self_attn = RmsNorm(), Attention()
            self.post_attention_layernorm, self.mlp = RmsNorm(), Mlp()

        def forward(self, x, cos, sin):
            x = x + self.self_attn(self.input_layernorm(x), cos, sin)
            return x + self.mlp(self.post_attention_layernorm(x))

    class Llama(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed_tokens = nn.Embedding(CONFIG["vocab_size"], hidden)
            self.layers = nn.ModuleList(Layer() for _ in range(CONFIG["num_hidden_layers"]))
            self.norm = RmsNorm()
            for parameter in self.parameters():
                if parameter.dim() > 1:
                    nn.init.normal_(parameter, std=CONFIG["initializer_range"])
            depth = math.sqrt(2 * CONFIG["num_hidden_layers"])
            for layer in self.layers:  # the residual stream should not grow with depth
                layer.self_attn.o_proj.weight.data /= depth
                layer.mlp.down_proj.weight.data /= depth

        def forward(self, ids):
            pairs = torch.arange(0, head_dim, 2).float() / head_dim
            angles = torch.arange(ids.shape[1]).float()[:, None] * CONFIG["rope_theta"] ** -pairs
            angles = torch.cat([angles, angles], -1)
            x, cos, sin = self.embed_tokens(ids), angles.cos(), angles.sin()
            for layer in self.layers:
                x = layer(x, cos, sin)
            return functional.linear(self.norm(x), self.embed_tokens.weight)

    return Llama()


# --- files ---

def save(model, folder):
    """Writes config.json and model.safetensors in f16."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(CONFIG, indent=1) + "\n", encoding="ascii")
    header, blocks, offset = {"__metadata__": {"format": "pt"}}, [], 0
    for name, tensor in sorted(model.state_dict().items()):
        block = tensor.half().contiguous().numpy().tobytes()
        header["model." + name] = {"dtype": "F16", "shape": list(tensor.shape),
                                   "data_offsets": [offset, offset + len(block)]}
        blocks.append(block)
        offset += len(block)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(folder / "model.safetensors", "wb") as output:
        output.write(struct.pack("<Q", len(text)) + text + b"".join(blocks))


def load(torch, model, folder):
    data = (folder / "model.safetensors").read_bytes()
    size, = struct.unpack_from("<Q", data)
    header = json.loads(data[8:8 + size])
    types = {"F16": torch.float16, "F32": torch.float32}
    state = {}
    for name, entry in header.items():
        if name != "__metadata__":
            begin, end = entry["data_offsets"]
            block = bytearray(data[8 + size + begin:8 + size + end])
            tensor = torch.frombuffer(block, dtype=types[entry["dtype"]]).view(entry["shape"])
            state[name.removeprefix("model.")] = tensor.float()
    model.load_state_dict(state)


# --- training ---

def count_right(torch, model, prompts):
    """Prompts whose whole greedy answer is right (teacher forcing gives the same count)."""
    right = 0
    with torch.no_grad():
        for prompt in prompts:
            ids = prompt["context"] + prompt["question"] + prompt["answer"]
            best = model(torch.tensor([ids]))[0].argmax(-1).tolist()
            first = len(ids) - len(prompt["answer"])
            right += best[first - 1:-1] == prompt["answer"]
    return right


def train_step(torch, model, optimizer, batch):
    ids = torch.tensor([tokens for tokens, _ in batch])
    weights = torch.tensor([weights for _, weights in batch])[:, 1:].reshape(-1)
    logits = model(ids)[:, :-1].reshape(-1, CONFIG["vocab_size"])
    losses = torch.nn.functional.cross_entropy(logits, ids[:, 1:].reshape(-1), reduction="none")
    loss = (losses * weights).sum() / weights.sum()
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    return loss.item()


def learning_rate(peak, step, done):
    """Warm-up over 100 steps, then a cosine over the share `done` of the run down to 5 %."""
    return peak * min(1.0, (step + 1) / 100) * (0.05 + 0.475 * (1 + math.cos(math.pi * done)))


def train(torch, model, args, rng, text, held_out):
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, betas=(0.9, 0.98),
                                  weight_decay=0.01)
    kinds, shares = zip(*MIXTURES[args.task].items())
    phases = [phase for phase in PHASES if phase[0] <= args.max_length]
    whole = sum(share for _, share in phases)
    start, step, phase_end = time.monotonic(), 0, 0.0
    for length, share in phases:
        phase_end, shown, losses = phase_end + share / whole, 0.0, []
        while True:
            elapsed = time.monotonic() - start
            done = step / args.steps if args.steps else elapsed / args.seconds
            if done >= phase_end:
                break
            for group in optimizer.param_groups:
                group["lr"] = learning_rate(args.lr, step, done)
            batch = [make_sequence(rng, text, kind, length)
                     for kind in rng.choices(kinds, shares, k=TOKENS_PER_STEP // length)]
            losses.append(train_step(torch, model, optimizer, batch))
            step += 1
            if elapsed - shown >= args.log_seconds:
                prompts = list(needle.make_prompts(held_out, args.task, length, 16, step))
                print(f"length={length} step={step} seconds={elapsed:.0f} "
                      f"loss={sum(losses) / len(losses):.3f} "
                      f"right={count_right(torch, model, prompts)}/16", flush=True)
                shown, losses = elapsed, []


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=pathlib.Path, help="folder to write")
    parser.add_argument("--task", choices=sorted(MIXTURES), required=True)
    parser.add_argument("--text", default=needle.DEFAULT_TEXT,
                        help="running text; the last twentieth is held out")
    parser.add_argument("--init", type=pathlib.Path, help="folder of a model to continue")
    parser.add_argument("--seconds", type=float, default=1560.0)
    parser.add_argument("--steps", type=int, help="end by steps instead of by time")
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--max-length", type=int, default=1024, help="leave out longer phases")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--log-seconds", type=float, default=30.0)
    args = parser.parse_args()

    import random

    import torch
    torch.manual_seed(args.seed)
    torch.set_num_threads(args.threads)
    rng = random.Random(args.seed)
    text = needle.read_text(args.text)
    split = int(len(text) * 0.95)
    model = make_model(torch)
    if args.init:
        load(torch, model, args.init)
    train(torch, model, args, rng, text[:split], text[split:])
    save(model, args.output)
    for length in (256, 512):
        prompts = list(needle.make_prompts(text[split:], args.task, length, 64, 1))
        print(f"final length={length} right={count_right(torch, model, prompts)}/64")


if __name__ == "__main__":
    main()
