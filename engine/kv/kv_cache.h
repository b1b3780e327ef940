// KvCache: the keys and values of every sequence, and the KvStore that the forward pass writes to.
//
// Per (sequence, layer, KV head): a page list, a length, and the original position of each slot. No
// code uses one head's length as "the" length. The logical position of a sequence goes on at N,
// N + 1, ... whatever was evicted. Engine thread only.
//
// Life of a sequence: Open -> chunks of each phase (the engine puts RowSegments of it in batches;
// FinishLayer scores, plans and compacts) -> FinishPhase after each phase's last forward pass ->
// decode rows -> Close. Close may come at any time between forward passes and returns every page.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "engine/kv/budget.h"
#include "engine/kv/kv_replay.h"
#include "engine/kv/page_pool.h"
#include "engine/kv/policy.h"
#include "kernels/ops.h"
#include "models/kv_store.h"

namespace headroom::engine {

struct KvCacheConfig {
  int32_t num_layers = 0;
  int32_t hidden_size = 0;       // width of stashed rows
  float attention_scale = 0.0f;  // of window scores
  int32_t tsp_layer = 0;
  int32_t num_pages = 0;
  kernels::KvGeometry geometry;
  bool keeps_replay = false;  // sequences note what MakeReplay needs
};

// The shape and size of one head, for traces and invariants.
struct HeadSnapshot {
  std::vector<int32_t> positions;  // [length], strictly ascending
  std::vector<int32_t> pages;
};

class KvCache final : public models::KvStore {
 public:
  // Allocates the page arena. `backend`, `policies` and `clock` outlive the cache.
  static StatusOr<std::unique_ptr<KvCache>> Create(const KvCacheConfig& config,
                                                   kernels::Backend& backend,
                                                   const KvPolicyRegistry& policies,
                                                   const Clock& clock);
  ~KvCache() override;

  // Opens a sequence and returns its handle. `spec` passed the policy's Validate. With `replay`, of
  // a sequence of the same spec and prompt, the prefill repeats that sequence's: its rows, kept
  // slots and receipt, without a score or a selection.
  int32_t Open(const KvPolicySpec& spec, const PromptInfo& prompt,
               std::shared_ptr<const KvReplay> replay = nullptr);

  // Opens a sequence under policy `full` that also keeps, of every layer, the queries and column
  // sums that these specs score with. They stay until it closes: memory beside the pool.
  int32_t OpenSource(std::span<const KvPolicySpec> specs, const PromptInfo& prompt);
  // A new sequence that holds what the source's prompt would hold after a prefill under `spec`, bit
  // for bit, without reading it again: heads that keep everything share the source's pages, the
  // others are compacted into fresh ones. The source has been read and has decoded nothing; it can
  // be used any number of times and closed at any time. The new sequence decodes.
  // Errors: InvalidArgument (`spec` selects rows while it reads, or scores with what the source did
  // not keep), ResourceExhausted (too few free pages).
  StatusOr<int32_t> OpenFrom(int32_t source, const KvPolicySpec& spec);
  void Close(int32_t sequence);

  // The phases planned for the sequence, and the rows (prompt positions, ascending) of phase p:
  // phase 0 is 0..N-1; later phases exist once FinishPhase(p - 1) ran.
  std::span<const PrefillPhase> phases(int32_t sequence) const;
  std::span<const int32_t> phase_rows(int32_t sequence, int32_t phase) const;
  // Whether the rows of phase p are a fresh prompt: row i is embedded at position i.
  bool starts_afresh(int32_t sequence, int32_t phase) const;
  // The position of the first decode row: N, or the number of rows that were started afresh.
  int32_t decode_begin(int32_t sequence) const;

  // After the forward pass that held the last chunk of `phase`. After the last phase the sequence
  // decodes and its receipt is final.
  void FinishPhase(int32_t sequence, int32_t phase);
  const KvReceipt& receipt(int32_t sequence) const;

  // A second sequence that goes on from where this one, which decodes, stands. They share all
  // pages; whoever writes to a shared page copies it first.
  int32_t Fork(int32_t sequence);

  // What the sequence, whose prefill has ended, holds with `new_slots` decode slots in every head:
  // steady_pages of it alone, and how many of them its forks share.
  KvFootprint SteadyFootprint(int32_t sequence, int64_t new_slots) const;

  // Before a decode step: applies the policy's decode eviction, so that one more slot per head
  // fits the reservation. `next`: what the token of the row is (of a replay's rows: not read).
  void PrepareDecode(int32_t sequence, TokenClass next = TokenClass::kOther);
  // Decode rows that were appended.
  int64_t num_decoded(int32_t sequence) const;

  // Preemption. What it takes to run the sequence, which decodes, again to where it stands, given
  // the same tokens; under KvCacheConfig::keeps_replay.
  std::shared_ptr<const KvReplay> MakeReplay(int32_t sequence) const;
  // The sequence's prefill, or that of the one it was forked from, was a replay: its next decode
  // rows repeat those of `replay`, evictions included; then the scores are as they were.
  void ReplayDecode(int32_t sequence, std::shared_ptr<const KvReplay> replay);
  // Rows of a replay that may be fed at once, PrepareDecode before them; 0: it is over.
  int32_t NextReplayRows(int32_t sequence) const;
  // The most pages that the next rows take at once beside those that the sequence holds.
  int64_t MostNewPages(int32_t sequence, int32_t num_rows, bool ends_phase) const;

  // What the policies are given; constant.
  const KvModelShape& shape() const;
  int64_t pages_held(int32_t sequence) const;
  // Pages of these sequences; a page that several of them share counts once.
  int64_t pages_held(std::span<const int32_t> sequences) const;
  const PagePool& pool() const;
  int32_t num_sequences() const;
  HeadSnapshot Snapshot(int32_t sequence, int32_t layer, int32_t kv_head) const;

  // Invariants of the pool and of every open sequence (docs/engine-contract.md); the first fault
  // as Internal. Linear in the pool.
  Status CheckInvariants() const;

  // models::KvStore
  const kernels::KvArena& arena() const override;
  void Append(const models::RowSegment& segment, int32_t layer, const int32_t* positions,
              int64_t* dst_slots) override;
  const kernels::KvHeadView* View(const models::RowSegment& segment, int32_t layer,
                                  const int32_t* positions, int32_t* visible) override;
  void CaptureQueries(const models::RowSegment& segment, int32_t layer, const int32_t* positions,
                      const float* queries, int64_t stride) override;
  void StashRows(const models::RowSegment& segment, const int32_t* positions, const float* rows,
                 int64_t stride) override;
  void LoadStash(const models::RowSegment& segment, const int32_t* positions, float* rows,
                 int64_t stride) override;
  void FinishLayer(const models::RowSegment& segment, int32_t layer) override;

 private:
  struct Impl;
  explicit KvCache(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace headroom::engine
