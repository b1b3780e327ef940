#include "profiler/head_elimination.h"

#include <algorithm>

#include "profiler/race.h"

namespace headroom::profiler {
namespace {

// Exchanges are tried again while they gain.
constexpr int kMostExchanges = 3;
constexpr size_t kMostBack = 16;  // of those that went last

// How many heads go after a round over `left` ones.
size_t DropsOf(size_t left, size_t num_single) {
  if (left > 2 * num_single) {
    return std::min<size_t>(4, left - 2 * num_single);
  }
  return left > num_single + 1 ? 2 : 1;
}

// Several go at a time at first, so that the number itself may be passed over.
bool Exchanges(size_t before, size_t left, const EliminationOptions& options) {
  return before > options.num_exchanged && left <= options.num_exchanged;
}

std::vector<size_t> Without(std::vector<size_t> heads, size_t index) {
  heads.erase(heads.begin() + static_cast<ptrdiff_t>(index));
  return heads;
}

class Elimination {
 public:
  Elimination(const std::vector<size_t>& heads, size_t num_samples, const LossOfHeads& loss_of)
      : num_samples_(num_samples), loss_of_(loss_of), left_(heads) {}

  size_t num_left() const { return left_.size(); }

  Status Drop(size_t count) {
    // The last first: they go where losses are equal.
    const size_t last = left_.size() - 1;
    const auto loss = [&](size_t index, size_t begin, size_t end) {
      return loss_of_(Without(left_, last - index), begin, end);
    };
    HEADROOM_ASSIGN_OR_RETURN(const auto raced, Race(left_.size(), num_samples_, loss));
    std::vector<size_t> dropped;
    for (size_t i = 0; i < count; ++i) {
      dropped.push_back(left_[last - raced[i].index]);
    }
    for (const size_t head : dropped) {
      gone_.push_back(head);
      left_.erase(std::find(left_.begin(), left_.end(), head));
    }
    return OkStatus();
  }

  Status Exchange() {
    HEADROOM_ASSIGN_OR_RETURN(double best, loss_of_(left_, 0, num_samples_));
    const size_t num_back = std::min(gone_.size(), kMostBack);
    const size_t first_back = gone_.size() - num_back;
    for (int i = 0; i < kMostExchanges && num_back > 0; ++i) {
      const auto loss = [&](size_t index, size_t begin, size_t end) {
        std::vector<size_t> heads = left_;
        heads[index / num_back] = gone_[first_back + index % num_back];
        return loss_of_(heads, begin, end);
      };
      HEADROOM_ASSIGN_OR_RETURN(const auto raced,
                                Race(left_.size() * num_back, num_samples_, loss));
      if (raced.front().loss >= best) {
        break;
      }
      best = raced.front().loss;
      const size_t out = raced.front().index / num_back;
      const size_t in = first_back + raced.front().index % num_back;
      const size_t head = left_[out];
      left_[out] = gone_[in];
      gone_.erase(gone_.begin() + static_cast<ptrdiff_t>(in));
      gone_.push_back(head);
    }
    return OkStatus();
  }

  std::vector<size_t> Order() const {
    std::vector<size_t> order = gone_;
    order.insert(order.end(), left_.begin(), left_.end());
    std::reverse(order.begin(), order.end());
    return order;
  }

 private:
  const size_t num_samples_;
  const LossOfHeads& loss_of_;
  std::vector<size_t> left_;
  std::vector<size_t> gone_;  // the least valuable first
};

}  // namespace

StatusOr<std::vector<size_t>> OrderByElimination(const std::vector<size_t>& heads,
                                                 size_t num_samples,
                                                 const EliminationOptions& options,
                                                 const LossOfHeads& loss_of) {
  Elimination elimination(heads, num_samples, loss_of);
  while (elimination.num_left() > 1) {
    const size_t before = elimination.num_left();
    HEADROOM_RETURN_IF_ERROR(elimination.Drop(DropsOf(before, options.num_single)));
    if (Exchanges(before, elimination.num_left(), options)) {
      HEADROOM_RETURN_IF_ERROR(elimination.Exchange());
    }
  }
  return elimination.Order();
}

int64_t EliminationWork(size_t num_heads, size_t num_samples, const EliminationOptions& options) {
  int64_t work = 0;
  for (size_t left = num_heads; left > 1;) {
    work += RaceWork(left, num_samples);
    const size_t before = left;
    left -= DropsOf(left, options.num_single);
    if (Exchanges(before, left, options)) {
      const size_t num_back = std::min(num_heads - left, kMostBack);
      work += static_cast<int64_t>(num_samples) +
              kMostExchanges * RaceWork(left * num_back, num_samples);
    }
  }
  return work;
}

}  // namespace headroom::profiler
