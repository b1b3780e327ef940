#!/usr/bin/env python3
"""Write prompts for the needle models (tests/data/needle-1hop and needle-2hop).

A prompt hides short records in running text and asks for one of them:

  1hop  records [key v v v]; the question [QRY key] has the answer v v v.
  2hop  also aliases [key2 ALIAS key], placed independently; the question [QRY key2] has the answer
        ALIAS key v v v.

Ids: 0..255 text bytes, 256..375 keys, 384..503 values, 509 ALIAS, 510 BOS, 511 QRY.
Each output line is a JSON object: id, task, length, context, question, answer (lists of ids) and
needle_begin, the index in the context of the record asked for. The prompt is context + question;
`length` counts context, question and answer. The same arguments give the same bytes.
"""
import argparse
import json
import pathlib
import random

FIRST_KEY, NUM_KEYS = 256, 120
FIRST_VALUE, NUM_VALUES = 384, 120
ALIAS, BOS, QUERY = 509, 510, 511
VOCAB_SIZE = 512
VALUES_PER_RECORD = 3
# One record in this many tokens at most.
TOKENS_PER_RECORD = {"1hop": 48, "2hop": 64}

DEFAULT_TEXT = pathlib.Path(__file__).resolve().parent.parent / "tests/data/text/excerpt.txt"


def read_text(path, begin=0.0):
    """The ASCII bytes of a file as ids, from the share `begin` of them on."""
    ids = [byte for byte in pathlib.Path(path).read_bytes() if byte < 128]
    return ids[int(len(ids) * begin):]


def hide(rng, text, records, num_tokens):
    """`num_tokens` of running text with the records at random places, in random order.

    Returns the tokens and where each record (as a tuple) begins.
    """
    rng.shuffle(records)
    num_text = num_tokens - sum(len(record) for record in records)
    start = rng.randrange(len(text) - num_text)
    cuts = sorted(rng.randrange(num_text + 1) for _ in records)
    passage = text[start:start + num_text]
    tokens, begins, taken = [], {}, 0
    for cut, record in zip(cuts, records):
        tokens.extend(passage[taken:cut])
        taken = cut
        begins[tuple(record)] = len(tokens)
        tokens.extend(record)
    tokens.extend(passage[taken:])
    return tokens, begins


def make_prompt(rng, text, task, length):
    """One prompt as a dict without its id."""
    fewest = 1 if task == "1hop" else 2
    most = max(3, length // TOKENS_PER_RECORD[task])
    num_records = rng.randrange(fewest, most + 1)
    keys = [FIRST_KEY + index for index in rng.sample(range(NUM_KEYS), 2 * num_records)]
    records = []
    for key in keys[:num_records]:
        values = [FIRST_VALUE + rng.randrange(NUM_VALUES) for _ in range(VALUES_PER_RECORD)]
        records.append([key] + values)
    asked = rng.randrange(num_records)
    wanted = list(records[asked])
    hidden = [list(record) for record in records]
    if task == "1hop":
        question, answer = [QUERY, wanted[0]], wanted[1:]
    else:
        # The second half of the keys are aliases of the first.
        hidden += [[keys[num_records + i], ALIAS, keys[i]] for i in range(num_records)]
        question, answer = [QUERY, keys[num_records + asked]], [ALIAS] + wanted
    num_context = length - len(question) - len(answer)
    tokens, begins = hide(rng, text, hidden, num_context - 1)
    return {
        "context": [BOS] + tokens,
        "question": question,
        "answer": answer,
        "needle_begin": 1 + begins[tuple(wanted)],
    }


def make_prompts(text, task, length, count, seed):
    """Yields `count` prompts; a function of the arguments alone."""
    rng = random.Random(f"{task}/{length}/{seed}")
    for index in range(count):
        yield {
            "id": f"{task}-{length}-{seed}-{index}",
            "task": task,
            "length": length,
            **make_prompt(rng, text, task, length),
        }


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", help="JSON lines file to write")
    parser.add_argument("--task", choices=["1hop", "2hop"], required=True)
    parser.add_argument("--length", type=int, default=512, help="tokens, answer included")
    parser.add_argument("--count", type=int, default=64)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--text", default=DEFAULT_TEXT, help="running text, any ASCII file")
    parser.add_argument("--text-begin", type=float, default=0.0,
                        help="skip this share of the text (0.95: what training left out)")
    args = parser.parse_args()
    if args.length < 64:
        parser.error("--length must be at least 64")
    text = read_text(args.text, args.text_begin)
    if len(text) <= args.length:
        parser.error(f"{args.text}: {len(text)} bytes of text, wanted more than {args.length}")
    with open(args.output, "w", encoding="ascii") as output:
        for prompt in make_prompts(text, args.task, args.length, args.count, args.seed):
            output.write(json.dumps(prompt) + "\n")


if __name__ == "__main__":
    main()
