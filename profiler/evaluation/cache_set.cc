#include "profiler/evaluation/cache_set.h"

#include <algorithm>
#include <limits>

#include "base/check.h"

namespace headroom::profiler {
namespace {

// The most pages that one sequence of up to `max_tokens` positions ever holds under any row. Decode
// counts as prompt here: the bound for a whole prompt covers a shorter one with fed tokens behind.
int64_t MostPages(const EvalModel& model, const std::vector<EvalRow>& rows, int32_t max_tokens) {
  const engine::PromptInfo prompt = {.num_tokens = max_tokens, .content_end = max_tokens};
  int64_t most = static_cast<int64_t>(model.shape.num_layers) * model.shape.num_kv_heads *
                 (max_tokens / kernels::kPageSize + 2);
  for (const EvalRow& row : rows) {
    if (row.runs()) {
      const engine::KvFootprint footprint = model.policies.Find(row.spec.policy)
                                                ->Footprint(row.spec, model.shape, prompt,
                                                            /*max_new_tokens=*/1);
      most = std::max({most, footprint.prefill_peak_pages, footprint.steady_pages});
    }
  }
  return most;
}

}  // namespace

StatusOr<std::unique_ptr<CacheSet>> CacheSet::Create(const EvalModel& model,
                                                     const std::vector<EvalRow>& rows,
                                                     int32_t max_tokens, int64_t num_sequences) {
  auto set = std::make_unique<CacheSet>();
  const int64_t num_pages = num_sequences * MostPages(model, rows, max_tokens);
  if (num_pages > std::numeric_limits<int32_t>::max()) {
    return ResourceExhausted("documents of {} tokens need {} KV pages, wanted at most {}",
                             max_tokens, num_pages, std::numeric_limits<int32_t>::max());
  }
  for (const EvalRow& row : rows) {
    const bool known = std::any_of(set->entries_.begin(), set->entries_.end(),
                                   [&](const Entry& each) { return each.dtype == row.kv_dtype; });
    if (!known) {
      HEADROOM_RETURN_IF_ERROR(set->Add(model, row.kv_dtype, num_pages));
    }
  }
  return set;
}

Status CacheSet::Add(const EvalModel& model, kernels::KvDType dtype, int64_t num_pages) {
  const models::ModelConfig& config = model.model.config();
  engine::KvCacheConfig cache;
  cache.num_layers = config.num_hidden_layers;
  cache.hidden_size = config.hidden_size;
  cache.attention_scale = model.attention_scale;
  cache.tsp_layer = model.shape.tsp_layer;
  cache.num_pages = static_cast<int32_t>(num_pages);
  cache.geometry.num_kv_heads = config.num_key_value_heads;
  cache.geometry.group_size = config.group_size();
  cache.geometry.head_dim = config.head_dim;
  cache.geometry.dtype = dtype;
  Entry entry;
  entry.dtype = dtype;
  HEADROOM_ASSIGN_OR_RETURN(
      entry.cache, engine::KvCache::Create(cache, model.backend, model.policies, model.clock));
  entry.runner = std::make_unique<SequenceRunner>(model.model, *entry.cache, model.max_rows,
                                                  model.token_classes);
  entries_.push_back(std::move(entry));
  return OkStatus();
}

CacheSet::Entry& CacheSet::at(kernels::KvDType dtype) {
  const auto found = std::find_if(entries_.begin(), entries_.end(),
                                  [&](const Entry& each) { return each.dtype == dtype; });
  HEADROOM_CHECK(found != entries_.end());
  return *found;
}

SequenceRunner& CacheSet::runner(kernels::KvDType dtype) { return *at(dtype).runner; }

int64_t CacheSet::page_bytes(kernels::KvDType dtype) const {
  return static_cast<int64_t>(const_cast<CacheSet*>(this)->at(dtype).cache->arena().page_bytes);
}

KvCost CacheSet::CostAfterPrefill(const DecodingSequence& sequence, kernels::KvDType dtype) {
  const engine::KvReceipt& receipt = at(dtype).cache->receipt(sequence.handle);
  KvCost cost;
  cost.physical_bytes = PhysicalBytes(sequence, dtype);
  cost.physical_bytes_end = cost.physical_bytes;
  cost.nominal_bytes = receipt.bytes;
  cost.entries = receipt.entries;
  cost.propagated_tokens = receipt.propagated_tokens;
  return cost;
}

int64_t CacheSet::PhysicalBytes(const DecodingSequence& sequence, kernels::KvDType dtype) {
  return at(dtype).cache->pages_held(sequence.handle) * page_bytes(dtype);
}

}  // namespace headroom::profiler
