#include "profiler/race.h"

#include <algorithm>

namespace headroom::profiler {
namespace {

// Where stages end, in eighths of the samples.
constexpr size_t kStages[] = {1, 2, 4, 8};

size_t StageEnd(size_t stage, size_t num_samples) { return num_samples * stage / 8; }

size_t Survivors(size_t num_candidates) {
  return std::min(num_candidates, std::max((num_candidates + 2) / 3, kLeastSurvivors));
}

}  // namespace

StatusOr<std::vector<RacedCandidate>> Race(size_t num_candidates, size_t num_samples,
                                           const LossOfSamples& loss_of) {
  std::vector<RacedCandidate> racing(num_candidates);
  for (size_t i = 0; i < num_candidates; ++i) {
    racing[i].index = i;
  }
  size_t begin = 0;
  for (const size_t stage : kStages) {
    const size_t end = StageEnd(stage, num_samples);
    if (end == begin) {
      continue;
    }
    if (begin > 0) {
      racing.resize(Survivors(racing.size()));
    }
    for (RacedCandidate& candidate : racing) {
      HEADROOM_ASSIGN_OR_RETURN(const double loss, loss_of(candidate.index, begin, end));
      candidate.loss += loss;
    }
    std::stable_sort(racing.begin(), racing.end(),
                     [](const RacedCandidate& a, const RacedCandidate& b) {
                       return a.loss != b.loss ? a.loss < b.loss : a.index < b.index;
                     });
    begin = end;
  }
  return racing;
}

int64_t RaceWork(size_t num_candidates, size_t num_samples) {
  int64_t work = 0;
  size_t begin = 0;
  for (const size_t stage : kStages) {
    const size_t end = StageEnd(stage, num_samples);
    if (end == begin) {
      continue;
    }
    num_candidates = begin > 0 ? Survivors(num_candidates) : num_candidates;
    work += static_cast<int64_t>(num_candidates * (end - begin));
    begin = end;
  }
  return work;
}

}  // namespace headroom::profiler
