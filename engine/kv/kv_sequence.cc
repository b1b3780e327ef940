#include "engine/kv/kv_sequence.h"

#include <algorithm>

#include "base/check.h"

namespace headroom::engine {
namespace {

Status CheckHead(const KvSequence& sequence, int32_t layer, int32_t kv_head) {
  const KvHead& head = sequence.head(layer, kv_head);
  const auto fault = [&](const std::string& what) {
    return Internal("layer {} kv head {}: {}", layer, kv_head, what);
  };
  const std::vector<int32_t>& positions = head.positions();
  const size_t wanted = (positions.size() + kernels::kPageSize - 1) / kernels::kPageSize;
  if (head.pages().size() != wanted) {
    return fault(fmt::format("{} pages for {} slots", head.pages().size(), positions.size()));
  }
  for (size_t i = 1; i < positions.size(); ++i) {
    if (positions[i - 1] >= positions[i]) {
      return fault(fmt::format("position {} before {}", positions[i - 1], positions[i]));
    }
  }
  if (!sequence.decoding()) {
    return OkStatus();
  }
  const LayerPlan& plan = sequence.plan.layers[static_cast<size_t>(layer)];
  const HeadPlan* head_plan = plan.keep_all ? nullptr : &plan.heads[static_cast<size_t>(kv_head)];
  // The prompt's last token may be gone where nothing recent is protected; a decoded one never.
  const bool ends_with_prompt = head_plan == nullptr || head_plan->recent_slots > 0;
  const int64_t last = sequence.num_prompt_positions() - 1 + sequence.decoded_slots;
  if ((sequence.decoded_slots > 0 || ends_with_prompt) &&
      (positions.empty() || positions.back() != last)) {
    return fault(fmt::format("ends at position {}, wanted {}",
                             positions.empty() ? -1 : positions.back(), last));
  }
  const int32_t sinks = head_plan == nullptr ? 0 : head_plan->sink_slots;
  const auto phase = static_cast<size_t>(sequence.plan.layer_phases[static_cast<size_t>(layer)]);
  const std::vector<int32_t>& rows = sequence.rows[phase];
  for (int32_t i = 0; i < sinks; ++i) {
    const size_t slot = static_cast<size_t>(i);
    if (slot >= positions.size() || positions[slot] != rows[slot]) {
      return fault(fmt::format("sink {} is gone", rows[slot]));
    }
  }
  return OkStatus();
}

}  // namespace

bool KvSequence::NeedsWindow(int32_t layer) const {
  if (decoding() || replay != nullptr || plan.needs.window_rows == 0 || IsStored(layer)) {
    return false;
  }
  if (is_source || IsTail(layer)) {
    return true;
  }
  const std::vector<ColumnNeeds>& needed = plan.needs.columns;
  if (NeedsColumns(layer) && std::any_of(needed.begin(), needed.end(), [this](const auto& each) {
        return SumsFromWindow(each);
      })) {
    return true;
  }
  // Layers of a phase whose pages all go back are not scored.
  const std::vector<HeadPlan>& plans = plan.layers[static_cast<size_t>(layer)].heads;
  return !current_phase().restarts &&
         std::any_of(plans.begin(), plans.end(), [](const HeadPlan& head) {
           return head.score == ScoreKind::kWindow || head.score == ScoreKind::kWindowAllHeads;
         });
}

bool KvSequence::NeedsColumns(int32_t layer) const {
  return !decoding() && replay == nullptr && !plan.needs.columns.empty() &&
         (is_source || !plan.layers[static_cast<size_t>(layer)].keep_all);
}

int32_t KvSequence::RowIndex(int32_t position) const {
  if (phase == 0 || !FromStash()) {
    return position;  // of a fresh prompt, too
  }
  const std::vector<int32_t>& list = current_rows();
  const auto found = std::lower_bound(list.begin(), list.end(), position);
  HEADROOM_CHECK(found != list.end() && *found == position);
  return static_cast<int32_t>(found - list.begin());
}

int32_t KvSequence::WindowRowsOfPhase() const {
  return std::min(plan.needs.window_rows, plan.phase_rows[static_cast<size_t>(phase)]);
}

int32_t KvSequence::CapturedRowsOfPhase() const {
  return std::min(plan.needs.window_rows + plan.needs.check_rows,
                  plan.phase_rows[static_cast<size_t>(phase)]);
}

std::unique_ptr<KvSequence> ForkSequence(const KvSequence& source, PagePool& pool) {
  HEADROOM_CHECK(source.decoding());
  auto fork = std::make_unique<KvSequence>();
  fork->prompt = source.prompt;
  fork->num_kv_heads = source.num_kv_heads;
  fork->pool = source.pool;
  fork->pool_width = source.pool_width;
  fork->plan = source.plan;
  fork->decode_plans = source.decode_plans;
  fork->heads.reserve(source.heads.size());
  for (const KvHead& head : source.heads) {
    fork->heads.push_back(head.Share(pool));
  }
  fork->views.resize(source.views.size());
  fork->decoded_slots = source.decoded_slots;
  fork->scores = source.scores;
  fork->pinned = source.pinned;
  fork->evictions = source.evictions;
  fork->phase = source.phase;
  fork->rows = source.rows;
  // What only a prefill needs stays behind: windows and stash are empty by now.
  fork->windows.resize(source.windows.size());
  fork->layer_done = source.layer_done;
  fork->receipt = source.receipt;
  return fork;
}

Status CheckSequence(const KvSequence& sequence, const KvModelShape& shape) {
  for (int32_t layer = 0; layer < shape.num_layers; ++layer) {
    for (int32_t head = 0; head < shape.num_kv_heads; ++head) {
      HEADROOM_RETURN_IF_ERROR(CheckHead(sequence, layer, head));
    }
  }
  const int64_t bound =
      sequence.decoding()
          ? DecodePages(sequence.plan, shape, sequence.decode_plans, sequence.decoded_slots)
          : PrefillPeakPages(sequence.plan, shape);
  if (sequence.pages_held() > bound) {
    return Internal("{} pages held, {} reserved", sequence.pages_held(), bound);
  }
  return OkStatus();
}

}  // namespace headroom::engine
