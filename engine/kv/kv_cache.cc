#include "engine/kv/kv_cache.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "engine/kv/decode_control.h"
#include "engine/kv/kv_sequence.h"
#include "engine/kv/layer_finisher.h"
#include "engine/kv/prefill_buffers.h"
#include "engine/kv/slot_moves.h"

namespace headroom::engine {

using models::RowSegment;

struct KvCache::Impl {
  Impl(const KvCacheConfig& cache_config, kernels::Backend& cache_backend,
       const KvPolicyRegistry& registry, const Clock& cache_clock)
      : config(cache_config),
        backend(cache_backend),
        policies(registry),
        clock(cache_clock),
        shape{.num_layers = cache_config.num_layers,
              .num_kv_heads = cache_config.geometry.num_kv_heads,
              .tsp_layer = cache_config.tsp_layer},
        pool(cache_config.num_pages),
        query_buffers(cache_backend),
        finisher(cache_backend, arena, cache_config.attention_scale, pool, moves),
        decode(cache_backend, arena, cache_config.attention_scale, pool, moves,
               cache_config.keeps_replay) {
    moves.lists.resize(static_cast<size_t>(cache_config.geometry.num_kv_heads));
  }

  KvSequence& at(int32_t handle) {
    HEADROOM_CHECK(handle >= 0 && static_cast<size_t>(handle) < sequences.size() &&
                   sequences[static_cast<size_t>(handle)] != nullptr);
    return *sequences[static_cast<size_t>(handle)];
  }

  void RunMoves() { moves.Run(backend, arena, pool); }
  std::unique_ptr<KvSequence> MakeSequence(const KvPolicySpec& spec,
                                           const PromptInfo& prompt) const;
  int32_t Add(std::unique_ptr<KvSequence> sequence);  // its handle
  // Whether `source` kept what `wanted` scores with, and its winners fit the pool.
  Status CheckSource(const KvSequence& source, const KvSequence& wanted,
                     const std::string& policy) const;
  void FinishReceipt(KvSequence& sequence);
  void AddColumns(const RowSegment& segment, int32_t layer, int32_t row_begin, const float* queries,
                  int64_t stride);

