#include "tests/support/full_kv_store.h"

#include <algorithm>
#include <numeric>

#include "base/check.h"

namespace headroom::testing {

FullKvStore::FullKvStore(const models::ModelConfig& config, kernels::KvDType dtype,
                         int32_t max_tokens, kernels::Backend& backend) {
  arena_.geometry = {config.num_key_value_heads, config.group_size(), config.head_dim, dtype};
  arena_.page_bytes = backend.KvPageBytes(arena_.geometry);
  const int32_t pages_per_head = (max_tokens + kernels::kPageSize - 1) / kernels::kPageSize;
  const size_t num_heads = static_cast<size_t>(config.num_hidden_layers) *
                           static_cast<size_t>(config.num_key_value_heads);
  auto memory =
      backend.Allocate(arena_.page_bytes * num_heads * static_cast<size_t>(pages_per_head));
  HEADROOM_CHECK(memory.ok());
  memory_ = std::move(memory).value();
  arena_.base = memory_->data();
  int32_t next_page = 0;
  for (int32_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    auto& layer_pages = pages_.emplace_back();
    auto& layer_views = views_.emplace_back();
    for (int32_t head = 0; head < config.num_key_value_heads; ++head) {
      auto& pages = layer_pages.emplace_back(static_cast<size_t>(pages_per_head));
      std::iota(pages.begin(), pages.end(), next_page);
      next_page += pages_per_head;
      layer_views.push_back({pages.data(), 0});
    }
  }
}

void FullKvStore::Append(const models::RowSegment& segment, int32_t layer, const int32_t*,
                         int64_t* dst_slots) {
  auto& views = views_[static_cast<size_t>(layer)];
  for (int32_t row = 0; row < segment.num_rows; ++row) {
    for (kernels::KvHeadView& view : views) {
      const int64_t page = view.pages[view.num_slots / kernels::kPageSize];
      *dst_slots++ = page * kernels::kPageSize + view.num_slots % kernels::kPageSize;
      ++view.num_slots;
    }
  }
}

const kernels::KvHeadView* FullKvStore::View(const models::RowSegment& segment, int32_t layer,
                                             const int32_t* positions, int32_t* visible) {
  const auto& views = views_[static_cast<size_t>(layer)];
  for (int32_t row = 0; row < segment.num_rows; ++row) {
    for (size_t head = 0; head < views.size(); ++head) {
      *visible++ = positions[row] + 1;
    }
  }
  return views.data();
}

void FullKvStore::StashRows(const models::RowSegment&, const int32_t*, const float*, int64_t) {
  HEADROOM_CHECK(false);
}
void FullKvStore::LoadStash(const models::RowSegment&, const int32_t*, float*, int64_t) {
  HEADROOM_CHECK(false);
}

std::vector<float> GreedyRunner::Feed(const std::vector<int32_t>& ids) {
  std::vector<float> logits;
  Run(ids, /*all_logits=*/false, &logits);
  return logits;
}

std::vector<float> GreedyRunner::FeedAll(const std::vector<int32_t>& ids) {
  std::vector<float> logits;
  Run(ids, /*all_logits=*/true, &logits);
  return logits;
}

void GreedyRunner::Run(const std::vector<int32_t>& ids, bool all_logits,
                       std::vector<float>* logits) {
  const auto count = static_cast<int32_t>(ids.size());
  const auto vocab = static_cast<size_t>(model_.config().vocab_size);
  logits->resize(vocab * (all_logits ? ids.size() : 1));
  for (int32_t begin = 0; begin < count; begin += chunk_) {
    const int32_t rows = std::min(chunk_, count - begin);
    models::ForwardBatch batch;
    models::RowSegment segment;
    segment.num_rows = rows;
    segment.layer_end = model_.config().num_hidden_layers;
    batch.segments.push_back(segment);
    for (int32_t row = 0; row < rows; ++row) {
      batch.token_ids.push_back(ids[static_cast<size_t>(begin + row)]);
      batch.positions.push_back(next_position_ + row);
      if (all_logits) {
        batch.logit_rows.push_back(row);
      }
    }
    if (!all_logits && begin + rows == count) {
      batch.logit_rows.push_back(rows - 1);
    }
    batch.logits = logits->data() + (all_logits ? static_cast<size_t>(begin) * vocab : 0);
    model_.Forward(batch, kv_);
    next_position_ += rows;
  }
}

int32_t ArgMax(const float* logits, int32_t vocab_size) {
  return static_cast<int32_t>(std::max_element(logits, logits + vocab_size) - logits);
}

}  // namespace headroom::testing
