#include "tests/support/fake_model.h"

#include <algorithm>
#include <bit>
#include <span>

#include "base/check.h"

namespace headroom::testing {
namespace {

using models::ForwardBatch;
using models::KvStore;
using models::RowSegment;

// token, position, four 16-bit parts of the digest, all exact in f32.
constexpr int32_t kHiddenSize = 6;

// SplitMix64's finaliser over both words.
uint64_t Mix(uint64_t a, uint64_t b) {
  uint64_t x = a * 0x9E3779B97F4A7C15u + b + 0x632BE59BD9B4E019u;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

// A multiple of 1/64 in [-1, 1).
float SmallFloat(uint64_t hash) {
  return static_cast<float>(static_cast<int32_t>(hash >> 57) - 64) / 64.0f;
}

uint64_t SlotHash(uint64_t digest, float k, float v) {
  return Mix(digest, uint64_t{std::bit_cast<uint32_t>(k)} << 32 | std::bit_cast<uint32_t>(v));
}

uint64_t AtLayer(uint64_t digest, int32_t layer) {
  return Mix(digest, static_cast<uint64_t>(layer));
}
float KeyAt(uint64_t at_layer, size_t head, size_t d) {
  return SmallFloat(Mix(at_layer, 1000 + head * 100 + d));
}
float ValueAt(uint64_t at_layer, size_t head, size_t d) {
  return SmallFloat(Mix(at_layer, 2000 + head * 100 + d));
}

void LogitsOf(uint64_t digest, std::span<float> logits) {
  for (size_t token = 0; token < logits.size(); ++token) {
    logits[token] =
        static_cast<float>(static_cast<double>(Mix(digest, token) >> 40) * 0x1p-21 - 4.0);
  }
}

bool RunsLayer(const RowSegment& segment, int32_t layer) {
  return segment.layer_begin <= layer && layer < segment.layer_end;
}

bool IsTail(const RowSegment& segment, int32_t layer) {
  return segment.kv_tail && segment.layer_end == layer;
}

}  // namespace

FakeModel::FakeModel(const FakeModelShape& shape, kernels::Backend& backend)
    : shape_(shape), backend_(backend) {
  config_.architecture = "FakeModel";
  config_.vocab_size = shape.vocab_size;
  config_.hidden_size = kHiddenSize;
  config_.intermediate_size = kHiddenSize;
  config_.num_hidden_layers = shape.num_layers;
  config_.num_attention_heads = shape.num_kv_heads * shape.group_size;
  config_.num_key_value_heads = shape.num_kv_heads;
  config_.head_dim = shape.head_dim;
  config_.max_position_embeddings = shape.max_context;
}

void FakeModel::Forward(const ForwardBatch& batch, KvStore& kv) {
  rows_.assign(batch.positions.size(), Row());
  int32_t next_row = 0;
  for (const RowSegment& segment : batch.segments) {
    HEADROOM_CHECK(segment.row_begin == next_row && segment.num_rows >= 1);
    next_row += segment.num_rows;
    Enter(batch, segment, kv);
  }
  HEADROOM_CHECK(next_row == static_cast<int32_t>(batch.positions.size()));
  for (int32_t layer = 0; layer < shape_.num_layers; ++layer) {
    for (const RowSegment& segment : batch.segments) {
      // The layer that a stash enters has its keys and values already.
      const bool is_stored = segment.from_stash && segment.layer_begin == layer;
      if ((RunsLayer(segment, layer) && !is_stored) || IsTail(segment, layer)) {
        Store(batch, segment, layer, kv);
      }
    }
    for (const RowSegment& segment : batch.segments) {
      if (IsTail(segment, layer)) {
        Stash(batch, segment, kv);
      }
      if (RunsLayer(segment, layer)) {
        Attend(batch, segment, layer, kv);
      }
    }
    for (const RowSegment& segment : batch.segments) {
      if (segment.ends_phase && (RunsLayer(segment, layer) || IsTail(segment, layer))) {
        kv.FinishLayer(segment, layer);
      }
    }
  }
  const auto vocab = static_cast<size_t>(shape_.vocab_size);
  for (size_t i = 0; i < batch.logit_rows.size(); ++i) {
    LogitsOf(rows_[static_cast<size_t>(batch.logit_rows[i])].digest,
             std::span(batch.logits + i * vocab, vocab));
  }
}

void FakeModel::Enter(const ForwardBatch& batch, const RowSegment& segment, KvStore& kv) {
  const int32_t* positions = batch.positions.data() + segment.row_begin;
  if (segment.from_stash) {
    hidden_.assign(static_cast<size_t>(segment.num_rows) * kHiddenSize, -1.0f);
    kv.LoadStash(segment, positions, hidden_.data(), kHiddenSize);
  }
  for (int32_t i = 0; i < segment.num_rows; ++i) {
    Row& row = rows_[static_cast<size_t>(segment.row_begin + i)];
    row.token = batch.token_ids[static_cast<size_t>(segment.row_begin + i)];
    row.position = positions[i];
    row.digest = Mix(static_cast<uint64_t>(row.token), static_cast<uint64_t>(row.position));
    if (!segment.from_stash) {
      continue;
    }
    // What was kept aside must be this very row.
    const float* hidden = hidden_.data() + static_cast<ptrdiff_t>(i) * kHiddenSize;
    HEADROOM_CHECK(hidden[1] == static_cast<float>(row.position));
    row.token = static_cast<int32_t>(hidden[0]);
    row.digest = 0;
    for (int32_t part = 0; part < 4; ++part) {
      row.digest = row.digest << 16 | static_cast<uint64_t>(hidden[2 + part]);
    }
  }
}

void FakeModel::Store(const ForwardBatch& batch, const RowSegment& segment, int32_t layer,
                      KvStore& kv) {
  const auto num_heads = static_cast<size_t>(shape_.num_kv_heads);
  const auto head_dim = static_cast<size_t>(shape_.head_dim);
  const size_t query_width = num_heads * static_cast<size_t>(shape_.group_size) * head_dim;
  const auto num_rows = static_cast<size_t>(segment.num_rows);
  const int32_t* positions = batch.positions.data() + segment.row_begin;
  dst_slots_.assign(num_rows * num_heads, -1);
  queries_.resize(num_rows * query_width);
  kv.Append(segment, layer, positions, dst_slots_.data());
  std::vector<float> k(head_dim);
  std::vector<float> v(head_dim);
  for (size_t i = 0; i < num_rows; ++i) {
    const Row& row = rows_[static_cast<size_t>(segment.row_begin) + i];
    const uint64_t at_layer = AtLayer(row.digest, layer);
    for (size_t head = 0; head < num_heads; ++head) {
      for (size_t d = 0; d < head_dim; ++d) {
        k[d] = KeyAt(at_layer, head, d);
        v[d] = ValueAt(at_layer, head, d);
      }
      backend_.WriteKvSlot(kv.arena(), dst_slots_[i * num_heads + head], k.data(), v.data());
    }
    for (size_t d = 0; d < query_width; ++d) {
      queries_[i * query_width + d] = SmallFloat(Mix(at_layer, 3000 + d));
    }
  }
  kv.CaptureQueries(segment, layer, positions, queries_.data(), static_cast<int64_t>(query_width));
}

void FakeModel::Stash(const ForwardBatch& batch, const RowSegment& segment, KvStore& kv) {
  hidden_.resize(static_cast<size_t>(segment.num_rows) * kHiddenSize);
  for (int32_t i = 0; i < segment.num_rows; ++i) {
    const Row& row = rows_[static_cast<size_t>(segment.row_begin + i)];
    float* hidden = hidden_.data() + static_cast<ptrdiff_t>(i) * kHiddenSize;
    hidden[0] = static_cast<float>(row.token);
    hidden[1] = static_cast<float>(row.position);
    for (int32_t part = 0; part < 4; ++part) {
      hidden[2 + part] = static_cast<float>(row.digest >> (48 - 16 * part) & 0xFFFF);
    }
  }
  kv.StashRows(segment, batch.positions.data() + segment.row_begin, hidden_.data(), kHiddenSize);
}

uint64_t FakeModel::ReadSlots(const kernels::KvArena& arena, const kernels::KvHeadView& head,
                              int32_t num_slots) const {
  std::vector<float> k(static_cast<size_t>(shape_.head_dim));
  std::vector<float> v(static_cast<size_t>(shape_.head_dim));
  uint64_t digest = static_cast<uint64_t>(num_slots);
  for (int32_t slot = 0; slot < num_slots; ++slot) {
    const int64_t page = head.pages[slot / kernels::kPageSize];
    backend_.ReadKvSlot(arena, page * kernels::kPageSize + slot % kernels::kPageSize, k.data(),
                        v.data());
    for (size_t d = 0; d < k.size(); ++d) {
      digest = SlotHash(digest, k[d], v[d]);
    }
  }
  return digest;
}

void FakeModel::Attend(const ForwardBatch& batch, const RowSegment& segment, int32_t layer,
                       KvStore& kv) {
  const int32_t num_heads = shape_.num_kv_heads;
  const kernels::KvHeadView* neighbour = nullptr;
  if (reads_neighbour_) {
    const RowSegment& first = batch.segments.front();
    visible_.resize(static_cast<size_t>(first.num_rows) * static_cast<size_t>(num_heads));
    neighbour = kv.View(first, layer, batch.positions.data() + first.row_begin, visible_.data());
  }
  visible_.assign(static_cast<size_t>(segment.num_rows) * static_cast<size_t>(num_heads), -1);
  const kernels::KvHeadView* heads =
      kv.View(segment, layer, batch.positions.data() + segment.row_begin, visible_.data());
  for (int32_t i = 0; i < segment.num_rows; ++i) {
    Row& row = rows_[static_cast<size_t>(segment.row_begin + i)];
    for (int32_t head = 0; head < num_heads; ++head) {
      const int32_t num_slots = visible_[static_cast<size_t>(i * num_heads + head)];
      HEADROOM_CHECK(num_slots >= 1 && num_slots <= heads[head].num_slots);
      const kernels::KvHeadView* read = &heads[head];
      if (reads_neighbour_ && neighbour[head].num_slots >= num_slots) {
        read = &neighbour[head];
      }
      row.digest = Mix(row.digest, ReadSlots(kv.arena(), *read, num_slots));
    }
  }
}

std::vector<int32_t> FakeModel::ReferenceTokens(
    const FakeModelShape& shape, const std::vector<int32_t>& prompt,
    const std::vector<std::vector<std::vector<int32_t>>>& kept, int32_t num_tokens) {
  const auto num_layers = static_cast<size_t>(shape.num_layers);
  // at_layer[layer][position]: all that keys and values are made of.
  std::vector<std::vector<uint64_t>> at_layer(num_layers);
  std::vector<int32_t> tokens;
  std::vector<float> logits(static_cast<size_t>(shape.vocab_size));
  const size_t num_prompt = prompt.size();
  for (size_t position = 0; tokens.size() < static_cast<size_t>(num_tokens); ++position) {
    const int32_t token = position < num_prompt ? prompt[position] : tokens.back();
    uint64_t digest = Mix(static_cast<uint64_t>(token), position);
    for (size_t layer = 0; layer < num_layers; ++layer) {
      at_layer[layer].push_back(AtLayer(digest, static_cast<int32_t>(layer)));
      for (size_t head = 0; head < static_cast<size_t>(shape.num_kv_heads); ++head) {
        std::vector<size_t> visible;
        if (position >= num_prompt && !kept.empty()) {
          visible.assign(kept[layer][head].begin(), kept[layer][head].end());
        }
        for (size_t p = visible.empty() ? 0 : num_prompt; p <= position; ++p) {
          visible.push_back(p);
        }
        uint64_t read = visible.size();
        for (const size_t p : visible) {
          for (size_t d = 0; d < static_cast<size_t>(shape.head_dim); ++d) {
            read = SlotHash(read, KeyAt(at_layer[layer][p], head, d),
                            ValueAt(at_layer[layer][p], head, d));
          }
        }
        digest = Mix(digest, read);
      }
    }
    if (position + 1 >= num_prompt) {
      LogitsOf(digest, logits);
      tokens.push_back(
          static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin()));
    }
  }
  return tokens;
}

}  // namespace headroom::testing
