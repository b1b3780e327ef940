// The forward pass of the LLaMA family, on any backend.
//
// RMSNorm, attention with rotary positions and grouped KV heads, SwiGLU. One pass over the layers
// serves every segment of a batch; a layer runs the rows whose layer range covers it. Rows next to
// each other share one call of an op; by the ops' contract that cannot change a row's result.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/status.h"
#include "kernels/ops.h"
#include "models/model.h"
#include "models/weights.h"

namespace headroom::models {

struct TransformerOptions {
  int32_t max_rows = 512;      // rows of one batch
  int32_t max_logit_rows = 0;  // rows with logits in one batch; 0: max_rows
  int32_t max_context = 0;     // longest sequence; 0: the model's
};

class Transformer final : public Model {
 public:
  // Packs the weights; `weights` may be dropped afterwards. `backend` outlives the transformer.
  static StatusOr<std::unique_ptr<Transformer>> Create(const ModelConfig& config,
                                                       const ModelWeights& weights,
                                                       kernels::Backend& backend,
                                                       const TransformerOptions& options);

  const ModelConfig& config() const override { return config_; }
  void Forward(const ForwardBatch& batch, KvStore& kv) override;

  // Bytes of packed weights.
  size_t weight_bytes() const { return weight_bytes_; }
  // 1 / sqrt(head_dim), the scale of attention logits.
  float attention_scale() const { return attention_scale_; }

 private:
  struct Layer {
    std::unique_ptr<kernels::Buffer> input_norm;           // [hidden]
    std::unique_ptr<kernels::PackedWeight> qkv;            // [query + 2 * kv width, hidden]
    std::unique_ptr<kernels::PackedWeight> o_proj;         // [hidden, query width]
    std::unique_ptr<kernels::Buffer> post_attention_norm;  // [hidden]
    std::unique_ptr<kernels::PackedWeight> gate_up;        // [2 * intermediate, hidden]
    std::unique_ptr<kernels::PackedWeight> down_proj;      // [hidden, intermediate]
  };
  // Consecutive rows of a batch.
  struct RowRun {
    int64_t begin = 0;
    int64_t count = 0;
  };

  Transformer(const ModelConfig& config, kernels::Backend& backend,
              const TransformerOptions& options);
  Status PackWeights(const ModelWeights& weights);
  Status PackLayer(const LayerWeights& weights, Layer* layer);
  Status AllocateWorkspace();
  StatusOr<std::unique_ptr<kernels::Buffer>> LoadNorm(const TensorView& view);

  void CheckBatch(const ForwardBatch& batch) const;
  void PrepareRotation(const ForwardBatch& batch);
  void EnterRows(const ForwardBatch& batch, int32_t layer, KvStore& kv);
  // Rows that need K and V at `layer` (active or tail), or that run it whole (active only).
  void FindRuns(const ForwardBatch& batch, int32_t layer, bool with_tail);
  void ProjectAndStore(const ForwardBatch& batch, int32_t layer, KvStore& kv);
  void FinishTails(const ForwardBatch& batch, int32_t layer, KvStore& kv);
  void Attend(const ForwardBatch& batch, int32_t layer, KvStore& kv);
  void FeedForward(int32_t layer);
  void ComputeLogits(const ForwardBatch& batch);

  const ModelConfig config_;
  kernels::Backend& backend_;
  const TransformerOptions options_;
  const float attention_scale_;
  size_t weight_bytes_ = 0;

  std::unique_ptr<kernels::PackedWeight> embed_;    // [vocab, hidden]
  std::unique_ptr<kernels::PackedWeight> lm_head_;  // [vocab, hidden]; null when tied
  std::unique_ptr<kernels::Buffer> final_norm_;     // [hidden]
  std::vector<Layer> layers_;                       // [num_hidden_layers]
  std::vector<float> inverse_frequencies_;          // [head_dim / 2]

  // Workspace of one Forward.
  std::unique_ptr<kernels::Buffer> hidden_;     // [max_rows, hidden], the residual stream
  std::unique_ptr<kernels::Buffer> qkv_;        // [max_rows, query + 2 * kv width]
  std::unique_ptr<kernels::Buffer> attention_;  // [max_rows, query width]
  std::unique_ptr<kernels::Buffer> mlp_;        // [max_rows, intermediate]
  std::unique_ptr<kernels::Buffer> gathered_;   // [max_logit_rows, hidden]
  std::vector<float> cos_;                      // [rows, head_dim / 2]
  std::vector<float> sin_;                      // [rows, head_dim / 2]
  std::vector<int64_t> dst_slots_;              // [rows, num_kv_heads]
  std::vector<int32_t> visible_;                // [rows, num_kv_heads]
  std::vector<RowRun> runs_;
  std::vector<kernels::AttentionSegment> attention_segments_;
  std::vector<int64_t> source_rows_;  // [logit rows]
  std::vector<int64_t> target_rows_;  // [logit rows]
};

}  // namespace headroom::models
