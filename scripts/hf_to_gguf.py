#!/usr/bin/env python3
"""Writes a Hugging Face folder of the LLaMA architecture as an f32 GGUF file, for tests and
benchmarks that need the same model in several weight types (requantize.py does the rest).

usage: hf_to_gguf.py FOLDER OUT.gguf

FOLDER holds config.json and model.safetensors with tensors in f32 or f16, and no tokenizer: the
needle models.
"""
import json
import pathlib
import struct
import sys

import requantize  # finds or makes an environment with the packages

gguf, numpy = requantize.gguf, requantize.numpy

DTYPES = {"F32": numpy.float32, "F16": numpy.float16}
LAYER_NAMES = {
    "input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
OTHER_NAMES = {"model.embed_tokens": "token_embd", "model.norm": "output_norm",
               "lm_head": "output"}


def read_safetensors(path):
    data = path.read_bytes()
    header_bytes = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + header_bytes])
    for name, info in header.items():
        if name == "__metadata__":
            continue
        if info["dtype"] not in DTYPES:
            raise ValueError(f"tensor {name}: type {info['dtype']}, wanted {' or '.join(DTYPES)}")
        begin, end = (8 + header_bytes + offset for offset in info["data_offsets"])
        values = numpy.frombuffer(data[begin:end], DTYPES[info["dtype"]])
        yield name, values.reshape(info["shape"]).astype(numpy.float32)


def gguf_name(name):
    stem = name.removesuffix(".weight")
    if stem in OTHER_NAMES:
        return f"{OTHER_NAMES[stem]}.weight"
    _, _, layer, part = stem.split(".", 3)
    return f"blk.{layer}.{LAYER_NAMES[part]}.weight"


def interleave(rows, num_heads):
    """Rows in the order that rotates neighbours together, as GGUF files of this architecture."""
    shape = rows.shape
    return rows.reshape(num_heads, 2, shape[0] // num_heads // 2, *shape[1:]).swapaxes(
        1, 2).reshape(shape)


def convert(folder, target):
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    writer = gguf.GGUFWriter(target, "llama")
    writer.add_name(folder.name)
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_rope_dimension_count(config["head_dim"])
    writer.add_rope_freq_base(config["rope_theta"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_vocab_size(config["vocab_size"])
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    heads = {"attn_q": config["num_attention_heads"], "attn_k": config["num_key_value_heads"]}
    for name, values in read_safetensors(folder / "model.safetensors"):
        renamed = gguf_name(name)
        for part, num_heads in heads.items():
            if f".{part}." in renamed:
                values = interleave(values, num_heads)
        writer.add_tensor(renamed, numpy.ascontiguousarray(values))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__.strip())
    folder, target = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    try:
        convert(folder, target)
    except (OSError, ValueError, KeyError) as error:
        sys.exit(f"{folder}: {error}")


if __name__ == "__main__":
    main()
