#include "models/transformer.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "kernels/dequantize.h"

namespace headroom::models {
namespace {

bool RunsLayer(const RowSegment& segment, int32_t layer) {
  return segment.layer_begin <= layer && layer < segment.layer_end;
}

bool IsTail(const RowSegment& segment, int32_t layer) {
  return segment.kv_tail && segment.layer_end == layer;
}

// K and V of a from_stash segment's first layer were stored by the phase before.
bool StoresKv(const RowSegment& segment, int32_t layer) {
  return !(segment.from_stash && segment.layer_begin == layer);
}

}  // namespace

Transformer::Transformer(const ModelConfig& config, kernels::Backend& backend,
                         const TransformerOptions& options)
    : config_(config),
      backend_(backend),
      options_(options),
      attention_scale_(1.0f / std::sqrt(static_cast<float>(config.head_dim))) {}

StatusOr<std::unique_ptr<Transformer>> Transformer::Create(const ModelConfig& config,
                                                           const ModelWeights& weights,
                                                           kernels::Backend& backend,
                                                           const TransformerOptions& options) {
  TransformerOptions resolved = options;
  if (resolved.max_logit_rows == 0) {
    resolved.max_logit_rows = resolved.max_rows;
  }
  if (resolved.max_context == 0) {
    resolved.max_context = config.max_position_embeddings;
  }
  std::unique_ptr<Transformer> made(new Transformer(config, backend, resolved));
  HEADROOM_RETURN_IF_ERROR(made->PackWeights(weights));
  HEADROOM_RETURN_IF_ERROR(made->AllocateWorkspace());
  for (double frequency : RopeInverseFrequencies(config)) {
    made->inverse_frequencies_.push_back(static_cast<float>(frequency));
  }
  return made;
}

StatusOr<std::unique_ptr<kernels::Buffer>> Transformer::LoadNorm(const TensorView& view) {
  HEADROOM_ASSIGN_OR_RETURN(auto buffer,
                            backend_.Allocate(sizeof(float) * static_cast<size_t>(view.cols)));
  kernels::DequantizeRow(view.dtype, view.data, view.cols, buffer->floats());
  return buffer;
}

Status Transformer::PackLayer(const LayerWeights& weights, Layer* layer) {
  HEADROOM_ASSIGN_OR_RETURN(layer->input_norm, LoadNorm(weights.input_norm));
  HEADROOM_ASSIGN_OR_RETURN(layer->post_attention_norm, LoadNorm(weights.post_attention_norm));
  const TensorView qkv[] = {weights.q_proj, weights.k_proj, weights.v_proj};
  HEADROOM_ASSIGN_OR_RETURN(layer->qkv, backend_.Pack(qkv));
  HEADROOM_ASSIGN_OR_RETURN(layer->o_proj, backend_.Pack({&weights.o_proj, 1}));
  HEADROOM_ASSIGN_OR_RETURN(layer->gate_up,
                            backend_.PackGateUp(weights.gate_proj, weights.up_proj));
  HEADROOM_ASSIGN_OR_RETURN(layer->down_proj, backend_.Pack({&weights.down_proj, 1}));
  weight_bytes_ += layer->qkv->num_bytes() + layer->o_proj->num_bytes() +
                   layer->gate_up->num_bytes() + layer->down_proj->num_bytes();
  return OkStatus();
}

Status Transformer::PackWeights(const ModelWeights& weights) {
  HEADROOM_ASSIGN_OR_RETURN(embed_, backend_.Pack({&weights.embed_tokens, 1}));
  weight_bytes_ += embed_->num_bytes();
  if (weights.lm_head.data != weights.embed_tokens.data) {
    HEADROOM_ASSIGN_OR_RETURN(lm_head_, backend_.Pack({&weights.lm_head, 1}));
    weight_bytes_ += lm_head_->num_bytes();
  }
  HEADROOM_ASSIGN_OR_RETURN(final_norm_, LoadNorm(weights.final_norm));
  layers_.resize(weights.layers.size());
  for (size_t layer = 0; layer < layers_.size(); ++layer) {
    HEADROOM_RETURN_IF_ERROR(PackLayer(weights.layers[layer], &layers_[layer]));
  }
  return OkStatus();
}

Status Transformer::AllocateWorkspace() {
  const auto rows = static_cast<size_t>(options_.max_rows);
  const auto floats = [&](size_t num_rows, int32_t width) {
    return backend_.Allocate(sizeof(float) * num_rows * static_cast<size_t>(width));
  };
  const int32_t qkv_width = config_.query_width() + 2 * config_.kv_width();
  HEADROOM_ASSIGN_OR_RETURN(hidden_, floats(rows, config_.hidden_size));
  HEADROOM_ASSIGN_OR_RETURN(qkv_, floats(rows, qkv_width));
  HEADROOM_ASSIGN_OR_RETURN(attention_, floats(rows, config_.query_width()));
  HEADROOM_ASSIGN_OR_RETURN(mlp_, floats(rows, config_.intermediate_size));
  HEADROOM_ASSIGN_OR_RETURN(
      gathered_, floats(static_cast<size_t>(options_.max_logit_rows), config_.hidden_size));
  const size_t pairs = static_cast<size_t>(config_.head_dim) / 2;
  cos_.resize(rows * pairs);
  sin_.resize(rows * pairs);
  dst_slots_.resize(rows * static_cast<size_t>(config_.num_key_value_heads));
  visible_.resize(rows * static_cast<size_t>(config_.num_key_value_heads));
  kernels::WorkspaceLimits limits;
  limits.max_rows = std::max(options_.max_rows, options_.max_logit_rows);
  limits.max_cols =
      std::max({config_.hidden_size, config_.intermediate_size, config_.query_width()});
  limits.max_slots = options_.max_context;
  limits.num_query_heads = config_.num_attention_heads;
  limits.head_dim = config_.head_dim;
  return backend_.ReserveWorkspace(limits);
}

void Transformer::Forward(const ForwardBatch& batch, KvStore& kv) {
  CheckBatch(batch);
  PrepareRotation(batch);
  for (int32_t layer = 0; layer < config_.num_hidden_layers; ++layer) {
    EnterRows(batch, layer, kv);
    FindRuns(batch, layer, /*with_tail=*/true);
    ProjectAndStore(batch, layer, kv);
    FinishTails(batch, layer, kv);
    FindRuns(batch, layer, /*with_tail=*/false);
    Attend(batch, layer, kv);
    FeedForward(layer);
  }
  ComputeLogits(batch);
}

void Transformer::CheckBatch(const ForwardBatch& batch) const {
  const auto num_rows = static_cast<int32_t>(batch.positions.size());
  HEADROOM_CHECK(num_rows <= options_.max_rows);
  HEADROOM_CHECK(batch.token_ids.size() == batch.positions.size());
  HEADROOM_CHECK(batch.logit_rows.size() <= static_cast<size_t>(options_.max_logit_rows));
  int32_t next_row = 0;
  for (const RowSegment& segment : batch.segments) {
    HEADROOM_CHECK(segment.row_begin == next_row && segment.num_rows >= 1);
    HEADROOM_CHECK(segment.layer_begin <= segment.layer_end);
    HEADROOM_CHECK(segment.layer_end <= config_.num_hidden_layers - (segment.kv_tail ? 1 : 0));
    HEADROOM_CHECK(segment.from_stash || segment.layer_begin == 0);
    next_row += segment.num_rows;
  }
  HEADROOM_CHECK(next_row == num_rows);
}

// Angles are f32 products of position and inverse frequency, as in the models' training code; their
// sine and cosine are exact to f32.
void Transformer::PrepareRotation(const ForwardBatch& batch) {
  const size_t pairs = inverse_frequencies_.size();
  for (size_t row = 0; row < batch.positions.size(); ++row) {
    const auto position = static_cast<float>(batch.positions[row]);
    for (size_t pair = 0; pair < pairs; ++pair) {
      const double angle = position * inverse_frequencies_[pair];
      cos_[row * pairs + pair] = static_cast<float>(std::cos(angle));
      sin_[row * pairs + pair] = static_cast<float>(std::sin(angle));
    }
  }
}

void Transformer::EnterRows(const ForwardBatch& batch, int32_t layer, KvStore& kv) {
  const int64_t width = config_.hidden_size;
  for (const RowSegment& segment : batch.segments) {
    if (segment.layer_begin != layer) {
      continue;
    }
    float* rows = hidden_->floats() + segment.row_begin * width;
    const auto begin = static_cast<size_t>(segment.row_begin);
    if (segment.from_stash) {
      kv.LoadStash(segment, batch.positions.data() + begin, rows, width);
      continue;
    }
    kernels::EmbedRowsParams params;
    params.weight = embed_.get();
    params.ids = std::span(batch.token_ids).subspan(begin, static_cast<size_t>(segment.num_rows));
    params.out = rows;
    backend_.EmbedRows(params);
  }
}

void Transformer::FindRuns(const ForwardBatch& batch, int32_t layer, bool with_tail) {
  runs_.clear();
  for (const RowSegment& segment : batch.segments) {
    if (!RunsLayer(segment, layer) && !(with_tail && IsTail(segment, layer))) {
      continue;
    }
    if (!runs_.empty() && runs_.back().begin + runs_.back().count == segment.row_begin) {
      runs_.back().count += segment.num_rows;
    } else {
      runs_.push_back({segment.row_begin, segment.num_rows});
    }
  }
}

void Transformer::ProjectAndStore(const ForwardBatch& batch, int32_t layer, KvStore& kv) {
  const Layer& weights = layers_[static_cast<size_t>(layer)];
  const int64_t qkv_width = weights.qkv->rows();
  const int64_t num_kv_heads = config_.num_key_value_heads;
  for (const RowSegment& segment : batch.segments) {
    if (!RunsLayer(segment, layer) && !IsTail(segment, layer)) {
      continue;
    }
    int64_t* slots = dst_slots_.data() + segment.row_begin * num_kv_heads;
    if (StoresKv(segment, layer)) {
      kv.Append(segment, layer, batch.positions.data() + segment.row_begin, slots);
    } else {
      std::fill_n(slots, segment.num_rows * num_kv_heads, int64_t{-1});
    }
  }
  const auto pairs = static_cast<int64_t>(inverse_frequencies_.size());
  for (const RowRun& run : runs_) {
    kernels::LinearParams linear;
    linear.x = hidden_->floats() + run.begin * config_.hidden_size;
    linear.x_stride = config_.hidden_size;
    linear.num_rows = run.count;
    linear.norm_weight = weights.input_norm->floats();
    linear.norm_eps = config_.rms_norm_eps;
    linear.weight = weights.qkv.get();
    linear.out = qkv_->floats() + run.begin * qkv_width;
    linear.out_stride = qkv_width;
    backend_.Linear(linear);

    kernels::RopeStoreParams rope;
    rope.qkv = linear.out;
    rope.qkv_stride = qkv_width;
    rope.num_rows = run.count;
    rope.cos = cos_.data() + run.begin * pairs;
    rope.sin = sin_.data() + run.begin * pairs;
    rope.interleaved = config_.rope_pairing == RopePairing::kInterleaved;
    rope.arena = kv.arena();
    rope.dst_slots = dst_slots_.data() + run.begin * num_kv_heads;
    backend_.RopeStore(rope);
  }
  for (const RowSegment& segment : batch.segments) {
    const bool projects = RunsLayer(segment, layer) || IsTail(segment, layer);
    if (projects && StoresKv(segment, layer)) {
      kv.CaptureQueries(segment, layer, batch.positions.data() + segment.row_begin,
                        qkv_->floats() + segment.row_begin * qkv_width, qkv_width);
    }
  }
}

void Transformer::FinishTails(const ForwardBatch& batch, int32_t layer, KvStore& kv) {
  const int64_t width = config_.hidden_size;
  for (const RowSegment& segment : batch.segments) {
    if (!IsTail(segment, layer)) {
      continue;
    }
    kv.StashRows(segment, batch.positions.data() + segment.row_begin,
                 hidden_->floats() + segment.row_begin * width, width);
    if (segment.ends_phase) {
      kv.FinishLayer(segment, layer);
    }
  }
}

void Transformer::Attend(const ForwardBatch& batch, int32_t layer, KvStore& kv) {
  const Layer& weights = layers_[static_cast<size_t>(layer)];
  attention_segments_.clear();
  for (const RowSegment& segment : batch.segments) {
    if (!RunsLayer(segment, layer)) {
      continue;
    }
    kernels::AttentionSegment rows;
    rows.row_begin = segment.row_begin;
    rows.num_rows = segment.num_rows;
    rows.heads = kv.View(segment, layer, batch.positions.data() + segment.row_begin,
                         visible_.data() + segment.row_begin * config_.num_key_value_heads);
    attention_segments_.push_back(rows);
  }
  if (attention_segments_.empty()) {
    return;
  }
  kernels::AttentionParams params;
  params.q = qkv_->floats();
  params.q_stride = weights.qkv->rows();
  params.out = attention_->floats();
  params.out_stride = config_.query_width();
  params.scale = attention_scale_;
  params.arena = kv.arena();
  params.segments = attention_segments_;
  params.visible = visible_.data();
  backend_.Attention(params);
  for (const RowSegment& segment : batch.segments) {
    if (RunsLayer(segment, layer) && segment.ends_phase) {
      kv.FinishLayer(segment, layer);
    }
  }
}

// The output projection and the MLP of the rows in runs_.
void Transformer::FeedForward(int32_t layer) {
  const Layer& weights = layers_[static_cast<size_t>(layer)];
  for (const RowRun& run : runs_) {
    float* hidden = hidden_->floats() + run.begin * config_.hidden_size;
    kernels::LinearParams output;
    output.x = attention_->floats() + run.begin * config_.query_width();
    output.x_stride = config_.query_width();
    output.num_rows = run.count;
    output.weight = weights.o_proj.get();
    output.out = hidden;
    output.out_stride = config_.hidden_size;
    output.epilogue = kernels::LinearEpilogue::kAdd;
    backend_.Linear(output);

    kernels::LinearParams gate_up;
    gate_up.x = hidden;
    gate_up.x_stride = config_.hidden_size;
    gate_up.num_rows = run.count;
    gate_up.norm_weight = weights.post_attention_norm->floats();
    gate_up.norm_eps = config_.rms_norm_eps;
    gate_up.weight = weights.gate_up.get();
    gate_up.out = mlp_->floats() + run.begin * config_.intermediate_size;
    gate_up.out_stride = config_.intermediate_size;
    gate_up.epilogue = kernels::LinearEpilogue::kSiluMul;
    backend_.Linear(gate_up);

    kernels::LinearParams down;
    down.x = gate_up.out;
    down.x_stride = config_.intermediate_size;
    down.num_rows = run.count;
    down.weight = weights.down_proj.get();
    down.out = hidden;
    down.out_stride = config_.hidden_size;
    down.epilogue = kernels::LinearEpilogue::kAdd;
    backend_.Linear(down);
  }
}

void Transformer::ComputeLogits(const ForwardBatch& batch) {
  if (batch.logit_rows.empty()) {
    return;
  }
  source_rows_.assign(batch.logit_rows.begin(), batch.logit_rows.end());
  target_rows_.clear();
  for (size_t i = 0; i < source_rows_.size(); ++i) {
    target_rows_.push_back(static_cast<int64_t>(i));
  }
  kernels::CopyRowsParams copy;
  copy.src = hidden_->floats();
  copy.src_stride = config_.hidden_size;
  copy.dst = gathered_->floats();
  copy.dst_stride = config_.hidden_size;
  copy.width = config_.hidden_size;
  copy.src_rows = source_rows_;
  copy.dst_rows = target_rows_;
  backend_.CopyRows(copy);

  kernels::LinearParams head;
  head.x = gathered_->floats();
  head.x_stride = config_.hidden_size;
  head.num_rows = static_cast<int64_t>(batch.logit_rows.size());
  head.norm_weight = final_norm_->floats();
  head.norm_eps = config_.rms_norm_eps;
  head.weight = lm_head_ != nullptr ? lm_head_.get() : embed_.get();
  head.out = batch.logits;
  head.out_stride = config_.vocab_size;
  backend_.Linear(head);
}

}  // namespace headroom::models
