// A Model for tests of the engine: no weights, but its logits depend on every KV slot it reads.
//
// Each row carries a digest. At each layer the row's keys and values are a hash of (digest, layer,
// head); the digest then takes in, in order, exactly what the pages of every visible slot of every
// KV head hold. The digest at the end makes the logits. A wrong page, length, head, position or
// order anywhere changes the tokens that follow, so "the same request alone" is the oracle.
//
// Keys and values are multiples of 1/64 in [-1, 1), exact in f32 and bf16. Queries are hashes too,
// so window scores are real numbers. Rows in the stash hold token, position and digest.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/ops.h"
#include "models/model.h"

namespace headroom::testing {

struct FakeModelShape {
  int32_t num_layers = 3;
  int32_t num_kv_heads = 2;
  int32_t group_size = 2;
  int32_t head_dim = 2;
  int32_t vocab_size = 64;
  int32_t max_context = 4096;
};

class FakeModel final : public models::Model {
 public:
  FakeModel(const FakeModelShape& shape, kernels::Backend& backend);

  const models::ModelConfig& config() const override { return config_; }
  void Forward(const models::ForwardBatch& batch, models::KvStore& kv) override;

  // A deliberate fault, to show that the oracle sees it: rows read the pages of the batch's first
  // segment where they hold enough slots.
  void ReadNeighboursPages() { reads_neighbour_ = true; }

  // Greedy tokens computed without engine or pages, from the definition above. After the prompt
  // has been read whole, only the slots kept[layer][kv_head] (ascending positions) of it stay; an
  // empty `kept` keeps all.
  static std::vector<int32_t> ReferenceTokens(
      const FakeModelShape& shape, const std::vector<int32_t>& prompt,
      const std::vector<std::vector<std::vector<int32_t>>>& kept, int32_t num_tokens);

 private:
  struct Row {
    int32_t token = 0;
    int32_t position = 0;
    uint64_t digest = 0;
  };

  void Enter(const models::ForwardBatch& batch, const models::RowSegment& segment,
             models::KvStore& kv);
  void Store(const models::ForwardBatch& batch, const models::RowSegment& segment, int32_t layer,
             models::KvStore& kv);
  void Stash(const models::ForwardBatch& batch, const models::RowSegment& segment,
             models::KvStore& kv);
  void Attend(const models::ForwardBatch& batch, const models::RowSegment& segment, int32_t layer,
              models::KvStore& kv);
  uint64_t ReadSlots(const kernels::KvArena& arena, const kernels::KvHeadView& head,
                     int32_t num_slots) const;

  FakeModelShape shape_;
  kernels::Backend& backend_;
  models::ModelConfig config_;
  bool reads_neighbour_ = false;
  std::vector<Row> rows_;           // [rows of the batch]
  std::vector<float> hidden_;       // [rows of a segment, hidden_size]
  std::vector<float> queries_;      // [rows of a segment, query heads * head_dim]
  std::vector<int64_t> dst_slots_;  // [rows of a segment, num_kv_heads]
  std::vector<int32_t> visible_;    // [rows of a segment, num_kv_heads]
};

}  // namespace headroom::testing