  const KvCacheConfig config;
  kernels::Backend& backend;
  const KvPolicyRegistry& policies;
  const Clock& clock;
  const KvModelShape shape;
  PagePool pool;
  std::unique_ptr<kernels::Buffer> pages;  // [num_pages, page_bytes]
  kernels::KvArena arena;
  BufferCache query_buffers;
  SlotMoves moves;  // empty between calls
  LayerFinisher finisher;
  DecodeControl decode;
  std::vector<std::unique_ptr<KvSequence>> sequences;  // by handle; null: free
  std::vector<int32_t> free_handles;
};

KvCache::KvCache(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
KvCache::~KvCache() = default;

StatusOr<std::unique_ptr<KvCache>> KvCache::Create(const KvCacheConfig& config,
                                                   kernels::Backend& backend,
                                                   const KvPolicyRegistry& policies,
                                                   const Clock& clock) {
  HEADROOM_CHECK(config.num_layers >= 1 && config.geometry.num_kv_heads >= 1);
  if (config.tsp_layer < 0 || config.tsp_layer >= config.num_layers) {
    return InvalidArgument("tsp_layer: got {}, wanted 0 to {}", config.tsp_layer,
                           config.num_layers - 1);
  }
  const size_t page_bytes = backend.KvPageBytes(config.geometry);
  if (config.num_pages < 1 ||
      static_cast<size_t>(config.num_pages) > std::numeric_limits<size_t>::max() / page_bytes) {
    return InvalidArgument("KV pool: got {} pages of {} bytes, wanted at least one that fits",
                           config.num_pages, page_bytes);
  }
  auto impl = std::make_unique<Impl>(config, backend, policies, clock);
  HEADROOM_ASSIGN_OR_RETURN(impl->pages,
                            backend.Allocate(page_bytes * static_cast<size_t>(config.num_pages)));
  impl->arena = {
      .base = impl->pages->data(), .page_bytes = page_bytes, .geometry = config.geometry};
  return std::unique_ptr<KvCache>(new KvCache(std::move(impl)));
}

std::unique_ptr<KvSequence> KvCache::Impl::MakeSequence(const KvPolicySpec& spec,
                                                        const PromptInfo& prompt) const {
  const KvPolicy* policy = policies.Find(spec.policy);
  HEADROOM_CHECK(policy != nullptr && prompt.num_tokens >= 1);
  auto sequence = std::make_unique<KvSequence>();
  sequence->prompt = prompt;
  sequence->num_kv_heads = shape.num_kv_heads;
  sequence->pool = spec.pool;
  sequence->pool_width = spec.pool_width;
  sequence->plan = MakePrefillPlan(*policy, spec, shape, prompt);
  sequence->decode_plans = MakeDecodePlans(*policy, spec, shape, prompt);
  const size_t num_layers = static_cast<size_t>(shape.num_layers);
  sequence->heads.resize(num_layers * static_cast<size_t>(shape.num_kv_heads));
  sequence->views.resize(sequence->heads.size());
  sequence->scores.resize(sequence->heads.size());
  sequence->pinned.resize(sequence->heads.size());
  sequence->windows.resize(num_layers);
  sequence->columns.resize(num_layers);
  sequence->layer_done.assign(num_layers, 0);
  sequence->rows.emplace_back(static_cast<size_t>(prompt.num_tokens));
  std::iota(sequence->rows.front().begin(), sequence->rows.front().end(), 0);
  sequence->receipt.policy = policy->name();
  sequence->receipt.retention_ppm = sequence->plan.retention_ppm;
  sequence->receipt.tsp_ppm = sequence->plan.tsp_ppm;
  sequence->receipt.reasons = sequence->plan.reasons;
  sequence->receipt.prompt_tokens = prompt.num_tokens;
  return sequence;
}

int32_t KvCache::Impl::Add(std::unique_ptr<KvSequence> sequence) {
  if (free_handles.empty()) {
    sequences.push_back(std::move(sequence));
    return static_cast<int32_t>(sequences.size()) - 1;
  }
  const int32_t handle = free_handles.back();
  free_handles.pop_back();
  sequences[static_cast<size_t>(handle)] = std::move(sequence);
  return handle;
}

int32_t KvCache::Open(const KvPolicySpec& spec, const PromptInfo& prompt,
                      std::shared_ptr<const KvReplay> replay) {
  std::unique_ptr<KvSequence> sequence = impl_->MakeSequence(spec, prompt);
  sequence->replay = std::move(replay);
  return impl_->Add(std::move(sequence));
}

int32_t KvCache::OpenSource(std::span<const KvPolicySpec> specs, const PromptInfo& prompt) {
  std::unique_ptr<KvSequence> sequence = impl_->MakeSequence(KvPolicySpec(), prompt);
  sequence->is_source = true;
  ScoreNeeds& kept = sequence->plan.needs;
  for (const KvPolicySpec& spec : specs) {
    const KvPolicy* policy = impl_->policies.Find(spec.policy);
    HEADROOM_CHECK(policy != nullptr);
    const ScoreNeeds needs = policy->Needs(spec, impl_->shape, prompt);
    kept.window_rows = std::max(kept.window_rows,
                                std::min(needs.window_rows + needs.check_rows, prompt.num_tokens));
    for (const ColumnNeeds& columns : needs.columns) {
      if (std::find(kept.columns.begin(), kept.columns.end(), columns) == kept.columns.end()) {
        kept.columns.push_back(columns);
      }
    }
  }
  return impl_->Add(std::move(sequence));
}

Status KvCache::Impl::CheckSource(const KvSequence& source, const KvSequence& wanted,
                                  const std::string& policy) const {
  if (wanted.plan.phases.size() > 1) {
    return InvalidArgument(
        "policy {} chooses rows while it reads: its prompt has to be read under it", policy);
  }
  const ScoreNeeds& kept = source.plan.needs;
  const int32_t rows = wanted.CapturedRowsOfPhase();
  if (rows > kept.window_rows) {
    return InvalidArgument("policy {} scores with {} rows of queries; the source kept {}", policy,
                           rows, kept.window_rows);
  }
  for (const ColumnNeeds& columns : wanted.plan.needs.columns) {
    if (!source.SumsFromWindow(columns) &&
        std::find(kept.columns.begin(), kept.columns.end(), columns) == kept.columns.end()) {
      return InvalidArgument("policy {} scores with column sums that the source did not keep",
                             policy);
    }
  }
  const int64_t needed = DecodePages(wanted.plan, shape, wanted.decode_plans, 0);
  if (needed > pool.num_free()) {
    return ResourceExhausted("policy {} keeps up to {} pages; {} are free", policy, needed,
                             pool.num_free());
  }
  return OkStatus();
}

StatusOr<int32_t> KvCache::OpenFrom(int32_t source, const KvPolicySpec& spec) {
  const KvSequence& from = impl_->at(source);
  HEADROOM_CHECK(from.is_source && from.decoding() && from.decoded_slots == 0);
  std::unique_ptr<KvSequence> sequence = impl_->MakeSequence(spec, from.prompt);
  HEADROOM_RETURN_IF_ERROR(impl_->CheckSource(from, *sequence, spec.policy));
  const int64_t begin_ns = impl_->clock.NowNs();
  for (size_t i = 0; i < from.heads.size(); ++i) {
    sequence->heads[i] = from.heads[i].Share(impl_->pool);
  }
  for (int32_t layer = 0; layer < impl_->shape.num_layers; ++layer) {
    impl_->finisher.FinishFrom(from, *sequence, layer);
    sequence->layer_done[static_cast<size_t>(layer)] = 1;
  }
  sequence->compress_ns = impl_->clock.NowNs() - begin_ns;
  ++sequence->phase;
  impl_->FinishReceipt(*sequence);
  return impl_->Add(std::move(sequence));
}

int32_t KvCache::Fork(int32_t sequence) {
  return impl_->Add(ForkSequence(impl_->at(sequence), impl_->pool));
}

void KvCache::Close(int32_t sequence) {
  KvSequence& closed = impl_->at(sequence);
  for (KvHead& head : closed.heads) {
    head.Clear(impl_->pool);
  }
  for (QueryWindow& window : closed.windows) {
    window.Close(impl_->query_buffers);
  }
  impl_->sequences[static_cast<size_t>(sequence)].reset();
  impl_->free_handles.push_back(sequence);
}

std::span<const PrefillPhase> KvCache::phases(int32_t sequence) const {
  return impl_->at(sequence).plan.phases;
}

std::span<const int32_t> KvCache::phase_rows(int32_t sequence, int32_t phase) const {
  const KvSequence& of = impl_->at(sequence);
  HEADROOM_CHECK(phase >= 0 && static_cast<size_t>(phase) < of.rows.size());
  return of.rows[static_cast<size_t>(phase)];
}

bool KvCache::starts_afresh(int32_t sequence, int32_t phase) const {
  const std::vector<PrefillPhase>& phases = impl_->at(sequence).plan.phases;
  return phase > 0 && phases[static_cast<size_t>(phase) - 1].restarts;
}

int32_t KvCache::decode_begin(int32_t sequence) const {
  return impl_->at(sequence).num_prompt_positions();
}

void KvCache::FinishPhase(int32_t sequence, int32_t phase) {
  KvSequence& of = impl_->at(sequence);
  HEADROOM_CHECK(!of.decoding() && phase == of.phase);
  const PrefillPhase& finished = of.current_phase();
  for (int32_t layer = finished.layer_begin; layer < finished.layer_end; ++layer) {
    HEADROOM_CHECK(of.layer_done[static_cast<size_t>(layer)] != 0);
    if (finished.restarts) {
      of.layer_done[static_cast<size_t>(layer)] = 0;
    }
  }
  // What the phase before it kept aside has been read by now.
  of.stashes[static_cast<size_t>((phase + 1) % 2)].Clear();
  HEADROOM_CHECK(!finished.selects_rows || of.rows.size() == static_cast<size_t>(phase) + 2);
  ++of.phase;
  if (!of.decoding()) {
    return;
  }
  if (of.replay != nullptr) {
    of.receipt = of.replay->receipt;
    of.decode_plans = of.replay->decode_plans;
    return;
  }
  impl_->FinishReceipt(of);
}

const KvReceipt& KvCache::receipt(int32_t sequence) const { return impl_->at(sequence).receipt; }

void KvCache::PrepareDecode(int32_t sequence, TokenClass next) {
  impl_->decode.Prepare(impl_->at(sequence), next);
}

int64_t KvCache::num_decoded(int32_t sequence) const { return impl_->at(sequence).decoded_slots; }

std::shared_ptr<const KvReplay> KvCache::MakeReplay(int32_t sequence) const {
  return impl_->decode.MakeReplay(impl_->at(sequence));
}

void KvCache::ReplayDecode(int32_t sequence, std::shared_ptr<const KvReplay> replay) {
  KvSequence& of = impl_->at(sequence);
  HEADROOM_CHECK(of.decoding() && of.decoded_slots == 0 && replay != nullptr);
  of.decode_replay = std::move(replay);
  of.next_eviction = 0;
}

int32_t KvCache::NextReplayRows(int32_t sequence) const {
  return engine::NextReplayRows(impl_->at(sequence));
}

int64_t KvCache::MostNewPages(int32_t sequence, int32_t num_rows, bool ends_phase) const {
  return engine::MostNewPages(impl_->at(sequence), impl_->pool, num_rows, ends_phase);
}

KvFootprint KvCache::SteadyFootprint(int32_t sequence, int64_t new_slots) const {
  const KvSequence& of = impl_->at(sequence);
  HEADROOM_CHECK(of.decoding() && of.decoded_slots == 0);
  KvFootprint footprint;
  for (size_t i = 0; i < of.heads.size(); ++i) {
    const int32_t kept = of.heads[i].length();
    footprint.steady_pages += DecodePages(of.decode_plans[i], kept, new_slots);
    footprint.shared_pages += SharedPages(of.decode_plans[i], kept, new_slots);
  }
  return footprint;
}

int64_t KvCache::pages_held(int32_t sequence) const { return impl_->at(sequence).pages_held(); }

int64_t KvCache::pages_held(std::span<const int32_t> sequences) const {
  std::vector<int32_t> pages;
  for (const int32_t sequence : sequences) {
    for (const KvHead& head : impl_->at(sequence).heads) {
      pages.insert(pages.end(), head.pages().begin(), head.pages().end());
    }
  }
  if (sequences.size() > 1) {
    std::sort(pages.begin(), pages.end());
    pages.erase(std::unique(pages.begin(), pages.end()), pages.end());
  }
  return static_cast<int64_t>(pages.size());
}

const PagePool& KvCache::pool() const { return impl_->pool; }
const KvModelShape& KvCache::shape() const { return impl_->shape; }

int32_t KvCache::num_sequences() const {
  return static_cast<int32_t>(impl_->sequences.size() - impl_->free_handles.size());
}

HeadSnapshot KvCache::Snapshot(int32_t sequence, int32_t layer, int32_t kv_head) const {
  HEADROOM_CHECK(layer >= 0 && layer < impl_->shape.num_layers && kv_head >= 0 &&
                 kv_head < impl_->shape.num_kv_heads);
  const KvHead& head = impl_->at(sequence).head(layer, kv_head);
  return {.positions = head.positions(), .pages = head.pages()};
}

Status KvCache::CheckInvariants() const {
  const PagePool& pool = impl_->pool;
  std::vector<int32_t> owners(static_cast<size_t>(pool.num_pages()), 0);
  for (size_t handle = 0; handle < impl_->sequences.size(); ++handle) {
    const KvSequence* sequence = impl_->sequences[handle].get();
    if (sequence == nullptr) {
      continue;
    }
    if (const Status status = CheckSequence(*sequence, impl_->shape); !status.ok()) {
      return Internal("sequence {}: {}", handle, StatusMessage(status));
    }
    for (const KvHead& head : sequence->heads) {
      for (const int32_t page : head.pages()) {
        ++owners[static_cast<size_t>(page)];
      }
    }
  }
  int32_t num_owned = 0;
  for (int32_t page = 0; page < pool.num_pages(); ++page) {
    const int32_t count = owners[static_cast<size_t>(page)];
    num_owned += count > 0 ? 1 : 0;
    if (count != pool.references(page)) {
      return Internal("page {}: {} owners, {} references", page, count, pool.references(page));
    }
  }
  if (num_owned + pool.num_free() != pool.num_pages()) {
    return Internal("{} pages owned and {} free, wanted {}", num_owned, pool.num_free(),
                    pool.num_pages());
  }
  return OkStatus();
}

const kernels::KvArena& KvCache::arena() const { return impl_->arena; }

void KvCache::Append(const RowSegment& segment, int32_t layer, const int32_t* positions,
                     int64_t* dst_slots) {
  KvSequence& sequence = impl_->at(segment.sequence);
  const int32_t num_heads = sequence.num_kv_heads;
  for (int32_t row = 0; row < segment.num_rows; ++row) {
    for (int32_t head = 0; head < num_heads; ++head) {
      dst_slots[int64_t{row} * num_heads + head] =
          sequence.head(layer, head)
              .Append(impl_->pool, positions[row], impl_->moves.lists[static_cast<size_t>(head)]);
    }
  }
  if (layer == 0 && sequence.decoding()) {
    sequence.decoded_slots += segment.num_rows;
  }
  impl_->RunMoves();
}

const kernels::KvHeadView* KvCache::View(const RowSegment& segment, int32_t layer,
                                         const int32_t* positions, int32_t* visible) {
  KvSequence& sequence = impl_->at(segment.sequence);
  const int32_t num_heads = sequence.num_kv_heads;
  kernels::KvHeadView* views =
      &sequence.views[static_cast<size_t>(layer) * static_cast<size_t>(num_heads)];
  for (int32_t index = 0; index < num_heads; ++index) {
    const KvHead& head = sequence.head(layer, index);
    views[index] = {.pages = head.pages().data(), .num_slots = head.length()};
    const std::vector<int32_t>& slots = head.positions();
    // Rows ascend, so that one walk serves them all.
    int32_t count = head.VisibleAt(positions[0]);
    for (int32_t row = 0; row < segment.num_rows; ++row) {
      while (count < head.length() && slots[static_cast<size_t>(count)] <= positions[row]) {
        ++count;
      }
      visible[int64_t{row} * num_heads + index] = count;
    }
  }
  return views;
}

void KvCache::CaptureQueries(const RowSegment& segment, int32_t layer, const int32_t* positions,
                             const float* queries, int64_t stride) {
  KvSequence& sequence = impl_->at(segment.sequence);
  if (sequence.decoding()) {
    // Rows of a replay come several at once, and their scores are known.
    if (segment.num_rows == 1) {
      impl_->decode.Observe(sequence, layer, positions[0], queries);
    }
    return;
  }
  if (sequence.NeedsColumns(layer)) {
    impl_->AddColumns(segment, layer, positions[0], queries, stride);
  }
  if (!sequence.NeedsWindow(layer)) {
    return;
  }
  const int32_t window_rows = sequence.CapturedRowsOfPhase();
  const int32_t first = sequence.plan.phase_rows[static_cast<size_t>(sequence.phase)] - window_rows;
  const int32_t begin = sequence.RowIndex(positions[0]);
  const int32_t skipped = std::max(0, first - begin);
  if (skipped >= segment.num_rows) {
    return;
  }
  QueryWindow& window = sequence.windows[static_cast<size_t>(layer)];
  if (!window.is_open()) {
    const kernels::KvGeometry& geometry = impl_->config.geometry;
    window.Open(impl_->query_buffers, window_rows,
                int64_t{geometry.num_kv_heads} * geometry.group_size * geometry.head_dim);
  }
  window.Capture(impl_->backend, queries, stride,
                 {.src_begin = skipped,
                  .dst_begin = begin + skipped - first,
                  .num_rows = segment.num_rows - skipped});
}

// Column sums over more rows than the window holds: K of these rows is stored by now.
void KvCache::Impl::AddColumns(const RowSegment& segment, int32_t layer, int32_t row_begin,
                               const float* queries, int64_t stride) {
  KvSequence& sequence = at(segment.sequence);
  const std::vector<ColumnNeeds>& needs = sequence.plan.needs.columns;
  std::vector<ColumnSums>& sums = sequence.columns[static_cast<size_t>(layer)];
  sums.resize(needs.size());
  if (needs.empty()) {
    return;
  }
  const int64_t begin_ns = clock.NowNs();
  std::vector<kernels::KvHeadView> views;
  for (int32_t index = 0; index < sequence.num_kv_heads; ++index) {
    const KvHead& head = sequence.head(layer, index);
    views.push_back({.pages = head.pages().data(), .num_slots = head.length()});
  }
  for (size_t i = 0; i < needs.size(); ++i) {
    if (!sequence.SumsFromWindow(needs[i])) {
      AddColumnSums(backend, arena, config.attention_scale, views, needs[i],
                    sequence.prompt.num_tokens,
                    {.queries = queries,
                     .stride = stride,
                     .row_begin = row_begin,
                     .num_rows = segment.num_rows},
                    sums[i]);
    }
  }
  sequence.compress_ns += clock.NowNs() - begin_ns;
}

void KvCache::StashRows(const RowSegment& segment, const int32_t* positions, const float* rows,
                        int64_t stride) {
  KvSequence& sequence = impl_->at(segment.sequence);
  if (sequence.current_phase().restarts) {
    return;  // nothing goes on from here: the next rows are embedded again
  }
  RowStash& stash = sequence.stashes[static_cast<size_t>(sequence.phase % 2)];
  stash.Store(impl_->backend, impl_->config.hidden_size, sequence.RowIndex(positions[0]),
              segment.num_rows, rows, stride);
}

void KvCache::LoadStash(const RowSegment& segment, const int32_t* positions, float* rows,
                        int64_t stride) {
  KvSequence& sequence = impl_->at(segment.sequence);
  HEADROOM_CHECK(sequence.FromStash());
  const std::vector<int32_t>& stashed = sequence.rows[static_cast<size_t>(sequence.phase) - 1];
  std::vector<int32_t> indices;
  auto found = stashed.begin();
  for (int32_t row = 0; row < segment.num_rows; ++row) {
    found = std::lower_bound(found, stashed.end(), positions[row]);
    HEADROOM_CHECK(found != stashed.end() && *found == positions[row]);
    indices.push_back(static_cast<int32_t>(found - stashed.begin()));
  }
  const RowStash& stash = sequence.stashes[static_cast<size_t>((sequence.phase - 1) % 2)];
  stash.Load(impl_->backend, indices, rows, stride);
}

void KvCache::FinishLayer(const RowSegment& segment, int32_t layer) {
  KvSequence& sequence = impl_->at(segment.sequence);
  HEADROOM_CHECK(segment.ends_phase && !sequence.decoding());
  const int64_t begin_ns = impl_->clock.NowNs();
  if (sequence.IsTail(layer)) {
    impl_->finisher.FinishTail(sequence, layer);
  } else {
    impl_->finisher.FinishLayer(sequence, layer);
  }
  if (!sequence.is_source) {
    sequence.windows[static_cast<size_t>(layer)].Close(impl_->query_buffers);
    sequence.columns[static_cast<size_t>(layer)].clear();
  }
  sequence.compress_ns += impl_->clock.NowNs() - begin_ns;
}

void KvCache::Impl::FinishReceipt(KvSequence& sequence) {
  KvReceipt& receipt = sequence.receipt;
  receipt.propagated_tokens = sequence.plan.phase_rows.back();
  receipt.entries = 0;
  receipt.head_entries.clear();
  for (const KvHead& head : sequence.heads) {
    receipt.entries += head.length();
    receipt.head_entries.push_back(head.length());
  }
  receipt.entries_full =
      int64_t{sequence.prompt.num_tokens} * shape.num_layers * shape.num_kv_heads;
  const int64_t entry_bytes =
      kernels::KvEntryBytes(config.geometry.dtype, config.geometry.head_dim);
  receipt.bytes = receipt.entries * entry_bytes;
  receipt.bytes_full = receipt.entries_full * entry_bytes;
  receipt.pages = sequence.pages_held();
  receipt.compress_ms = static_cast<double>(sequence.compress_ns) * 1e-6;
}

}  // namespace headroom::engine
